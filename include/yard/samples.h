// SPDX-License-Identifier: Apache-2.0
// Sample calls of a dispatched function, by which its verifiers are checked (yard verify, yard/verify.h). Standalone.
//
// The function that makes them hands each call's arguments on, and owns what they point to:
//
//   void norm_samples(const yard::SampleCalls<float(const Norm&, float)>& call) {
//     std::vector<float> x(4 * 64), out(x.size());
//     call(Norm{x.data(), out.data(), 4, 64, DType::kF32}, 1e-6f);
//     call(Norm{x.data(), out.data(), 4, 64, DType::kBF16}, 1e-6f);
//   }
//
// Verifiers are asked about them, several times and on several threads; nothing is run. Take calls that reach every
// branch: what is not tried is not checked. Verifiers are held to leave alone what the arguments hold as far as their
// types tell; for a class with pointers a function yard_visit() says what belongs to it (yard/detail/function_visit.h).
#pragma once

#include <tuple>
#include <type_traits>

namespace yard {

template <class Signature>
class SampleCalls;

template <class R, class... A>
class SampleCalls<R(A...)> {
 public:
  using Arguments = std::tuple<const std::remove_reference_t<A>&...>;

  // One sample. Returns when it has been checked.
  void operator()(const std::remove_reference_t<A>&... args) const {
    take_(to_, Arguments(args...));
  }

  // For whoever checks.
  SampleCalls(void (*take)(void* to, const Arguments&), void* to) noexcept : take_(take), to_(to) {}

 private:
  void (*take_)(void* to, const Arguments&);
  void* to_;
};

}  // namespace yard
