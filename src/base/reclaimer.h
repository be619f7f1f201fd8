// SPDX-License-Identifier: Apache-2.0
// Frees what readers may still be using, without ever waiting for them. Readers announce what they
// use in their hazard slots. A writer unlinks an object, retires it, and collects: what no slot
// names is freed, and the rest stays for the next collection.
//
//   base::Guard g(thread);
//   const Snapshot* s = g.protect(current);          // s cannot be freed until g moves on or ends
//   ...
//   current.store(next); reclaimer().retire(old, deleter, old); reclaimer().collect();
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "base/thread_record.h"

namespace yard::base {

// An unlinked object. It is freed once no slot holds any of `held_by`: the object itself, and what
// else a reader may hold while it uses the object.
struct Retired {
  void* object = nullptr;
  void (*free)(void*) = nullptr;
  std::vector<const void*> held_by;
  std::unique_ptr<Retired> next = nullptr;  // the reclaimer's
};

// Any thread may call all functions.
class Reclaimer {
 public:
  // The first form is for objects that are retired where there may be no memory.
  void retire(std::unique_ptr<Retired> made) noexcept;
  void retire(void* object, void (*free)(void*), std::vector<const void*> held_by);

  // Frees what is not in use, the oldest first, and what that retires. Returns how much is left.
  // Runs destructors without a lock. If there is no memory it frees nothing, and a later call does.
  size_t collect() noexcept;

  size_t pending() const;

 private:
  mutable Mutex mutex_{Rank::kReclaimer};
  std::unique_ptr<Retired> retired_;  // the latest first
  size_t count_ = 0;                  // of these
};

Reclaimer& reclaimer() noexcept;
// In a forked child, after abandon_other_threads().
void restart_reclaimer() noexcept;

// Becomes true, at some collect(), when the calls that are in flight now have ended.
std::shared_ptr<const std::atomic<bool>> when_calls_end();
// Whether the calls that a forked child has inherited have ended. True in any other process.
bool inherited_calls_ended() noexcept;

void barrier_in_all_threads() noexcept;

}  // namespace yard::base
