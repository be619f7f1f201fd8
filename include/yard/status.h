// SPDX-License-Identifier: Apache-2.0
// Functions of Switchyard report errors as a Status or Result.
//
//   yard::Status s = rms_norm(out, x, weight, 1e-6f);
//   if (!s.ok()) std::puts(s.to_string().c_str());
//   rms_norm(out, x, weight, 1e-6f).or_throw();  // throws yard::Error
//
//   yard::Result<yard::Listing> r = find();  // a value, or the Status that tells why there is none
//   if (!r.ok()) return std::move(r).status();
//
// Success is a null pointer. Headers do not repeat the includes of headers that they include.
#pragma once

#include <yard/abi.h>
#include <yard/detail/exceptions.h>

#include <cassert>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#define YARD_API __attribute__((visibility("default")))

namespace yard {

// The numbers of yard_code_t.
enum class ErrorClass : int { kOk, kCaller, kDeclined, kTransient, kFault, kDeviceLost, kFatal };
static_assert(static_cast<int>(ErrorClass::kFatal) == YARD_FATAL);

enum class Code : int {
  kOk = 0,
  kInvalidArgument,  // a call or a value that is not accepted
  kParse,            // text that does not follow its grammar
  kUnknownOp,        // no op of that name
  kNotFound,         // no kernel, backend, ... of that name
  kConflict,         // the name is in use
  kNoKernel,         // no kernel is allowed, able and healthy
  kUnmapped,         // explicit static mode, and the op has no static kernel
  kKernelFailed,     // a kernel ran and failed
  kDeadline,         // the call's deadline has passed
  kWouldDeadlock,    // the call would wait for itself
  kUnsupported,      // understood, but not offered
  kInternal,         // a defect of Switchyard
  kOutOfMemory,      // memory could not be allocated; nothing was changed
};

YARD_API const char* to_string(ErrorClass c) noexcept;
YARD_API const char* to_string(Code c) noexcept;

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  YARD_API Status(Code code, ErrorClass error_class, std::string message);
  YARD_API Status(Code code, std::string message);  // with the class that belongs to the code
  YARD_API static Status out_of_memory() noexcept;  // allocates nothing

  bool ok() const noexcept { return rep_ == nullptr; }
  explicit operator bool() const noexcept { return ok(); }
  YARD_API Code code() const noexcept;
  YARD_API ErrorClass error_class() const noexcept;
  YARD_API std::string_view message() const noexcept;  // without notes; empty when ok
  YARD_API std::span<const std::string> notes() const noexcept;
  YARD_API std::string to_string() const;  // code, message, and a line for each note

  // Adds context ("while loading acme.so") to a failure.
  YARD_API Status&& note(std::string text) &&;
  YARD_API Status& note(std::string text) &;

  // Throws yard::Error on failure. Builds with -fno-exceptions end the program with the message.
  YARD_MODE_TAG void or_throw() const {
    if (rep_ != nullptr) YARD_EXCEPTIONS ? throw_error() : end_program();
  }
  void ignore() const noexcept {}  // says that a failure does not matter

  struct Rep;  // the library's
  // Takes ownership. Null means success.
  static Status adopt(Rep* rep) noexcept {
    Status s;
    s.rep_ = rep;
    return s;
  }
  Rep* release() noexcept { return std::exchange(rep_, nullptr); }

  Status(Status&& other) noexcept : rep_(other.release()) {}
  Status(const Status& other) : rep_(other.rep_ != nullptr ? copy(*other.rep_) : nullptr) {}
  Status& operator=(Status other) noexcept { return std::swap(rep_, other.rep_), *this; }
  ~Status() {
    if (rep_ != nullptr) [[unlikely]]
      destroy(rep_);
  }

 private:
  YARD_API static Rep* copy(Rep& rep);
  YARD_API static void destroy(Rep* rep) noexcept;
  [[noreturn]] YARD_API void throw_error() const;
  [[noreturn]] YARD_API void end_program() const;
  Rep* rep_ = nullptr;
};

class YARD_API Error : public std::runtime_error {
 public:
  explicit Error(Status status);
  ~Error() override;
  const Status& status() const noexcept { return status_; }

 private:
  Status status_;
};

#define YARD_RETURN_IF_ERROR(expr)                                 \
  do {                                                             \
    if (::yard::Status yard_s_ = (expr); !yard_s_) return yard_s_; \
  } while (false)

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

  // On failure, these do what Status::or_throw() does.
  YARD_MODE_TAG T& value() & { return check(), *value_; }
  YARD_MODE_TAG const T& value() const& { return check(), *value_; }
  YARD_MODE_TAG T&& value() && { return check(), std::move(*value_); }
  YARD_MODE_TAG void or_throw() const { check(); }

  // Call these only when ok().
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T&& operator*() && noexcept { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }

 private:
  YARD_MODE_TAG void check() const {
    if (!value_) status_.or_throw();
  }
  std::optional<T> value_;
  Status status_;
};

}  // namespace yard
