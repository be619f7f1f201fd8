// SPDX-License-Identifier: Apache-2.0
// Result: a value, or the Status that tells why there is none.
//
//   yard::Result<yard::Listing> r = find();
//   if (!r.ok()) return std::move(r).status();
//   use(*r);                       // value() throws yard::Error instead
#pragma once

#include <yard/status.h>

#include <cassert>
#include <optional>
#include <utility>

namespace yard {

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {  // NOLINT
    assert(!status_.ok() && "a Result made from a Status needs a failure");
  }

  bool ok() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  const Status& status() const& noexcept { return status_; }
  Status&& status() && noexcept { return std::move(status_); }

  // Throws yard::Error unless ok.
  T& value() & { return check(), *value_; }
  const T& value() const& { return check(), *value_; }
  T&& value() && { return check(), std::move(*value_); }

  // Only when ok().
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T&& operator*() && noexcept { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

 private:
  void check() const {
    if (!value_) status_.or_throw();
  }
  std::optional<T> value_;
  Status status_;
};

}  // namespace yard
