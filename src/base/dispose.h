// SPDX-License-Identifier: Apache-2.0
// Ending what may take long or hang, such as a library with its stop() and destructors, or a recording with its file. Its
// last owner may be a call, which must not wait for it.
#pragma once

#include <chrono>
#include <string>

namespace yard::base {

class Disposable {
 public:
  // `what`: for the log.
  explicit Disposable(std::string what) : what_(std::move(what)) {}
  virtual ~Disposable() = default;
  Disposable(const Disposable&) = delete;
  Disposable& operator=(const Disposable&) = delete;

 private:
  friend void dispose(Disposable* object) noexcept;
  friend class MayWait;
  std::string what_;
  Disposable* next_ = nullptr;  // of those without a thread
};

// Destroys it on a thread of its own. Where MayWait allows it, waits up to a second for that, and destroys it itself if no
// thread can be had; elsewhere it is then left to the next MayWait. An error is logged if it does not end in 10 s.
void dispose(Disposable* object) noexcept;

// In functions that load, unload, wait and set; not in calls of ops. Any thread.
class MayWait {
 public:
  MayWait() noexcept : MayWait(true) {}
  // False: for its time none is in effect, also if made later.
  explicit MayWait(bool may) noexcept;
  ~MayWait();
  MayWait(const MayWait&) = delete;
  MayWait& operator=(const MayWait&) = delete;

 private:
  const int before_;
};

// Tests: how long until one that hangs is reported.
void report_stuck_after(std::chrono::milliseconds time) noexcept;

}  // namespace yard::base
