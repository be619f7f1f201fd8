// SPDX-License-Identifier: Apache-2.0
// Wraps a library with its own order of parameters, layout and dtype in a kernel.
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <string>
#include <vector>

#include "check.h"

// [kernel]
// The library takes [batch, heads, seq, dim] in f32 without gaps, input first, and has a dropout.
void acme_scale(yard::plugin::Call, yard::plugin::Tensor q, double factor, double dropout,
                yard::plugin::Tensor result) {
  for (int64_t i = 0; i < q.numel(); ++i)
    result.data<float>()[i] = q.data<float>()[i] * float(factor * (1 - dropout));
}
// [/kernel]

inline constexpr yard::Op<void(yard::Out, yard::In, float)> scale_heads{"scale_heads"};

int main() {
  yard::Runtime& runtime = yard::Runtime::shared();
  // [register]
  namespace plugin = yard::plugin;
  using plugin::Param;
  static const plugin::Params params = {
      Param("q").from("x").layout("BHSD").dtypes({YARD_F32}), Param("factor").from("by"),
      Param("dropout", 0.0),  // no parameter of the op: a constant
      Param("result").from("out").layout("BHSD").dtypes({YARD_F32})};
  yard::Changes changes;
  changes
      .add_op(plugin::OpDef("scale_heads(out!: T[batch, seq, heads, dim], "
                            "x: T[batch, seq, heads, dim], by: float = 1.0) where T in {f32, f16}"))
      .add_kernel(plugin::Kernel::of<acme_scale>("scale_heads", "default.acme").params(params));
  runtime.apply(std::move(changes)).or_throw();
  // [/register]

  // [call]
  // [batch, seq, heads, dim] in f32: the host copies x before the kernel, and its result after it.
  std::vector<float> from(2 * 3 * 4 * 8, 1.5f), to(from.size());
  const yard::TensorView x(from.data(), yard::DType::f32, {2, 3, 4, 8});
  const yard::TensorView out(to.data(), yard::DType::f32, {2, 3, 4, 8});
  yard::ResultRecord record;
  yard::Options options;
  options.result = &record;
  scale_heads.with(options)(out, x, 2.0f).or_throw();
  std::printf("%ld ns before, %ld ns in, %ld ns after the kernel\n", long(record.pre_ns),
              long(record.run_ns), long(record.post_ns));
  // [/call]
  CHECK(to[0] == 3.0f && to.back() == 3.0f && record.pre_ns > 0 && record.post_ns > 0);

  const auto explained = yard::explain(scale_heads, out, x, 2.0f).value();
  CHECK(explained.candidates[0].transforms.size() == 2);
  CHECK(explained.to_text().find("transforms: x (permute, ~") != std::string::npos);

  // [forbid]
  const yard::ScopedPolicy no_copies(yard::Scope().transforms(false, "scale_heads"));
  CHECK(scale_heads(out, x, 2.0f).code() == yard::Code::kNoKernel);
  // The memory of these is in the kernel's order already.
  const std::vector<int64_t> shape = {2, 3, 4, 8}, strides = {96, 8, 24, 1};
  const yard::TensorView swapped_out(to.data(), yard::DType::f32, shape, strides);
  const yard::TensorView swapped_x(from.data(), yard::DType::f32, shape, strides);
  CHECK(scale_heads(swapped_out, swapped_x, 2.0f).ok());
  // [/forbid]
}
