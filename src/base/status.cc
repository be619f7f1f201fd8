// SPDX-License-Identifier: Apache-2.0
// Status: names, classes and the text people read.
#include <pthread.h>
#include <yard/status.h>

#include <cstddef>
#include <iterator>
#include <new>
#include <vector>

namespace yard {

struct Status::Rep {
  Code code;
  ErrorClass error_class;
  std::string message;
  std::vector<std::string> notes;
};

namespace {

ErrorClass class_of(Code code) noexcept {
  switch (code) {
    case Code::kOk: return ErrorClass::kOk;
    case Code::kKernelFailed: return ErrorClass::kFault;
    case Code::kDeadline:
    case Code::kOutOfMemory: return ErrorClass::kTransient;
    case Code::kNoKernel: return ErrorClass::kDeclined;
    case Code::kInternal: return ErrorClass::kFatal;
    default: return ErrorClass::kCaller;
  }
}

// The representation of every out_of_memory(). It is never changed or freed.
alignas(Status::Rep) constinit std::byte g_out_of_memory[sizeof(Status::Rep)]{};

bool is_shared(const Status::Rep* rep) noexcept {
  return static_cast<const void*>(rep) == g_out_of_memory;
}

}  // namespace

Status Status::out_of_memory() noexcept {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] {  // the message fits into the string object
    new (g_out_of_memory) Rep{Code::kOutOfMemory, ErrorClass::kTransient, "out of memory", {}};
  });
  return adopt(reinterpret_cast<Rep*>(g_out_of_memory));
}

Status::Rep* Status::copy(Rep& rep) { return is_shared(&rep) ? &rep : new Rep(rep); }
void Status::destroy(Rep* rep) noexcept {
  if (!is_shared(rep)) delete rep;
}

Code Status::code() const noexcept { return rep_ != nullptr ? rep_->code : Code::kOk; }
ErrorClass Status::error_class() const noexcept {
  return rep_ != nullptr ? rep_->error_class : ErrorClass::kOk;
}
std::string_view Status::message() const noexcept {
  return rep_ != nullptr ? std::string_view(rep_->message) : std::string_view();
}
std::span<const std::string> Status::notes() const noexcept {
  if (rep_ == nullptr) return {};
  return rep_->notes;
}

const char* to_string(ErrorClass c) noexcept {
  static constexpr const char* kNames[] = {"ok",    "caller",      "declined", "transient",
                                           "fault", "device_lost", "fatal"};
  const auto i = static_cast<size_t>(c);
  return i < std::size(kNames) ? kNames[i] : "?";
}

const char* to_string(Code c) noexcept {
  // clang-format off
  static constexpr const char* kNames[] = {
      "ok", "invalid_argument", "parse_error", "unknown_op", "not_found", "conflict", "no_kernel",
      "unmapped", "kernel_failed", "deadline_exceeded", "would_deadlock", "unsupported", "internal",
      "out_of_memory"};
  // clang-format on
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

Status&& Status::note(std::string text) && { return std::move(note(std::move(text))); }

Status& Status::note(std::string text) & {
  if (rep_ == nullptr) return *this;
  try {
    if (is_shared(rep_)) rep_ = new Rep(*rep_);
    rep_->notes.push_back(std::move(text));
  } catch (const std::bad_alloc&) {  // a note matters less than the error itself
  }
  return *this;
}

void Status::throw_error() const { throw Error(*this); }

void Status::end_program() const {
  std::fprintf(stderr, "yard: %s\n", to_string().c_str());
  std::abort();
}

Error::Error(Status status) : std::runtime_error(status.to_string()), status_(std::move(status)) {}
Error::~Error() = default;

}  // namespace yard
