// SPDX-License-Identifier: Apache-2.0
// Storing call memos (yard/detail/memo.h).
#pragma once

#include <yard/detail/memo.h>

#include "base/thread_record.h"
#include "dispatch/entry.h"

namespace yard::dispatch {

// How the words of a form are laid out: see CallMemo.
enum class FormKind : uint8_t { kTyped, kPacked, kRange };

// The thread's memos, made with its first call; null: no memory.
detail::CallMemos* memos_of(base::ThreadRecord& thread) noexcept;

// CallMemos::seen_before() for a thread that may have no memos yet.
inline bool seen_before(base::ThreadRecord& thread, uint64_t hash) noexcept {
  if (hash == 0) return false;  // not made: a call that is nested deep, or a thread's first
  detail::CallMemos* memos = thread.memos;
  if (memos == &detail::kNoMemos && (memos = memos_of(thread)) == nullptr) return false;
  return memos->seen_before(hash);
}

// Remembers the form of a call that fits its schema and whose plan was found. `args` are the caller's own. Forms that are
// too large, and those of ops whose choice reads strings, are not remembered.
void remember(base::ThreadRecord& thread, const detail::Site& site, uint64_t hash, FormKind kind,
              const detail::Route& route, const yard_value_t* args);

// Remembers the range of forms that the form of a typed call is in, if there is one: its tensors have rows, of which only
// the number differs. `args` have facts, `given` are the caller's own.
void remember_range(base::ThreadRecord& thread, const detail::Site& site,
                    const detail::Route& route, const yard_value_t* args,
                    const yard_value_t* given);

// In a forked child: what the forking thread remembers is void, as its counters are.
void forget_memos() noexcept;

}  // namespace yard::dispatch
