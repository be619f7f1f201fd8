// SPDX-License-Identifier: Apache-2.0
// Profile: which kernels served the calls of a model, how long they took and how many bytes they moved.
#pragma once

#include <yard/op.h>
#include <yard/options.h>

#include <string>
#include <vector>

namespace llm {

// Belongs to one thread. Calls with a profile cost some hundred nanoseconds more.
class Profile {
 public:
  struct Entry {
    const char* op;
    std::string kernel;
    int64_t calls = 0, ns = 0, bytes = 0;  // ns: in kernels alone
    double ms() const { return static_cast<double>(ns) / 1e6; }
  };

  // Calls the op and notes what served it. `unread`: bytes of the arguments that the call does not touch.
  yard::Status call(int64_t unread, const auto& op, const auto&... a) {
    options_.result = &record_;
    const yard::Status s = op.with(options_)(a...);
    Entry& e = entry(op.name(), record_.kernel);
    ++e.calls, e.ns += record_.run_ns, e.bytes += (bytes_of(a) + ...) - unread;
    return s;
  }
  const std::vector<Entry>& entries() const { return entries_; }
  double ms() const {
    double sum = 0;
    for (const Entry& e : entries_) sum += e.ms();
    return sum;
  }
  // Adds those of another, multiplied: for one that has seen only some of the calls.
  void add(const Profile& other, double times);

  static int64_t bytes_of(const yard::TensorView& t) {
    return t.numel() / yard_unit_elements(t.c().dtype) * yard_unit_bytes(t.c().dtype);
  }

 private:
  static int64_t bytes_of(const auto&) { return 0; }
  Entry& entry(const char* op, const char* kernel);

  yard::ResultRecord record_;
  yard::Options options_;
  std::vector<Entry> entries_;
};

}  // namespace llm
