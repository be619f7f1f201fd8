// SPDX-License-Identifier: Apache-2.0
// Typed ops: declare one with its C++ signature, then call it like a function.
//
//   inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};
//   yard::Status s = rms_norm(out, x, weight, 1e-6f);        // chosen per shape class
//   rms_norm.with(options)(out, x, weight, 1e-6f).or_throw();
//
// Calls go to Runtime::shared(); `on(runtime)` gives the same op on another one. Any thread may call. A
// call whose plan is cached allocates nothing and takes no lock. The signature is checked against the
// op's schema at the first call: a wrong one is an error, every time, never undefined behaviour.
#pragma once

#include <yard/detail/call.h>
#include <yard/detail/params.h>

#include <atomic>

namespace yard {

struct Explanation;  // explain.h
struct Options;      // options.h
class Runtime;       // runtime.h
template <class Signature>
class Op;

namespace detail {

// The site for (name, letters) in that runtime, null: in Runtime::shared(). Null and why, if there is none.
YARD_API Site* attach(Runtime* runtime, const char* name, const char* letters, Status* why);
YARD_API Status::Rep* dispatch_with(Site* site, const yard_value_t* args, const Options& options);
// `options` may be null.
YARD_API Result<Explanation> explain_site(Site* site, const yard_value_t* args,
                                          const Options* options);

#if defined(__SANITIZE_THREAD__)
inline constexpr std::memory_order kSiteOrder = std::memory_order_acquire;
#else
inline constexpr std::memory_order kSiteOrder = std::memory_order_relaxed;  // then followed
#endif

}  // namespace detail

// An op with options, or on a runtime of its own. Borrows the options.
template <class Signature>
class OpOn;
template <class... P>
class OpOn<void(P...)> {
 public:
  OpOn(detail::Site* site, Status why, const Options* options) noexcept
      : site_(site), why_(std::move(why)), options_(options) {}
  Status operator()(P... p) const {
    if (site_ == nullptr) return why_;
    if (options_ == nullptr) return Status::adopt(detail::call_typed_op<P...>(site_, p...));
    const yard_value_t args[detail::kCells<P...>] = {detail::Param<P>::pack(p)...};
    return Status::adopt(detail::dispatch_with(site_, args, *options_));
  }
  OpOn with(const Options& options) const { return OpOn(site_, why_, &options); }
  detail::Site* site() const noexcept { return site_; }
  const Status& why() const noexcept { return why_; }
  // For handles, which take no options.
  detail::Site* attached(Status* why) const {
    *why = why_;
    if (site_ != nullptr && options_ == nullptr) return site_;
    if (site_ != nullptr) *why = Status(Code::kInvalidArgument, "a handle takes no options");
    return nullptr;
  }

 private:
  detail::Site* site_;
  Status why_;
  const Options* options_;
};

template <class... P>
class Op<void(P...)> {
 public:
  static_assert(sizeof...(P) <= YARD_MAX_ARGS, "more parameters than an op may have");
  explicit constexpr Op(const char* name) noexcept : name_(name) {}

  [[nodiscard]] Status operator()(P... p) const {
    detail::Site* site = site_.load(detail::kSiteOrder);
    if (site == nullptr) [[unlikely]] {
      Status why;
      if ((site = attached(&why)) == nullptr) return why;
    }
    return Status::adopt(detail::call_typed_op<P...>(site, p...));
  }

  // The same op, called with options; `options` must outlive what is returned.
  OpOn<void(P...)> with(const Options& options) const {
    Status why;
    detail::Site* site = attached(&why);
    return {site, std::move(why), &options};
  }
  // The same op on another runtime, which must outlive what is returned.
  OpOn<void(P...)> on(Runtime& runtime) const {
    Status why;
    detail::Site* site = detail::attach(&runtime, name_, detail::kLetters<P...>, &why);
    return {site, std::move(why), nullptr};
  }

  const char* name() const noexcept { return name_; }

  // The site on the shared runtime; null and why, when the op is unknown or its signature wrong.
  detail::Site* attached(Status* why) const {
    detail::Site* site = site_.load(std::memory_order_acquire);
    if (site == nullptr) {
      site = detail::attach(nullptr, name_, detail::kLetters<P...>, why);
      if (site != nullptr) site_.store(site, std::memory_order_release);
    }
    return site;
  }

 private:
  const char* name_;
  mutable std::atomic<detail::Site*> site_{nullptr};
};

// Why this kernel: asks the selector, runs nothing. Needs explain.h.
template <class... P, class E = Explanation>
Result<E> explain(const Op<void(P...)>& op, std::type_identity_t<P>... p) {
  Status why;
  detail::Site* site = op.attached(&why);
  if (site == nullptr) return why;
  const yard_value_t args[detail::kCells<P...>] = {detail::Param<P>::pack(p)...};
  return detail::explain_site(site, args, nullptr);
}

}  // namespace yard
