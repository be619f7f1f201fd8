// SPDX-License-Identifier: Apache-2.0
// Finds which kernels serve the calls of some code, how long they take and how many bytes they
// move.
//
//   llm::Profile profile;
//   profile.call(rms_norm, h, x, weight, 1e-6f).or_throw();  // instead of rms_norm(...)
//   std::puts(profile.to_text().c_str());
#pragma once

#include <yard/yard.h>

#include <string>
#include <vector>

namespace llm {

// Each call fills in a record (yard/options.h), which costs some hundred nanoseconds. One thread at
// a time may use a profile. It allocates when a kernel serves an op for the first time.
class Profile {
 public:
  struct Entry {
    const char* op;  // the name of the Op
    std::string kernel;
    int64_t calls = 0, ns = 0, bytes = 0;  // ns in the kernel alone; bytes of the tensors
    double ms() const noexcept { return static_cast<double>(ns) / 1e6; }
  };

  // Calls the op and notes which kernel served the call.
  template <class AnyOp, class... A>
  yard::Status call(const AnyOp& op, const A&... a) {
    return call_part(0, op, a...);
  }
  // Like call(), for a call that does not touch `unread` bytes of its tensors, such as the unused
  // part of a cache.
  template <class AnyOp, class... A>
  yard::Status call_part(int64_t unread, const AnyOp& op, const A&... a) {
    options_.result = &record_;
    yard::Status s = op.with(options_)(a...);
    note(op.name(), (bytes_of(a) + ... + 0) - unread);
    return s;
  }
  // Like call(), with options.
  template <class AnyOp, class... A>
  yard::Status call_with(yard::Options with, const AnyOp& op, const A&... a) {
    with.result = &record_;
    yard::Status s = op.with(with)(a...);
    note(op.name(), (bytes_of(a) + ... + 0));
    return s;
  }

  // Returns entries by op and kernel, in the order of their first calls.
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  double ms() const noexcept;
  // Adds the counts of another profile, multiplied by `times`. The factor extrapolates from a
  // sample of the calls.
  void add(const Profile& other, double times = 1);
  // Returns a table, longest times first. `title` heads the first column. With `total_ms`, the
  // table also has shares of the total time and a line for the time outside of kernels. With
  // `copy_rate` in GB/s, it also compares each kernel's rate with a copy.
  std::string to_text(const char* title = "op", double total_ms = 0, double copy_rate = 0) const;

  static int64_t bytes_of(const yard::TensorView& t) noexcept {
    return t.numel() / yard_unit_elements(t.c().dtype) * yard_unit_bytes(t.c().dtype);
  }

 private:
  static int64_t bytes_of(const auto&) noexcept { return 0; }
  void note(const char* op, int64_t bytes);
  Entry& entry(const char* op, const char* kernel);

  yard::ResultRecord record_;
  yard::Options options_;
  std::vector<Entry> entries_;
};

}  // namespace llm
