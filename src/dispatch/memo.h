// SPDX-License-Identifier: Apache-2.0
// Storing call memos (yard/detail/memo.h), and finding those of packed calls, whose arguments may be anything.
#pragma once

#include <yard/detail/memo.h>

#include <bit>

#include "base/reclaimer.h"
#include "dispatch/snapshot.h"

namespace yard::dispatch {

// CallMemo::words holds, in this order:
// - for each tensor, in a typed call: the two words of its TensorView::Form, 0 if it is absent; in a packed one six:
//   device; rank and dtype; of its sizes and strides the first and the last of each (see is_usual()) or the first four,
//   0 where the rank leaves them open or strides are null
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

// Remembers a range of forms around that of a typed call, if there is one: they differ in the number of rows only. `args`
// have facts, `given` are the caller's own.
void remember_range(base::ThreadRecord& thread, const detail::Site& site,
                    const detail::Route& route, const yard_value_t* args,
                    const yard_value_t* given);

// In a forked child: drops the memos of the forking thread, whose counters are replaced.
void forget_memos() noexcept;

// ---- Packed calls ----

// Whether a tensor has one or two dimensions and strides, as most do. Its words hold the first and the last of sizes and
// strides, which are the same for a vector.
inline bool is_usual(const yard_tensor_t& t) noexcept {
  return static_cast<uint32_t>(t.ndim) - 1 <= 1 && t.shape != nullptr && t.strides != nullptr;
}
// Bits in which they differ from the words at `w`.
[[gnu::always_inline]] inline uint64_t unlike_usual_dims(const yard_tensor_t& t,
                                                         const uint64_t* w) noexcept {
  const int32_t last = t.ndim - 1;
  return (static_cast<uint64_t>(t.shape[0]) ^ w[0]) |
         (static_cast<uint64_t>(t.shape[last]) ^ w[1]) |
         (static_cast<uint64_t>(t.strides[0]) ^ w[2]) |
         (static_cast<uint64_t>(t.strides[last]) ^ w[3]);
}

[[gnu::always_inline]] inline uint64_t hashed_dims(int64_t first, int64_t last) noexcept {
  return static_cast<uint64_t>(first) + (static_cast<uint64_t>(last) << 20);
}

// Whether the places of tensors i, which is written, and j are compared. Each pair once.
constexpr bool is_pair(uint32_t written, uint32_t i, uint32_t j) noexcept {
  return j != i && (j > i || (written >> j & 1) == 0);
}
// Whether the n tensors at these addresses lie as the words at `w` say.
[[gnu::always_inline]] inline bool same_places(const detail::CallMemo& m, const uint64_t* w,
                                               const uint64_t* at, uint32_t n) noexcept {
  for (uint32_t i = 0; i < n; ++i) {
    if ((m.written >> i & 1) == 0) continue;
    for (uint32_t j = 0; j < n; ++j) {
      if (!is_pair(m.written, i, j)) continue;
      if (at[j] - at[i] - w[0] > w[1]) return false;
      w += 2;
    }
  }
  return true;
}
constexpr uint32_t pairs_of(const detail::CallMemo& m, uint32_t n) noexcept {
  uint32_t count = 0;
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = 0; (m.written >> i & 1) != 0 && j < n; ++j) count += is_pair(m.written, i, j);
  return count;
}

uint64_t packed_hash(const detail::ThreadHead& thread, const detail::Site& site,
                     const yard_value_t* args, uint32_t count) noexcept;
// The memo of a call with this hash, stale or not; null: none.
const detail::CallMemo* find_in_set(const detail::ThreadHead& thread, const detail::Site& site,
                                    const yard_value_t* args, uint32_t count,
                                    uint64_t hash) noexcept;

// The same for calls whose first arguments are usual tensors and whose others are not tensors; all that is known of them
// is in registers. False, without a hash, if they are something else.
template <uint32_t kTensors>
[[gnu::always_inline]] inline bool find_usual(const detail::ThreadHead& thread,
                                              const detail::Site& site, const yard_value_t* args,
                                              uint32_t count, uint64_t& hash,
                                              const detail::CallMemo*& found) noexcept {
  using detail::CallMemo;
  const yard_tensor_t* t[kTensors];
  uint64_t h = 0, dims = 0;
  if (count < kTensors) return false;
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kTensors; ++i) {
    t[i] = args[i].u.tensor;
    if (args[i].tag != YARD_TAG_TENSOR || t[i] == nullptr || !is_usual(*t[i])) return false;
    h ^= detail::hash_part(i, detail::word_at(&t[i]->ndim));
    dims += hashed_dims(t[i]->shape[0], t[i]->shape[t[i]->ndim - 1]);
  }
  hash = detail::hash_end(thread, h ^ detail::hash_begin(site.id, thread.scope, dims));
  const CallMemo* const m =
      thread.memos->find(hash, site.id | CallMemo::kPacked, detail::word_at(&t[0]->device));
  found = nullptr;
  if (m == nullptr || m->scope != thread.scope || m->more != 0 || m->arg_count != count)
    return true;
  // The memo's op may have fewer tensors than the site began with.
  if (m->tags[kTensors - 1] != YARD_TAG_TENSOR) return true;
  for (uint32_t i = kTensors; i < count; ++i)
    if (args[i].tag != m->tags[i] || args[i].tag == YARD_TAG_TENSOR) return true;
  const uint64_t* w = m->words;
  uint64_t at[kTensors], unlike = 0, any_bit = 0;
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kTensors; ++i, w += CallMemo::kPerPackedTensor) {
    if (t[i]->data == nullptr) return true;
    unlike |= (detail::word_at(&t[i]->device) ^ w[0]) | (detail::word_at(&t[i]->ndim) ^ w[1]) |
              unlike_usual_dims(*t[i], w + 2);
    at[i] = detail::address_of(*t[i]);
    any_bit |= at[i];
  }
  if (unlike == 0 && (any_bit & m->zero_bits) == 0 && same_places(*m, w, at, kTensors)) found = m;
  return true;
}

// The memo of a packed call's form, stale or not; null: none.
[[gnu::always_inline]] inline const detail::CallMemo* find_packed(const detail::ThreadHead& thread,
                                                                  const detail::Site& site,
                                                                  const yard_value_t* args,
                                                                  uint32_t count,
                                                                  uint64_t& hash) noexcept {
  const detail::CallMemo* m = nullptr;
  bool hashed = false;
  switch (site.leading.load(std::memory_order_relaxed)) {
    case 1: hashed = find_usual<1>(thread, site, args, count, hash, m); break;
    case 2: hashed = find_usual<2>(thread, site, args, count, hash, m); break;
    case 3: hashed = find_usual<3>(thread, site, args, count, hash, m); break;
    case 4: hashed = find_usual<4>(thread, site, args, count, hash, m); break;
    default: break;
  }
  if (m != nullptr) [[likely]]
    return m;
  if (!hashed) hash = packed_hash(thread, site, args, count);
  return find_in_set(thread, site, args, count, hash);
}

}  // namespace yard::dispatch
