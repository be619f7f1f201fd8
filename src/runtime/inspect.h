// SPDX-License-Identifier: Apache-2.0
// A runtime's part in live control: the process answers on one socket for all of its runtimes (src/inspect), from the first
// call on. Commands are in inspect_queries.cc and inspect_changes.cc.
#pragma once

#include <yard/runtime.h>

#include <atomic>
#include <memory>
#include <optional>

#include "base/fork.h"
#include "dispatch/core.h"
#include "runtime/reload.h"

namespace yard::runtime {

// What commands work on.
struct Inspected {
  Runtime& runtime;
  detail::Core& core;
  Reloader& reloader;
};

// Any thread may call anything. A forked child answers on a socket of its own from its first call on.
class Inspect {
 public:
  // The process starts to answer with the next call, unless it is privileged or not `allowed`.
  Inspect(Inspected subject, bool allowed);
  ~Inspect() { end(); }
  Inspect(const Inspect&) = delete;
  Inspect& operator=(const Inspect&) = delete;

  // No command runs when this returns, and none will. With the last runtime the socket ends. Before any other part does.
  void end();

  // Runtime::shared(). Before its first call.
  void is_shared() noexcept { shared_.store(true, std::memory_order_relaxed); }
  // What the settings and the environment say now.
  void allow(bool on);

  // What the process knows of a runtime that answers.
  struct Entry;

 private:
  void join();
  void leave();

  const Inspected subject_;
  const uint64_t id_;
  std::atomic<bool> shared_{false}, allowed_;
  std::optional<base::FirstUse> first_use_;  // last: it uses the rest
};

}  // namespace yard::runtime
