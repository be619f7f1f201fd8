// SPDX-License-Identifier: Apache-2.0
// A runtime's part in live control. The process answers on one socket for all of its runtimes, from
// its first call on. A forked child answers on its own socket.
#pragma once

#include <yard/runtime.h>

#include <cstdint>

#include "dispatch/core.h"
#include "rules/rules.h"

namespace yard::inspect {

struct Subject {
  Runtime& runtime;
  detail::Core& core;
  rules::Rules& rules;
  uint64_t id = core.id;
  bool shared = false;
};

// Any thread may call these functions.
class LiveControl {
 public:
  LiveControl(Subject subject, bool allowed);
  ~LiveControl() { allow(false); }
  LiveControl& operator=(LiveControl&&) = delete;

  // Says whether commands may work on the runtime. Unless the process is privileged, it answers
  // from its next call on, until its last runtime ends. After allow(false) returns, no command
  // works on the runtime. Call allow(false) before any other part of the runtime ends.
  void allow(bool on);
  void is_shared();

 private:
  Subject subject_;
};

}  // namespace yard::inspect
