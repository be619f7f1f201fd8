// SPDX-License-Identifier: Apache-2.0
// Storing call memos (yard/detail/memo.h).
#pragma once

#include <yard/detail/memo.h>

#include "base/thread_record.h"
#include "dispatch/entry.h"

namespace yard::dispatch {

// CallMemo::words holds, in this order:
// - for each tensor, in a typed call: the two words of its TensorView::Form, 0 if it is absent; in a packed one six:
//   device; rank and dtype; of its sizes and strides the first and the last of each (see is_usual() in
//   dispatch/packed_memo.h) or the first four, 0 where the rank leaves them open or strides are null
// - for each pair of tensors of which one is written: `low` and `width`. The second address minus the first (in a packed
//   call the written one), minus `low`, must be at most `width` (unsigned). This covers tensors that are apart, in-place
//   calls and interleaved slices of one buffer.
// - with kScalars, for each integer, number and boolean: its payload
// - with kLong: in a typed call, where some form is inexact, device, rank and dtype, sizes and strides of every tensor;
//   in a packed one the sizes and strides beyond the first four
// Tensors are all tensor parameters of a typed call, in order; those given, in a packed one.
//
// A memo may also stand for a range of forms of typed calls that differ in the first size of some tensors: a sequence that
// grows. Then `words` holds four for each tensor: its form, without the first size if that varies; the bytes it covers for
// each unit of that size, and beyond these.
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
