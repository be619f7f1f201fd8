// SPDX-License-Identifier: Apache-2.0
// A thread that works behind the program's back: it takes no signals, whoever stops it can wait for its end,
// and none is left running when the process ends.
#pragma once

#include <yard/result.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace yard::base {

class Background {
 public:
  // `body` runs on a thread of its own; `halt`, from any thread and perhaps several times, makes it return soon.
  // Both live until the thread has ended. What body throws ends the thread.
  static Result<std::shared_ptr<Background>> start(const char* name, std::function<void()> body,
                                                   std::function<void()> halt);

  void halt() const { halt_(); }
  // Whether the calling thread is this one.
  bool here() const noexcept;
  // Returns when the body has; at once on the thread itself.
  void wait();

 private:
  explicit Background(std::function<void()> halt) : halt_(std::move(halt)) {}
  static void at_exit();

  const std::function<void()> halt_;
  std::mutex lock_;
  std::condition_variable ended_;
  bool done_ = false;
};

}  // namespace yard::base
