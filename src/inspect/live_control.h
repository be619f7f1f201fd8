// SPDX-License-Identifier: Apache-2.0
// A runtime's part in live control. The process answers on one socket for all of its runtimes, from its first call on. A
// forked child answers on a socket of its own.
#pragma once

#include <yard/runtime.h>

#include <cstdint>

#include "dispatch/core.h"
#include "rules/rules.h"

namespace yard::inspect {

// A runtime and its parts, on which commands work.
struct Subject {
  Runtime& runtime;
  detail::Core& core;
  rules::Rules& rules;
  uint64_t id = core.id;
  bool shared = false;  // Runtime::shared()
};

// Any thread may call these functions.
class LiveControl {
 public:
  LiveControl(Subject subject, bool allowed);
  ~LiveControl() { allow(false); }
  LiveControl& operator=(LiveControl&&) = delete;

  // Says whether commands may work on the runtime. The process answers from its next call on, unless it is privileged, until
  // its last runtime ends. When allow(false) returns, no command works on the runtime, and none will: call it before any other
  // part of the runtime ends.
  void allow(bool on);
  // Says that the runtime is Runtime::shared().
  void is_shared();

 private:
  Subject subject_;
};

}  // namespace yard::inspect
