// SPDX-License-Identifier: Apache-2.0
// This file is compiled twice. CALLS is the name of the table in each object file.
#include "calls.h"

namespace yard::testing {
namespace {

Status call_typed(Out out, In x, double by) { return scale(out, x, by); }
Status call_own(const OwnTensor& out, const OwnTensor& x, double by) { return scale(out, x, by); }
Status call_bound(const BoundScale& bound, Out out, In x, double by) { return bound(out, x, by); }
Status call_frozen(const FrozenScale& frozen, Out out, In x, double by) {
  return frozen(out, x, by);
}
Result<BoundScale> bind_scale(const TensorView& out, const TensorView& x) {
  return bind(scale, out, x);
}
int64_t call_twice(int64_t x) { return twice(x); }
int64_t call_chain(int64_t x) { return chain(x); }
int64_t call_width(int64_t x) { return width(Counted(), x); }
void or_throw(const Status& status) { status.or_throw(); }
int value(const Result<int>& result) { return result.value(); }

}  // namespace

const Calls CALLS = {call_typed, call_own,   call_bound, call_frozen, bind_scale,
                     call_twice, call_chain, call_width, or_throw,    value};

}  // namespace yard::testing
