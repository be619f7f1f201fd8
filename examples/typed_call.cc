// SPDX-License-Identifier: Apache-2.0
// Declares ops with their C++ signatures and calls them like functions.
#include <yard/yard.h>

#include <string>
#include <vector>

#include "check.h"

// [declare]
inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};
inline constexpr yard::Op<void(yard::Out, yard::In, yard::OptIn, yard::OptIn, float)> layer_norm{
    "layer_norm"};
enum class Gelu { kErf, kTanh };
inline constexpr yard::Op<void(yard::Out, yard::In, Gelu)> gelu_and_mul{"gelu_and_mul"};
// [/declare]

// This signature does not match the schema, because `out` is written.
inline constexpr yard::Op<void(yard::In, yard::In, yard::In, float)> wrong{"rms_norm"};

int main() {
  // [views]
  std::vector<float> x(2 * 4, 3.0f), weight(4, 0.5f), out(2 * 4);
  yard::TensorView tx = yard::view(x, {2, 4});  // dtype from float
  yard::TensorView tweight = yard::view(weight, {4});
  yard::TensorView tout(out.data(), yard::DType::f32, {2, 4});   // dtype given
  yard::TensorView left = yard::view(x.data(), {2, 2}, {4, 1});  // strides in elements
  // [/views]
  CHECK(left.numel() == 4 && left.strides()[0] == 4);

  // [call]
  yard::Status status = rms_norm(tout, tx, tweight, 1e-6f);
  if (!status.ok()) std::puts(status.to_string().c_str());
  rms_norm(tout, tx, tweight, 1e-6f).or_throw();  // the same, throwing yard::Error
  // [/call]
  CHECK(status.ok() && near(out[0], 0.5));

  // [optional]
  layer_norm(tout, tx, tweight, std::nullopt, 1e-5f).or_throw();  // no bias
  // [/optional]
  CHECK(near(out[0], 0));

  std::vector<float> gated(2 * 2);
  gelu_and_mul(yard::view(gated, {2, 2}), tx, Gelu::kTanh).or_throw();
  CHECK(gated[0] > 8.9f && gated[0] < 9.0f);

  // [mismatch]
  yard::Status mismatch = rms_norm(tout, tx, tx, 1e-6f);  // the weight has two dimensions
  CHECK(mismatch.code() == yard::Code::kInvalidArgument);
  CHECK(mismatch.error_class() == yard::ErrorClass::kCaller);
  // [/mismatch]
  CHECK(std::string(mismatch.message()).find("weight") != std::string::npos);

  yard::Status bad = wrong(tout, tx, tweight, 1e-6f);
  CHECK(bad.error_class() == yard::ErrorClass::kCaller);

  // [runtime]
  yard::Runtime mine;  // its own registry, policy and plans
  rms_norm.on(mine)(tout, tx, tweight, 1e-6f).or_throw();
  // [/runtime]
  CHECK(mine.stats().plans == 1);
}
