// SPDX-License-Identifier: Apache-2.0
// A runtime's part in live control. The process answers on one socket for all of its runtimes, from its first call on.
#pragma once

#include <yard/runtime.h>

#include <atomic>
#include <cstdint>

#include "dispatch/core.h"
#include "rules/rules.h"

namespace yard::inspect {

// What commands work on.
struct Subject {
  Runtime& runtime;
  detail::Core& core;
  rules::Rules& rules;
  uint64_t id = 0;
  bool shared = false;  // Runtime::shared()
};

// Any thread may call these functions. A forked child answers on a socket of its own from its first call on.
class LiveControl {
 public:
  // The process starts to answer with the next call, unless it is privileged or not `allowed`.
  LiveControl(Subject subject, bool allowed);
  ~LiveControl() { allow(false); }
  LiveControl(const LiveControl&) = delete;
  LiveControl& operator=(const LiveControl&) = delete;

  // No command runs on the runtime when this returns, and none will. The socket ends with the last runtime. Call this before
  // any other part of the runtime ends.
  void end() { allow(false); }

  // The runtime is Runtime::shared().
  void is_shared();
  // What the settings and the environment say now.
  void allow(bool on);

  const Subject& subject() const noexcept { return subject_; }

 private:
  void join();
  void leave();

  Subject subject_;
  std::atomic<bool> allowed_{false};
};

}  // namespace yard::inspect
