// SPDX-License-Identifier: Apache-2.0
// What a verifier of a dispatched function says, and what it may ask. Standalone but for plugin.h.
//
//   yard::Verdict fits(const Args& a, Mode m) {
//     if (a.head_dim > 256) return yard::Reject("head dimension {0} is above {1}", a.head_dim, 256);
//     return yard::Accept();
//   }
#pragma once

#include <yard/plugin.h>

#include <cstdint>
#include <tuple>
#include <type_traits>

namespace yard {

struct Accept {};

// Why not. The text is a literal, or lives as long: texts are made only if someone asks, the n-th figure stands
// for {n}. Every distinct text is a reason of its own: keep figures out of it.
struct Reject {
  constexpr explicit Reject(const char* why, int64_t a = 0, int64_t b = 0, int64_t c = 0) noexcept
      : text(why), code(YARD_REASON_REFUSED), figures{a, b, c} {}
  // One of the catalogue: docs/reference/reasons.md.
  constexpr explicit Reject(yard_reason_t reason, int64_t a = 0, int64_t b = 0,
                            int64_t c = 0) noexcept
      : text(nullptr),
        code(reason != YARD_REASON_NONE ? reason : YARD_REASON_REFUSED),
        figures{a, b, c} {}
  const char* text;
  int32_t code;
  int64_t figures[3];
};

class Verdict {
 public:
  constexpr Verdict(Accept) noexcept {}  // NOLINT: implicit on purpose, as the next
  constexpr Verdict(const Reject& r) noexcept
      : text_(r.text), code_(r.code), figures_{r.figures[0], r.figures[1], r.figures[2]} {}

  constexpr bool accepted() const noexcept { return code_ == YARD_REASON_NONE; }
  constexpr const char* text() const noexcept { return text_; }
  constexpr int32_t code() const noexcept { return code_; }
  constexpr const int64_t* figures() const noexcept { return figures_; }

 private:
  const char* text_ = nullptr;
  int32_t code_ = YARD_REASON_NONE;
  int64_t figures_[3] = {0, 0, 0};
};

namespace detail {
// How a verifier is given an argument of its function: scalars as they are, everything else where it is.
template <class A>
using VerifyArg =
    std::conditional_t<std::is_scalar_v<std::remove_cvref_t<A>> && !std::is_reference_v<A>, A,
                       const std::remove_reference_t<A>&>;
}  // namespace detail

// What a verifier may ask, beside looking at its arguments: it probes nothing itself. Valid during the call.
class FunctionQuery {
 public:
  FunctionQuery(uint32_t flags, const yard_host_t* host) noexcept : flags_(flags), host_(host) {}
  // As the thread's scope says (yard/policy.h): no gradient will be asked for.
  bool inference() const noexcept { return (flags_ & YARD_CALL_INFERENCE) != 0; }
  bool training() const noexcept { return !inference(); }
  bool deterministic() const noexcept { return (flags_ & YARD_CALL_DETERMINISTIC) != 0; }
  // Features by the names of docs/reference/backends.md; false where nobody knows.
  bool has_feature(const char* name, yard_device_t device = {1, 0}) const noexcept {
    return host_ != nullptr && host_->has_feature != nullptr &&
           host_->has_feature(host_->self, device, name) == 1;
  }
  const char* architecture() const noexcept { return YARD_ARCH_; }

 private:
  uint32_t flags_;
  const yard_host_t* host_;
};

}  // namespace yard

// ---- Samples ----
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
// branch: what is not tried is not checked.

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
