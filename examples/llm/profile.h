// SPDX-License-Identifier: Apache-2.0
// Which kernels serve the calls of some code, how long they take and how many bytes they move:
//
//   llm::Profile profile;
//   profile.call(rms_norm, h, x, weight, 1e-6f).or_throw();   // instead of rms_norm(h, x, weight, 1e-6f)
//   std::puts(profile.to_text().c_str());
#pragma once

#include <yard/yard.h>

#include <string>
#include <vector>

namespace llm {

// Every call is noted with a record (yard/options.h), which costs some hundred nanoseconds. A profile belongs to one thread
// at a time. It allocates when an op is first served by a kernel.
class Profile {
 public:
  struct Entry {
    const char* op;  // the name that the op was made with
    std::string kernel;
    int64_t calls = 0, ns = 0, bytes = 0;  // ns: in the kernel alone; bytes: of the tensors
    double ms() const noexcept { return static_cast<double>(ns) / 1e6; }
  };

  // Calls the op and notes what served it.
  template <class AnyOp, class... A>
  yard::Status call(const AnyOp& op, const A&... a) {
    return call_part(0, op, a...);
  }
  // The same for a call that does not touch so many bytes of its tensors, such as the unused part of a cache.
  template <class AnyOp, class... A>
  yard::Status call_part(int64_t unread, const AnyOp& op, const A&... a) {
    options_.result = &record_;
    yard::Status s = op.with(options_)(a...);
    note(op.name(), (bytes_of(a) + ... + 0) - unread);
    return s;
  }

  // By op and kernel, in the order of their first calls.
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  double ms() const noexcept;
  // Adds those of another, multiplied: for one that has seen only some of the calls.
  void add(const Profile& other, double times = 1);
  // A table, the longest first. With the time that all took also shares of it and a line for what was outside of kernels; with
  // the rate at which memory is copied, in GB/s, also shares of that. `title` is the head of the first column.
  std::string to_text(const char* title = "op", double total_ms = 0, double copy_rate = 0) const;

  // Of a tensor's elements.
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
