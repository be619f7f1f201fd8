// SPDX-License-Identifier: Apache-2.0
// Status and Result: how every function of Switchyard says what went wrong.
//
// A Status is one pointer: null when all is well, so returning success costs a register. A failure
// carries a code, the class that decides what happens next, a message, and notes added on the way up.
// Failing allocates; succeeding never does. Values are independent of each other and of any thread.
//
//   yard::Status s = rms_norm(out, x, weight, 1e-6f);
//   if (!s.ok()) std::puts(s.to_string().c_str());
//   rms_norm(out, x, weight, 1e-6f).or_throw();      // the throwing form: yard::Error
#pragma once

#include <yard/plugin.h>

#include <cassert>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if defined(__GNUC__)
#define YARD_API __attribute__((visibility("default")))
#else
#define YARD_API
#endif

namespace yard {

// What the failure means for the caller and for the kernel; the numbers are those of yard_code_t.
enum class ErrorClass : int {
  kOk = YARD_OK,
  kCaller = YARD_CALLER,
  kDeclined = YARD_DECLINED,
  kTransient = YARD_TRANSIENT,
  kFault = YARD_FAULT,
  kDeviceLost = YARD_DEVICE_LOST,
  kFatal = YARD_FATAL,
};

// What exactly went wrong.
enum class Code : int {
  kOk = 0,
  kInvalidArgument,  // the call or the value does not fit
  kParse,            // text that does not follow its grammar
  kUnknownOp,        // no op of that name
  kNotFound,         // no kernel, backend, ... of that name
  kConflict,         // something else has that name already
  kNoKernel,         // no kernel is allowed, able and healthy
  kUnmapped,         // explicit static mode, and the op has no static kernel
  kKernelFailed,     // a kernel ran and failed
  kDeadline,         // the call's deadline has passed
  kWouldDeadlock,    // waiting here would wait for ourselves
  kUnsupported,      // understood, but not offered
  kInternal,         // a defect of Switchyard
};

YARD_API const char* to_string(ErrorClass c) noexcept;
YARD_API const char* to_string(Code c) noexcept;

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  YARD_API Status(Code code, ErrorClass error_class, std::string message);
  // The class that goes with a code by itself: kInvalidArgument is the caller's, and so on.
  YARD_API Status(Code code, std::string message);

  bool ok() const noexcept { return rep_ == nullptr; }
  explicit operator bool() const noexcept { return ok(); }
  Code code() const noexcept { return rep_ ? rep_->code : Code::kOk; }
  ErrorClass error_class() const noexcept { return rep_ ? rep_->error_class : ErrorClass::kOk; }
  // The message without notes; empty when ok.
  std::string_view message() const noexcept {
    return rep_ ? std::string_view(rep_->message) : std::string_view();
  }
  // Code, message and notes, one note a line; "ok" when ok.
  YARD_API std::string to_string() const;
  YARD_API const std::vector<std::string>& notes() const noexcept;

  // Adds what the present level knows ("while loading acme.so"); nothing on success.
  YARD_API Status&& note(std::string text) &&;
  YARD_API Status& note(std::string text) &;

  // Throws yard::Error unless ok.
  void or_throw() const {
    if (rep_) throw_error();
  }

  // For calls whose failure does not matter: says so in the source.
  void ignore() const noexcept {}

  struct Rep {
    Code code;
    ErrorClass error_class;
    std::string message;
    std::vector<std::string> notes;
  };
  // Takes over a representation made elsewhere; null is success.
  static Status adopt(Rep* rep) noexcept {
    Status s;
    s.rep_.reset(rep);
    return s;
  }
  Rep* release() noexcept { return rep_.release(); }

  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  Status(const Status& other) : rep_(other.rep_ ? new Rep(*other.rep_) : nullptr) {}
  Status& operator=(const Status& other) {
    if (this != &other) rep_.reset(other.rep_ ? new Rep(*other.rep_) : nullptr);
    return *this;
  }

 private:
  [[noreturn]] YARD_API void throw_error() const;
  std::unique_ptr<Rep> rep_;
};

// What or_throw() and Result::value() throw.
class YARD_API Error : public std::runtime_error {
 public:
  explicit Error(Status status);
  ~Error() override;
  const Status& status() const noexcept { return status_; }

 private:
  Status status_;
};

// A value, or the reason why there is none.
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

// Leaves the function with the status of `expr` unless it is ok.
#define YARD_RETURN_IF_ERROR(expr)                                 \
  do {                                                             \
    if (::yard::Status yard_s_ = (expr); !yard_s_) return yard_s_; \
  } while (false)

}  // namespace yard
