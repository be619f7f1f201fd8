// SPDX-License-Identifier: Apache-2.0
// Finding and storing call memos (yard/detail/memo.h) for calls that are not inlined: typed calls without a memo at its
// home, packed calls and calls by name. All of them share the memos of an op.
//
// CallMemo::words holds, in this order:
// - for each tensor parameter the two words of its TensorView::Form, which are 0 if the tensor is absent
// - for each pair of tensors of which one is written: `low` and `width`. The second address minus the first, minus `low`,
//   must be at most `width` (unsigned). This covers tensors that are apart, in-place calls and interleaved slices of one
//   buffer. `width` is the largest number where the distance does not matter.
// - with kScalars the payload of each integer, number and boolean
// - with kLong, where some form is inexact: device, rank and dtype, sizes and strides of every tensor
#pragma once

#include <yard/detail/memo.h>

#include "base/reclaimer.h"
#include "dispatch/snapshot.h"

namespace yard::dispatch {

// The arguments of a call as its caller gave them.
struct Cells {
  static constexpr uint32_t kAllViews = ~uint32_t{0};
  const yard_value_t* at;
  uint32_t count;
  uint32_t views = 0;  // bit n: a tensor in cell n belongs to a TensorView, whose form is known
};

// The form of a call that may have any arguments.
struct CallForm {
  static constexpr uint32_t kTensors = detail::CallMemo::kTensors;
  static constexpr uint32_t kTagBits = 3, kMostCells = 64 / kTagBits;

  // Returns false if no memo can serve the call. Reads no more cells than the op has parameters.
  bool read(const detail::ThreadHead& thread, const detail::Site& site,
            const Cells& cells) noexcept;
  // Whether a memo with this hash, of the same site and scope, is of this form.
  bool is_of(const detail::CallMemo& m, const Cells& cells) const noexcept;

  TensorView::Form form[kTensors];  // of each tensor parameter; 0 if the tensor is absent
  uint64_t address[kTensors];
  const yard_tensor_t* tensor[kTensors];
  uint32_t tensors = 0, written = 0;  // bit n of `written`: tensor n is written
  uint64_t tags = 0;                  // kTagBits for each cell
  uint64_t any_bit = 0;               // of all addresses
  uint64_t hash = 0;                  // as TypedForm::hash() makes it; 0 if read() returned false
};

// Returns the thread's memo of a call, which may be stale, or null. Now and then moves the memo to its home.
const detail::CallMemo* find(const detail::ThreadHead& thread, const detail::Site& site,
                             const CallForm& form, const Cells& cells) noexcept;

// Whether the form was seen lately. Makes the thread's memos if there are none yet.
bool seen_before(base::ThreadRecord& thread, const CallForm& form) noexcept;

// Remembers the form of a call that fits its schema and whose plan was found. Forms that are too large, and those of ops
// whose choice reads strings, are not remembered.
void remember(base::ThreadRecord& thread, const detail::Site& site, const CallForm& form,
              const detail::Route& route, const Cells& cells);

// Drops the memos of this thread: a forked child replaces the counters that they point to.
void forget_memos() noexcept;

}  // namespace yard::dispatch
