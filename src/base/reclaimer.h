// SPDX-License-Identifier: Apache-2.0
// Freeing what readers may still be using, without ever waiting for them.
//
// Readers announce what they use in their hazard slots (protect(), below). A writer unlinks an object,
// retires it, and collects: whatever no slot names is freed, the rest stays for the next collection.
// A reader that never ends holds back only the objects it names.
//
//   base::Guard g(thread);
//   const Snapshot* s = g.protect(current);          // s cannot be freed until g moves on or ends
//   ...
//   current.store(next); reclaimer().retire(old, deleter, old); reclaimer().collect();
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fork.h"
#include "base/thread_record.h"

namespace yard::base {

class Reclaimer {
 public:
  // Hands over an unlinked object. It is freed once no slot holds any of `held_by`: the object itself, and
  // whatever else a reader may hold while it uses the object. Any thread.
  void retire(void* object, void (*free)(void*), std::vector<const void*> held_by);

  // Frees what nobody uses; what the freeing retires is looked at too. Returns how much is left.
  // Any thread, also inside a call. Runs the destructors of what it frees, holding no lock.
  size_t collect();

  // How much is waiting.
  size_t pending() const;

 private:
  struct Retired {
    void* object;
    void (*free)(void*);
    std::vector<const void*> held_by;
  };
  mutable std::mutex mutex_;
  std::vector<Retired> retired_;
};

// The process's reclaimer. In a forked child it is a new one: what the old one held is left behind.
Reclaimer& reclaimer() noexcept;
void abandon_reclaimer() noexcept;

// Becomes true, at some collect(), when the calls that are in flight now have ended.
std::shared_ptr<const std::atomic<bool>> when_calls_end();
// In a forked child: whether the calls are over that the forking thread was inside of.
bool inherited_calls_ended() noexcept;

// A full barrier in every running thread of the process.
void barrier_in_all_threads() noexcept;
// Asks the kernel for membarrier (again, in a forked child); readers fence where it refuses.
void register_membarrier() noexcept;
// Tests: readers fence although membarrier works, or not any more.
void force_reader_fences(bool on) noexcept;

}  // namespace yard::base
