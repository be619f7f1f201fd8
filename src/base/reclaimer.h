// SPDX-License-Identifier: Apache-2.0
// Frees objects that readers may still be using, without waiting for the readers, who announce what
// they use in hazard slots. A writer unlinks an object, retires it, and collects: this frees what
// no slot names, and keeps the rest for the next collection.
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

// An unlinked object. It is freed once no slot holds any of `held_by`: the object itself, and
// others that a reader may hold while it uses the object.
struct Retired {
  void* object = nullptr;
  void (*free)(void*) = nullptr;
  std::vector<const void*> held_by;
  std::unique_ptr<Retired> next = nullptr;  // belongs to the reclaimer
};

// Any thread may call all functions.
class Reclaimer {
 public:
  // The first form needs no memory.
  void retire(std::unique_ptr<Retired> made) noexcept;
  void retire(void* object, void (*free)(void*), std::vector<const void*> held_by);

  // Frees objects that are not in use, the oldest first, and those that they retire. Returns how
  // many are left. Runs destructors without a lock. Frees nothing if memory is short.
  size_t collect() noexcept;

  size_t pending() const;

 private:
  mutable Mutex mutex_{Rank::kReclaimer};
  std::unique_ptr<Retired> retired_;  // the latest first
};

Reclaimer& reclaimer() noexcept;
// For a forked child, after abandon_other_threads().
void restart_reclaimer() noexcept;

// A flag that some collect() sets when the calls that are in flight now have ended.
std::shared_ptr<const std::atomic<bool>> when_calls_end();
// Whether the calls that a forked child has inherited have ended. True in any other process.
bool inherited_calls_ended() noexcept;

void barrier_in_all_threads() noexcept;

}  // namespace yard::base
