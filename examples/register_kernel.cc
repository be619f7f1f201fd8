// SPDX-License-Identifier: Apache-2.0
// Ops and kernels registered from code, replaced and removed while the program runs.
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"

// [kernel]
// A kernel is a plain function. It sees only calls that fit the op's schema and its own limits.
void scale_rows(yard::plugin::Call, yard::plugin::Tensor out, yard::plugin::Tensor x, double by) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data<float>()[i] = x.data<float>()[i] * float(by);
}
// [/kernel]

int32_t declines(yard::plugin::Call call, yard::plugin::Tensor, yard::plugin::Tensor, double) {
  return call.fail(YARD_DECLINED, "not today");
}

int main() {
  yard::Runtime& runtime = yard::Runtime::shared();
  // [register]
  namespace plugin = yard::plugin;
  const yard_limit_t limits[] = {plugin::dtypes({YARD_F32}), plugin::compact()};
  yard::Changes changes;
  changes.add_op(plugin::Op("scale(out!: T[*rows, d], x: T[*rows, d], by: float = 1.0)").d)
      .add_backend(plugin::Backend("mine").d)
      .add_kernel(
          plugin::Kernel::of<scale_rows>("scale", "default.rows").backend("mine").limits(limits).d);
  runtime.apply(std::move(changes)).or_throw();  // all of it or nothing, seen by the next call
  // [/register]

  std::vector<float> x(2 * 3, 2.0f), out(2 * 3);
  const yard::TensorView tx = yard::view(x, {2, 3}), tout = yard::view(out, {2, 3});
  yard::call("scale", {tout, tx, {"by", 4.0}}).or_throw();
  CHECK(near(out[5], 8));

  // A kernel that comes first and declines: the next one runs.
  yard::Changes first;
  first.add_kernel(
      plugin::Kernel::of<declines>("scale", "default.first").backend("mine").priority(200).d);
  runtime.apply(std::move(first)).or_throw();
  yard::ResultRecord record;
  yard::Options options;
  options.result = &record;
  yard::call("scale", {tout, tx, {"by", 4.0}}, options).or_throw();
  CHECK(record.attempts == 2 && std::string(record.kernel) == "default.rows");

  // [conflict]
  yard::Changes other;
  other.add_kernel(plugin::Kernel::of<declines>("scale", "default.rows").backend("mine").d);
  CHECK(runtime.apply(std::move(other)).code() == yard::Code::kConflict);
  // [/conflict]

  // [remove]
  yard::Changes removal;
  removal.remove_kernel("scale", "default.first");
  yard::Ticket ticket = runtime.apply_with_ticket(std::move(removal)).value();
  ticket.wait().or_throw();  // no call uses it any more
  // [/remove]
  CHECK(yard::resolve("scale(f32[2,3])").value().kernel == "default.rows");
}
