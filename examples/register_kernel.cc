// SPDX-License-Identifier: Apache-2.0
// Registers ops and kernels from code, and replaces and removes them while the program runs.
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <span>
#include <string>
#include <vector>

#include "check.h"

// [kernel]
// A kernel is a plain function. It sees only calls that fit the op's schema and its own limits.
void scale_rows(yard::plugin::Call, yard::plugin::Tensor out, yard::plugin::Tensor x, double by) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = x.data<float>()[i] * float(by);
}
// [/kernel]

// [workspace]
// Any strides, and a row of workspace: `rows()` and `row()` go over all but the last dimension.
void centre_rows(yard::plugin::Call call, yard::plugin::Tensor out, yard::plugin::Tensor x) {
  const std::span<double> row = call.workspace<double>();  // its size is declared below
  for (int64_t r = 0; r < x.rows(); ++r) {
    double sum = 0;
    for (int64_t i = 0; i < x.size(-1); ++i) sum += row[i] = x.row<float>(r)[i * x.stride(-1)];
    for (int64_t i = 0; i < x.size(-1); ++i)
      out.row<float>(r)[i * out.stride(-1)] = float(row[i] - sum / double(x.size(-1)));
  }
}
int64_t centre_bytes(yard::plugin::Tensor, yard::plugin::Tensor x) {
  return x.size(-1) * int64_t(sizeof(double));
}
// [/workspace]

inline constexpr yard::Op<void(yard::Out, yard::In)> centre{"centre"};

int32_t declines(yard::plugin::Call call, yard::plugin::Tensor, yard::plugin::Tensor, double) {
  return call.fail(YARD_DECLINED, "not today");
}

int main() {
  yard::Runtime& runtime = yard::Runtime::shared();
  // [register]
  namespace plugin = yard::plugin;
  const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::compact()};
  yard::Changes changes;
  changes.add_op(plugin::OpDef("scale(out!: T[*rows, d], x: T[*rows, d], by: float = 1.0)"))
      .add_kernel(plugin::Kernel::of<scale_rows>("scale", "default.rows").limits(limits));
  runtime.apply(std::move(changes)).or_throw();  // all of it or nothing, seen by the next call
  // [/register]

  std::vector<float> x(2 * 3, 2.0f), out(2 * 3);
  const yard::TensorView tx = yard::view(x, {2, 3}), tout = yard::view(out, {2, 3});
  yard::call("scale", {tout, tx, {"by", 4.0}}).or_throw();
  CHECK(near(out[5], 8));

  // This kernel comes first and declines, so the next one runs.
  yard::Changes first;
  first.add_kernel(plugin::Kernel::of<declines>("scale", "default.first").priority(200));
  runtime.apply(std::move(first)).or_throw();
  yard::ResultRecord record;
  yard::Options options;
  options.result = &record;
  yard::call("scale", {tout, tx, {"by", 4.0}}, options).or_throw();
  CHECK(record.attempts == 2 && std::string(record.kernel) == "default.rows");

  // [conflict]
  yard::Changes other;
  other.add_kernel(plugin::Kernel::of<declines>("scale", "default.rows"));
  CHECK(runtime.apply(std::move(other)).status().code() == yard::Code::kConflict);
  // [/conflict]

  // [remove]
  yard::Changes removal;
  removal.remove_kernel("scale", "default.first");
  yard::Ticket ticket = runtime.apply(std::move(removal)).value();
  ticket.wait().or_throw();  // no call uses it any more
  // [/remove]
  CHECK(yard::resolve("scale(f32[2,3])").value().kernel == "default.rows");
  CHECK(yard::resolve("scale(f32[2,3])").value().backend == "default");

  // [with_workspace]
  const yard_limit_t f32[] = {plugin::dtypes({YARD_F32})};
  yard::Changes more;
  more.add_op(plugin::OpDef("centre(out!: T[*rows, d], x: T[*rows, d])"))
      .add_kernel(plugin::Kernel::of<centre_rows>(centre, "default.rows")  // an Op, or its name
                      .limits(f32)
                      .workspace<centre_bytes>());
  runtime.apply(std::move(more)).or_throw();
  // [/with_workspace]
  const std::vector<float> columns = {1, 3, 2, 2, 3, 1};  // two rows, stored column by column
  const yard::TensorView by_column(columns.data(), yard::DType::f32, {2, 3}, {1, 2});
  centre(tout, by_column).or_throw();
  CHECK(near(out[0], -1) && near(out[1], 0) && near(out[2], 1) && near(out[3], 1));

  // [vendor]
  yard::Changes vendor;
  vendor.add_backend(plugin::Backend("acme").vendor("acme").summary("Acme's kernels"))
      .add_kernel(plugin::Kernel::of<scale_rows>("scale", "vendor.acme")
                      .backend("acme")
                      .kind(YARD_KIND_VENDOR)
                      .priority(160)  // default kernels have 150
                      .limits(limits));
  runtime.apply(std::move(vendor)).or_throw();
  // [/vendor]
  CHECK(yard::resolve("scale(f32[2,3])").value().kernel == "vendor.acme");
}
