// SPDX-License-Identifier: Apache-2.0
// Calls, resolves and describes ops that are known only at run time, by name.
#include <yard/yard.h>

#include <string>
#include <vector>

#include "check.h"

int main() {
  std::vector<float> x(2 * 4, 3.0f), weight(4, 0.5f), out(2 * 4);
  const yard::TensorView tx = yard::view(x, {2, 4}), tout = yard::view(out, {2, 4});
  const yard::TensorView tweight = yard::view(weight, {4});

  // [call]
  yard::call("rms_norm", {tout, tx, tweight}).or_throw();                 // eps has a default
  yard::call("rms_norm", {tout, tx, tweight, {"eps", 1e-5}}).or_throw();  // by argument name
  yard::call("rms_norm", {{"x", tx}, {"weight", tweight}, {"out", tout}}).or_throw();
  // [/call]
  CHECK(near(out[7], 0.5));

  // [outputs]
  yard::Runtime& runtime = yard::Runtime::shared();
  std::vector<yard::TensorView> outputs = runtime.infer("silu_and_mul", {tx}).value();
  CHECK(outputs[0].dtype() == yard::DType::f32 && outputs[0].shape()[1] == 2);
  // [/outputs]

  // [describe]
  std::string text = runtime.explain("rms_norm", {tout, tx, tweight}).value().call;
  yard::Resolution r = yard::resolve(text).value();  // a CallSpec is enough: no tensors
  std::printf("%s runs %s\n", text.c_str(), r.kernel.c_str());
  // [/describe]
  CHECK(!r.kernel.empty());

  // [mistakes]
  yard::Status s = yard::call("rms_nrm", {tout, tx, tweight});
  CHECK(s.code() == yard::Code::kUnknownOp);
  std::puts(
      s.to_string().c_str());  // unknown_op: op 'rms_nrm' is not known; did you mean 'rms_norm'?
  // [/mistakes]
  CHECK(std::string(s.message()).find("rms_norm") != std::string::npos);
}
