// SPDX-License-Identifier: Apache-2.0
// What a thread called last: the exact form of the last plain call of an op, and the plan it had.
//
// Layers of a model call an op on the same shapes again and again. A call whose tensors have the facts and
// sizes of the one before needs no check of its schema and no key, only its memory looked at. Belongs to
// the thread: nothing here is shared, and a call of another form just takes the longer way.
#pragma once

#include <yard/plugin.h>

#include <cstdint>

#include "base/thread_record.h"
#include "dispatch/entry.h"

namespace yard::dispatch {

struct alignas(64) Recent {
  static constexpr uint32_t kWords = 20;
  uint64_t entry_id = 0;   // 0: nothing yet
  uint64_t evictions = 0;  // of the entry: the plan has not been let go since
  const exec::Plan* plan = nullptr;
  uint32_t misses = 0;     // since it was stored
  uint64_t words[kWords];  // for each tensor its facts, then its sizes

  // The plan, if the call is of that form, has data everywhere, and writes nothing it also reads. The
  // guard must hold `entry`.
  const exec::Plan* match(const Entry& entry, const yard_value_t* args) const noexcept {
    if (entry_id != entry.id() || evictions != entry.evictions()) return nullptr;
    const auto tensors = entry.program().plain_tensors();
    const uint64_t* k = words;
    const op::Program::Range written(*args[tensors[0]].u.tensor);
    for (const uint8_t arg : tensors) {
      const yard_tensor_t& t = *args[arg].u.tensor;
      const uint64_t facts = *k++;
      if (t.facts != facts) return nullptr;
      const int64_t* size = t.shape;
      for (const uint64_t* end = k + ((facts & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT); k != end;
           ++k)
        if (*size++ != static_cast<int64_t>(*k)) return nullptr;
      if (arg != tensors[0] && !written.apart(t)) return nullptr;
    }
    return args[tensors[0]].u.tensor->data != nullptr ? plan : nullptr;
  }

  // Remembers a plain call that was found to fit, with no aliasing, and its plan. Entries whose key reads
  // more than sizes and facts are not remembered.
  // Calls that keep changing their form are remembered only now and then: storing costs more than it saves.
  // `seen` is the entry's count of evictions from before the plan was found.
  void note_miss(const Entry& entry, const yard_value_t* args, const exec::Plan* found,
                 uint64_t seen) noexcept {
    if (entry_id != entry.id() || (++misses & 3) == 0) store(entry, args, found, seen);
  }
  void store(const Entry& entry, const yard_value_t* args, const exec::Plan* found,
             uint64_t seen) noexcept;
};

// A thread's last calls, by op.
struct RecentCalls {
  static constexpr uint32_t kOps = 64;
  Recent by_op[kOps];
};

inline constexpr int kThreadLocal = 2;  // our index in ThreadRecord::locals

// Makes a thread's, with its first call.
RecentCalls& make_recent(base::ThreadRecord& thread);
// The place for an op.
inline Recent& recent(base::ThreadRecord& thread, uint32_t op_index) noexcept {
  auto* calls = static_cast<RecentCalls*>(thread.locals[kThreadLocal]);
  if (calls == nullptr) [[unlikely]]
    calls = &make_recent(thread);
  return calls->by_op[op_index % RecentCalls::kOps];
}

}  // namespace yard::dispatch
