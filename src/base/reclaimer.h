// SPDX-License-Identifier: Apache-2.0
// Frees objects that readers may still be using, without waiting for the readers, who announce
// these objects in hazard slots. A writer unlinks an object, retires it, and collects. This frees
// the objects that no slot names, and keeps the others for the next collection.
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
  std::unique_ptr<Retired> next = nullptr;  // used by the reclaimer
};

// All functions are thread-safe.
class Reclaimer {
 public:
  // This form needs no memory.
  void retire(std::unique_ptr<Retired> made) noexcept;
  void retire(void* object, void (*free)(void*), std::vector<const void*> held_by);

  // Frees objects that are not in use, the oldest first, and objects that these retire. Returns how
  // many are left. Runs destructors without a lock. Frees nothing if memory runs out.
  size_t collect() noexcept;

  size_t pending() const;

 private:
  mutable Mutex mutex_{Rank::kReclaimer};
  std::unique_ptr<Retired> retired_;  // latest first
};

Reclaimer& reclaimer() noexcept;
// A forked child calls this after abandon_other_threads().
void restart_reclaimer() noexcept;

// Returns a flag that some collect() sets when the calls that are in flight now have ended.
std::shared_ptr<const std::atomic<bool>> when_calls_end();
// Returns whether the calls that a forked child has inherited have ended, or true elsewhere.
bool inherited_calls_ended() noexcept;

void barrier_in_all_threads() noexcept;

}  // namespace yard::base
