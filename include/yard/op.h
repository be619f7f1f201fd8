// SPDX-License-Identifier: Apache-2.0
// A typed op is declared with its C++ signature and then called like a function.
//
//   inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};
//   yard::Status s = rms_norm(out, x, weight, 1e-6f);
//   rms_norm.with(options)(out, x, weight, 1e-6f).or_throw();  // options.h
//
// Tensors are TensorViews, or classes with a `yard_view` (tensor.h). Calls go to Runtime::shared()
// or to `on(runtime)`. Any thread may call. A call whose plan is cached allocates nothing and takes
// no lock. Calls fail if the signature does not fit the op's schema.
#pragma once

#include <yard/detail/call.h>

namespace yard {

struct Options;  // options.h
class Runtime;   // runtime.h

namespace detail {

// Returns the site on `runtime`, by default on the shared one, or null and the reason in `why`.
YARD_API Site* attach(Runtime* runtime, const char* name, const char* letters, Status* why);
YARD_API Status::Rep* dispatch_with(Site* site, const yard_value_t* args, const Options& options);

template <size_t kCount, class... A>
concept HasForeignTensor = sizeof...(A) == kCount && (TensorLike<A> || ...);

}  // namespace detail

// An op with options, or on another runtime. Borrows the options.
template <class Signature>
class OpOn;
template <class... P>
class OpOn<void(P...)> {
 public:
  OpOn(detail::Site* site, Status why, const Options* options) noexcept
      : site_(site), why_(std::move(why)), options_(options) {}
  YARD_MODE_TAG Status operator()(P... p) const {
    if (site_ == nullptr) return why_;
    if (options_ == nullptr) return Status::adopt(detail::call_typed_op<P...>(site_, p...));
    const yard_value_t args[detail::kCells<P...>] = {detail::Param<P>::pack(p)...};
    return Status::adopt(detail::dispatch_with(site_, args, *options_));
  }
  template <class... A>
  requires detail::HasForeignTensor<sizeof...(P), A...> YARD_MODE_TAG Status
  operator()(const A&... a) const {
    return (*this)(detail::as_argument(a)...);
  }
  OpOn with(const Options& options) const { return OpOn(site_, why_, &options); }
  detail::Site* site() const noexcept { return site_; }
  // For handles, which take no options. Returns null and sets `why` on failure.
  detail::Site* attached(Status* why) const {
    if (site_ != nullptr && options_ == nullptr) return site_;
    *why = site_ == nullptr ? why_ : Status(Code::kInvalidArgument, "a handle takes no options");
    return nullptr;
  }

 private:
  detail::Site* site_;
  Status why_;
  const Options* options_;
};

template <class Signature>
class Op;
template <class... P>
class Op<void(P...)> {
 public:
  static_assert(sizeof...(P) <= YARD_MAX_ARGS, "more parameters than an op may have");
  explicit constexpr Op(const char* name) noexcept : name_(name) {}

  [[nodiscard]] YARD_MODE_TAG Status operator()(P... p) const {
    detail::Site* site = site_.load(detail::kFollow);
    if (site == nullptr) [[unlikely]] {
      Status why;
      if ((site = attached(&why)) == nullptr) return why;
    }
    return Status::adopt(detail::call_typed_op<P...>(site, p...));
  }
  template <class... A>
  requires detail::HasForeignTensor<sizeof...(P), A...>
  [[nodiscard]] YARD_MODE_TAG Status operator()(const A&... a) const {
    detail::Site* const site = site_.load(detail::kFollow);
    if (site == nullptr) [[unlikely]]
      return (*this)(detail::as_argument(a)...);
    return Status::adopt(detail::call_own_tensors<P...>(site, a...));
  }

  // `options` must outlive the result.
  OpOn<void(P...)> with(const Options& options) const {
    Status why;
    detail::Site* site = attached(&why);
    return {site, std::move(why), &options};
  }
  // `runtime` must outlive the result.
  OpOn<void(P...)> on(Runtime& runtime) const {
    Status why;
    detail::Site* site = detail::attach(&runtime, name_, detail::kLetters<P...>, &why);
    return {site, std::move(why), nullptr};
  }

  const char* name() const noexcept { return name_; }

  detail::Site* attached(Status* why) const {
    detail::Site* site = site_.load(std::memory_order_acquire);
    if (site != nullptr) return site;
    site = detail::attach(nullptr, name_, detail::kLetters<P...>, why);
    if (site != nullptr) site_.store(site, std::memory_order_release);
    return site;
  }

 private:
  const char* name_;
  mutable std::atomic<detail::Site*> site_{nullptr};
};

}  // namespace yard
