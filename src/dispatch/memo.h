// SPDX-License-Identifier: Apache-2.0
// Finding and storing call memos (yard/detail/memo.h) for calls that are not inlined: typed calls without a memo at its
// home, packed calls and calls by name. All of them share the memos of an op.
#pragma once

#include "base/reclaimer.h"
#include "dispatch/form.h"
#include "dispatch/snapshot.h"

namespace yard::dispatch {

// Returns the thread's memo of a call, which may be stale, or null. This one is for memos that are not at their home, and
// now and then moves one there.
const detail::CallMemo* find_away(const detail::ThreadHead& thread, const detail::Site& site,
                                  const CallForm& form, const Cells& cells) noexcept;
[[gnu::always_inline]] inline const detail::CallMemo* find(const detail::ThreadHead& thread,
                                                           const detail::Site& site,
                                                           const CallForm& form,
                                                           const Cells& cells) noexcept {
  const detail::CallMemo* home = thread.memos->of + detail::CallMemos::home(form.hash);
  asm("" : "+r"(home));  // or g++ computes the address again for every use
  if (form.is_of(*home, thread, site, cells)) [[likely]]
    return home;
  return find_away(thread, site, form, cells);
}

// Whether the form was seen lately. Makes the thread's memos if there are none yet.
bool seen_before(base::ThreadRecord& thread, const CallForm& form) noexcept;

// Remembers the form of a call that fits its schema and whose plan was found. Forms that are too large, and those of ops
// whose choice reads strings, are not remembered.
void remember(base::ThreadRecord& thread, const detail::Site& site, const CallForm& form,
              const detail::Route& route, const Cells& cells);

// Drops the memos of this thread: a forked child replaces the counters that they point to.
void forget_memos() noexcept;

}  // namespace yard::dispatch
