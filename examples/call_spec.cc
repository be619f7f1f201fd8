// SPDX-License-Identifier: Apache-2.0
// Parses a call from its text form into plain data.
#include <yard/yard.h>

#include "check.h"

int main() {
  // [parse]
  yard::Runtime& runtime = yard::Runtime::shared();
  yard::ParsedCall call = runtime.parse("rms_norm(f32[8,64], f32[64])").value();
  for (const yard::ParsedArg& a : call.args) {
    const auto* tensor = std::get_if<yard::ParsedTensor>(&a.value);
    std::printf("%s: %s\n", a.name.c_str(), tensor ? yard::to_string(tensor->dtype) : "a scalar");
  }
  // [/parse]
  CHECK(call.args.size() == 4 && call.args[0].name == "out" && call.args[0].written);
  CHECK(std::get<yard::ParsedTensor>(call.args[0].value).shape[1] == 64);
  CHECK(near(std::get<double>(call.args[3].value), 1e-6));
  CHECK(runtime.parse("rms_norm(f32[8,64], f32[64], out=&x)")->args[0].same_as == "x");
}
