// SPDX-License-Identifier: Apache-2.0
// Call memos (yard/detail/memo.h) for calls that are not inlined: typed calls that find no memo at
// its home, packed calls and calls by name. All of them share the memos of an op. The form of a
// call is read and compared inline, because every instruction counts here.
//
// CallMemo::words holds, in this order:
// - for each tensor parameter the two words of its TensorView::Form, or zeros if it is absent
// - for each pair of tensors of which one is written: `low` and `width`. The second address minus
//   the first, minus `low`, must be at most `width` (unsigned). This covers tensors that are apart,
//   in-place calls and interleaved slices of one buffer. `width` is the largest number where the
//   distance does not matter.
// - with kScalars the payload of each integer, number and boolean
// - with kLong, if some form is inexact: device, rank, dtype, sizes and strides of every tensor
#pragma once

#include <yard/detail/memo.h>
#include <yard/plugin.h>

#include "base/reclaimer.h"

namespace yard::dispatch {

using namespace detail;

// The arguments of a call as its caller gave them.
struct Cells {
  static constexpr uint32_t kAllViews = ~uint32_t{0};
  const yard_value_t* at;
  uint32_t count;
  uint32_t views = 0;  // bit n: cell n has a TensorView, whose form is known
};

struct CallForm {
  static constexpr uint32_t kTagBits = 3, kMostCells = 64 / kTagBits;

  // Returns false if no memo can serve the call. Reads no more cells than the op has parameters.
  // `flags` are those that the call's options add.
  bool read(const ThreadHead& thread, const Site& site, const Cells& cells,
            uint32_t flags = 0) noexcept;
  bool is_of(const CallMemo& m, const Site& site, const Cells& cells) const noexcept;

  struct Tensor {
    TensorView::Form form;
    uint64_t address;
    const yard_value_t* cell;  // null if the tensor is absent

    const yard_tensor_t* get() const noexcept { return cell != nullptr ? cell->u.tensor : nullptr; }
  };
  // read() sets all members. They have no initial values, because zeros would be stored first.
  Tensor tensor[kMostCells];  // for each tensor parameter; zeros if it is absent
  uint32_t tensors;           // their number, and in bit 8 + n whether tensor n is written
  uint64_t tags;              // kTagBits for each cell
  uint64_t any_bit;           // all addresses combined with |
  uint64_t scope;             // the number of the scope, with `flags` in higher bits
  uint64_t hash;              // equals TypedForm::hash() if there are no flags

  uint32_t count() const noexcept { return tensors & 0xff; }
  uint32_t written() const noexcept { return tensors >> 8; }
};

inline uint64_t word(int64_t n) noexcept { return static_cast<uint64_t>(n); }

// Makes the form that a view of the tensor would have. Returns false if the tensor is unreadable.
bool any_form(const yard_tensor_t& t, TensorView::Form& to) noexcept;
// Returns the bits of a form for dtype and device, or 0 if they are unusual. The thread remembers
// the last result, because most tensors of a thread have one dtype and device.
uint64_t make_type(CallMemos& memos, const yard_tensor_t& t) noexcept;
// Compares alignments, and the words at `w`, which follow the pairs of tensors.
bool same_more(const CallMemo& m, const CallForm& form, const Cells& cells,
               const uint64_t* w) noexcept;

// Does the work of any_form(), with a fast path for vectors and matrices.
[[gnu::always_inline]] inline bool form_of(CallMemos& memos, const yard_tensor_t& t,
                                           TensorView::Form& to) noexcept {
  using Form = TensorView::Form;
  uint64_t type = memos.last_type;
  if (word_at(&t.device) != memos.last_device ||
      std::bit_cast<uint32_t>(t.dtype) != memos.last_dtype) [[unlikely]]
    type = make_type(memos, t);
  const int64_t *const sizes = t.shape, *const strides = t.strides;
  // Read no sizes of a tensor of rank 0, because its arrays may be empty.
  if (type == 0 || sizes == nullptr || static_cast<uint32_t>(t.ndim) - 1 > 1) [[unlikely]]
    return any_form(t, to);
  const uint64_t first = word(sizes[0]);
  if (t.ndim == 2) {
    const uint64_t row = word(sizes[1]);
    uint64_t by = row, step = 1;
    if (strides != nullptr) by = word(strides[0]), step = word(strides[1]);
    if (((first >> 37) | ((row | by | step) >> 20)) != 0) [[unlikely]]
      return any_form(t, to);
    const uint64_t compact = by == row && step == 1 ? Form::kCompact : 0;
    to.head = (type | uint64_t{2} << Form::kRank | compact) + (first << Form::kFirst);
    to.dims = row | by << 20 | step << 40;
    return true;
  }
  const uint64_t step = strides != nullptr ? word(strides[0]) : 1;
  if (((first >> 37) | (step >> 20)) != 0) [[unlikely]]
    return any_form(t, to);
  const uint64_t compact = step == 1 ? Form::kCompact : 0;
  to.head = (type | uint64_t{1} << Form::kRank | compact) + (first << Form::kFirst);
  to.dims = step;
  return true;
}

// Calls f(i, j) for each pair of tensors of which one is written, in the order of CallMemo::words.
// Stops and returns false when f does.
template <class F>
[[gnu::always_inline]] inline bool each_pair(uint32_t count, uint32_t written, const F& f) {
  const uint32_t all = (1u << count) - 1;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t with = (written >> i & 1) != 0 ? all : written;
    for (uint32_t left = with & ~((2u << i) - 1); left != 0; left &= left - 1)
      if (!f(i, static_cast<uint32_t>(std::countr_zero(left)))) return false;
  }
  return true;
}

[[gnu::always_inline]] inline bool CallForm::read(const ThreadHead& thread, const Site& site,
                                                  const Cells& cells, uint32_t flags) noexcept {
  const uint32_t count = cells.count;
  if (count != site.count.load(std::memory_order_relaxed) || count > kMostCells) return false;
  uint32_t parameters = site.tensors.load(std::memory_order_relaxed), views = cells.views;
  uint64_t all_tags = 0;
  Tensor* next = tensor;
  for (const yard_value_t *v = cells.at, *end = v + count; v != end;
       ++v, parameters >>= 1, views >>= 1) {
    const uint32_t tag = v->tag;
    all_tags = all_tags << kTagBits | tag;
    if ((parameters & 1) == 0 || tag != YARD_TAG_TENSOR) [[unlikely]] {
      if (tag >= YARD_TAG_LIST) return false;
      if (tag == YARD_TAG_STRING && v->u.string == nullptr && v->count > 0) return false;
      if ((parameters & 1) != 0) *next++ = {};  // an absent tensor
      continue;
    }
    const yard_tensor_t* const t = v->u.tensor;
    if (t == nullptr || t->data == nullptr) return false;
    if ((views & 1) != 0)
      next->form = TensorView::of(*t).form();
    else if (!form_of(*thread.memos, *t, next->form))
      return false;
    next->address = reinterpret_cast<uintptr_t>(t->data) + t->byte_offset;
    next->cell = v;
    ++next;
  }
  const auto n = static_cast<uint32_t>(next - tensor);
  const uint32_t writes = site.written.load(std::memory_order_relaxed);
  tensors = n | writes << 8, tags = all_tags;
  // Hash as TypedForm does, from the last tensor to the first. A loop of its own takes fewer
  // instructions, because more values would not fit into registers above.
  uint64_t heads = 0, dims = 0, bits = 0;
  while (next != tensor) {
    --next;
    heads = hash_part(1, heads) ^ next->form.head;
    dims += next->form.dims;
    bits |= next->address;
  }
  any_bit = bits;
  if (n > 1) {
    if ((writes & 1) != 0)
      heads ^= in_place_part(tensor[0].address == tensor[1].address);
    else if (writes != 0)
      heads ^= in_place_part(tensor[0].address == tensor[std::countr_zero(writes)].address);
  }
  scope = thread.scope ^ static_cast<uint64_t>(flags) << 40;
  hash = hash_end(thread, heads ^ hash_begin(site.id, scope, dims));
  return true;
}

[[gnu::always_inline]] inline bool CallForm::is_of(const CallMemo& m, const Site& site,
                                                   const Cells& cells) const noexcept {
  if (m.hash != hash || m.site != site.id || m.scope != scope || m.tags != tags ||
      (any_bit & m.zero_bits) != 0 || m.tensors != tensors)
    return false;
  const uint32_t n = count(), writes = written();
  const uint64_t* w = m.words;
  for (const Tensor *t = tensor, *end = t + n; t != end; ++t, w += 2)
    if (t->form.head != w[0] || t->form.dims != w[1]) return false;
  const auto placed = [&](const Tensor& first, const Tensor& second) {
    w += 2;
    return second.address - first.address - w[-2] <= w[-1];
  };
  if (writes == 1) {  // true for most ops
    for (const Tensor *t = tensor + 1, *end = tensor + n; t < end; ++t)
      if (!placed(tensor[0], *t)) return false;
  } else if (!each_pair(n, writes,
                        [&](uint32_t i, uint32_t j) { return placed(tensor[i], tensor[j]); })) {
    return false;
  }
  return m.more == 0 || same_more(m, *this, cells, w);
}

inline CallMemo* set_of(CallMemos& memos, uint64_t hash) noexcept {
  return memos.of + CallMemos::home(hash) / CallMemos::kWays * CallMemos::kWays;
}
// Finds a memo in the set of its hash, and sometimes moves the memo to its home.
const CallMemo* find_in_set(const ThreadHead& thread, const Site& site, const CallForm& form,
                            const Cells& cells) noexcept;
// Returns the thread's memo of a call, or null. The memo may be stale.
[[gnu::always_inline]] inline const CallMemo* find(const ThreadHead& thread, const Site& site,
                                                   const CallForm& form,
                                                   const Cells& cells) noexcept {
  const CallMemo* home = thread.memos->of + CallMemos::home(form.hash);
  asm("" : "+r"(home));  // keeps g++ from computing the address again for every use
  if (form.is_of(*home, site, cells)) [[likely]]
    return home;
  const CallMemo* const set = set_of(*thread.memos, form.hash);
  for (uint32_t i = 0; i < CallMemos::kWays; ++i)
    if (set[i].hash == form.hash) return find_in_set(thread, site, form, cells);
  return nullptr;
}

// Makes the memos of a thread that has none. Returns false if memory runs out.
bool make_memos(base::ThreadRecord& thread) noexcept;

// Remembers the form of a call that fits its schema and whose plan was found. Does nothing if the
// form is too large or the choice of a kernel reads strings.
void remember(base::ThreadRecord& thread, const Site& site, const CallForm& form,
              const Route& route, const Cells& cells);

// Drops the memos of this thread. A forked child does so, because it replaces their counters.
void forget_memos() noexcept;

}  // namespace yard::dispatch
