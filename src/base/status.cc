// SPDX-License-Identifier: Apache-2.0
// Status: names, classes and the text people read.
#include <yard/status.h>

#include <iterator>
#include <vector>

namespace yard {
namespace {

ErrorClass class_of(Code code) noexcept {
  switch (code) {
    case Code::kOk: return ErrorClass::kOk;
    case Code::kKernelFailed: return ErrorClass::kFault;
    case Code::kDeadline: return ErrorClass::kTransient;
    case Code::kNoKernel: return ErrorClass::kDeclined;
    case Code::kInternal: return ErrorClass::kFatal;
    default: return ErrorClass::kCaller;
  }
}

}  // namespace

struct Status::Rep {
  Code code;
  ErrorClass error_class;
  std::string message;
  std::vector<std::string> notes;
};

Status::Rep* Status::copy(const Rep& rep) { return new Rep(rep); }
void Status::destroy(Rep* rep) noexcept { delete rep; }

Code Status::code() const noexcept { return rep_ != nullptr ? rep_->code : Code::kOk; }
ErrorClass Status::error_class() const noexcept {
  return rep_ != nullptr ? rep_->error_class : ErrorClass::kOk;
}
std::string_view Status::message() const noexcept {
  return rep_ != nullptr ? std::string_view(rep_->message) : std::string_view();
}
std::span<const std::string> Status::notes() const noexcept {
  return rep_ != nullptr ? std::span<const std::string>(rep_->notes)
                         : std::span<const std::string>();
}

const char* to_string(ErrorClass c) noexcept {
  static constexpr const char* kNames[] = {"ok",    "caller",      "declined", "transient",
                                           "fault", "device_lost", "fatal"};
  const auto i = static_cast<size_t>(c);
  return i < std::size(kNames) ? kNames[i] : "?";
}

const char* to_string(Code c) noexcept {
  static constexpr const char* kNames[] = {"ok",
                                           "invalid_argument",
                                           "parse_error",
                                           "unknown_op",
                                           "not_found",
                                           "conflict",
                                           "no_kernel",
                                           "unmapped",
                                           "kernel_failed",
                                           "deadline_exceeded",
                                           "would_deadlock",
                                           "unsupported",
                                           "internal"};
  const auto i = static_cast<size_t>(c);
  return i < std::size(kNames) ? kNames[i] : "?";
}

Status::Status(Code code, ErrorClass error_class, std::string message)
    : rep_(new Rep{code, error_class, std::move(message), {}}) {}

Status::Status(Code code, std::string message) : Status(code, class_of(code), std::move(message)) {}

std::string Status::to_string() const {
  if (ok()) return "ok";
  std::string text = std::string(yard::to_string(rep_->code)) + ": " + rep_->message;
  for (const std::string& n : rep_->notes) text += "\n  " + n;
  return text;
}

Status&& Status::note(std::string text) && {
  note(std::move(text));
  return std::move(*this);
}

Status& Status::note(std::string text) & {
  if (rep_ != nullptr) rep_->notes.push_back(std::move(text));
  return *this;
}

void Status::throw_error() const { throw Error(*this); }

Error::Error(Status status) : std::runtime_error(status.to_string()), status_(std::move(status)) {}
Error::~Error() = default;

}  // namespace yard
