// SPDX-License-Identifier: Apache-2.0
// Calls that are compiled twice, with and without exceptions, and linked into one program.
#pragma once

#include <yard/yard.h>

#include <vector>

namespace yard::testing {

inline constexpr Op<void(Out, In, double)> scale{"mixed_scale"};
using BoundScale = Bound<Out, In, double>;
using FrozenScale = Frozen<Out, In, double>;

struct OwnTensor {
  std::vector<float> data;
  std::vector<int64_t> sizes;
};
inline TensorView yard_view(const OwnTensor& t) {
  return TensorView(t.data.data(), DType::f32, t.sizes);
}

// An argument that must be destroyed even if an exception passes.
struct Counted {
  static inline int alive = 0;
  Counted() { ++alive; }
  Counted(const Counted&) { ++alive; }
  ~Counted() { --alive; }
};
struct BadWidth {};
[[noreturn]] void throw_bad_width();

inline const auto twice = detail::Declared{"mixed", "twice"} << [](int64_t x) { return 2 * x; };
inline const Function<int64_t(int64_t)> chain("mixed", "chain", [](int64_t x) { return 2 * x; },
                                              {.selection = Selection::kActive});
inline const auto width = detail::Declared{"mixed", "width"} << [](Counted, int64_t x) {
  if (x < 0) throw_bad_width();
  return x;
};

struct Calls {
  Status (*typed)(Out, In, double by);
  Status (*own)(const OwnTensor& out, const OwnTensor& x, double by);
  Status (*bound)(const BoundScale&, Out, In, double by);
  Status (*frozen)(const FrozenScale&, Out, In, double by);
  Result<BoundScale> (*bind)(const TensorView& out, const TensorView& x);
  int64_t (*twice)(int64_t);
  int64_t (*chain)(int64_t);
  int64_t (*width)(int64_t);
  void (*or_throw)(const Status&);
  int (*value)(const Result<int>&);
};
extern const Calls kWithExceptions, kWithoutExceptions;

}  // namespace yard::testing
