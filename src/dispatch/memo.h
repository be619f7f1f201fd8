// SPDX-License-Identifier: Apache-2.0
// Storing call memos (yard/detail/memo.h), and finding those of packed calls.
#pragma once

#include <yard/detail/memo.h>

#include "base/thread_record.h"
#include "dispatch/entry.h"

namespace yard::dispatch {

// The hash of a packed call. Its arguments may be anything.
uint64_t packed_hash(const detail::ThreadHead& thread, const detail::Site& site,
                     const yard_value_t* args, uint32_t count) noexcept;
// The memo of a packed call's form, stale or not; null: none.
const detail::CallMemo* find_packed(const detail::ThreadHead& thread, const detail::Site& site,
                                    const yard_value_t* args, uint32_t count,
                                    uint64_t hash) noexcept;

// How the words of a form are laid out: see CallMemo.
enum class FormKind : uint8_t { kTyped, kPacked };

// The thread's memos, made with its first call; null: no memory.
detail::CallMemos* memos_of(base::ThreadRecord& thread) noexcept;

// Whether a form of this hash came not long ago. Only then is it worth remembering: a growing sequence neither pays
// for storing nor evicts what is used.
inline bool seen_before(base::ThreadRecord& thread, uint64_t hash) noexcept {
  if (hash == 0) return false;  // not made: a call that is nested deep, or a thread's first
  detail::CallMemos* memos = thread.memos;
  if (memos == &detail::kNoMemos && (memos = memos_of(thread)) == nullptr) return false;
  const auto tag = static_cast<uint32_t>(hash >> 26) | 1;
  uint32_t(&seen)[detail::CallMemos::kSeenWays] =
      memos->seen[(hash >> 50) % detail::CallMemos::kSeenSets];
  for (const uint32_t s : seen)
    if (s == tag) return true;
  seen[memos->next_victim++ % detail::CallMemos::kSeenWays] = tag;
  return false;
}

// Remembers the form of a call that fits its schema and whose plan was found. `args` are the caller's own. Forms that are
// too large, and those of ops whose choice reads strings, are not remembered.
void remember(base::ThreadRecord& thread, const detail::Site& site, uint64_t hash, FormKind kind,
              const detail::Route& route, const yard_value_t* args);

// In a forked child: what the forking thread remembers is void, as its counters are.
void forget_memos() noexcept;

}  // namespace yard::dispatch
