// SPDX-License-Identifier: Apache-2.0
// Storing call memos (yard/detail/memo.h), and finding those of packed calls, whose arguments may be anything.
#pragma once

#include <yard/detail/memo.h>

#include <bit>

#include "base/reclaimer.h"
#include "dispatch/snapshot.h"

namespace yard::dispatch {

// A form is that of a typed call, of a packed one with tensors of views, or of a packed one with any tensors. Calls of
// bound handles have no memo.
enum class FormKind : uint8_t { kTyped, kViews, kPacked, kBound };
// All tensors are those of TensorViews.
constexpr bool has_views(FormKind kind) noexcept {
  return kind == FormKind::kTyped || kind == FormKind::kViews;
}
constexpr bool is_packed(FormKind kind) noexcept {
  return kind == FormKind::kViews || kind == FormKind::kPacked;
}

// A parameter of a typed op: its letter in Site::letters (yard/detail/params.h).
class Letter {
 public:
  explicit Letter(char c) noexcept : c_(c) {}
  bool is_tensor() const noexcept { return lower() == 'r' || is_written(); }
  bool is_written() const noexcept { return lower() == 'w' || lower() == 'm'; }
  // Of its cell in a packed call. `given`: its payload is not 0.
  uint32_t tag(bool given) const noexcept {
    if (is_tensor()) return c_ == lower() || given ? YARD_TAG_TENSOR : YARD_TAG_NONE;
    return c_ == 'b' ? YARD_TAG_BOOL : c_ == 'f' ? YARD_TAG_FLOAT : YARD_TAG_INT;
  }

 private:
  char lower() const noexcept { return static_cast<char>(c_ | 0x20); }
  char c_;
};

// CallMemo::words holds, in this order:
// - for each tensor of a view: the two words of its TensorView::Form, 0 if it is absent; for others (kPacked) six:
//   device; rank and dtype; of its sizes and strides the first and the last of each (PackedTensor) or the first four,
//   0 where the rank leaves them open or strides are null
// - for each pair of tensors of which one is written, in packed calls with few tensors for each pair (is_compared()): `low`
//   and `width`. The second address minus the first, minus `low`, must be at most `width` (unsigned). This covers tensors
//   that are apart, in-place calls and interleaved slices of one buffer; `width` is the largest number where it does not
//   matter.
// - with kScalars, for each integer, number and boolean: its payload
// - with kLong: in a typed call, where some form is inexact, device, rank and dtype, sizes and strides of every tensor;
//   in one of kPacked the sizes and strides beyond the first four
// Tensors are all tensor parameters of a typed call, in order; those given, in a packed one.

inline uint64_t address_of(const yard_tensor_t& t) noexcept {
  return reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
}

// CallMemo::counts of a call: its arguments, and if it is packed and its memo has no `more`, the tensors among them, if these
// come first; else 0.
constexpr uint64_t counts_of(uint32_t args, uint32_t leading) noexcept {
  return args | uint64_t{leading} << 32;
}
inline uint32_t arg_count(const detail::CallMemo& m) noexcept {
  return static_cast<uint32_t>(m.counts);
}

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

// In a forked child: drops the memos of the forking thread, whose counters are replaced.
void forget_memos() noexcept;

// The memo of a typed call with this hash in any place, stale or not; null: none.
const detail::CallMemo* find_typed(const detail::ThreadHead& thread, const detail::Site& site,
                                   const yard_value_t* args, uint64_t hash) noexcept;
// After a hit away from home; now and then the memo is moved there. Returns where it is now.
const detail::CallMemo* note_hit_away(detail::CallMemos& memos, const detail::CallMemo* m) noexcept;

// ---- Packed calls ----

// The memo that is expected for a packed call of a site; may be another's.
[[gnu::always_inline]] inline const detail::CallMemo& expected(const detail::CallMemos& memos,
                                                               uint64_t site, bool views) noexcept {
  const detail::CallMemo* m =
      memos.of + memos.hints[views][site % detail::CallMemos::kHints].expected;
  asm("" : "+r"(m));  // or g++ computes the address again for every use
  return *m;
}
inline void expect(detail::CallMemos& memos, uint64_t site, bool views,
                   const detail::CallMemo* m) noexcept {
  const auto index = static_cast<uint8_t>(m - memos.of);
  detail::CallMemos::Hint& h = memos.hints[views][site % detail::CallMemos::kHints];
  if (h.last == index) h.expected = index;
  h.last = index;
}

// Whether two or four words are those at `w`.
[[gnu::always_inline]] inline bool same_words(uint64_t a, uint64_t b, const uint64_t* w) noexcept {
  return (a == w[0]) & (b == w[1]);
}
[[gnu::always_inline]] inline bool same_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                              const uint64_t* w) noexcept {
#if defined(__aarch64__) && !defined(__clang__)
  bool same;  // one instruction for each; g++ makes two
  asm("cmp %1, %2\n\tccmp %3, %4, #0, eq\n\tccmp %5, %6, #0, eq\n\tccmp %7, %8, #0, eq"
      : "=@cceq"(same)
      : "r"(a), "r"(w[0]), "r"(b), "r"(w[1]), "r"(c), "r"(w[2]), "r"(d), "r"(w[3]));
  return same;
#else
  return ((a ^ w[0]) | (b ^ w[1]) | (c ^ w[2]) | (d ^ w[3])) == 0;
#endif
}

// A tensor of a packed call, of any origin: all its fields are read and compared. Most have one or two dimensions and
// strides; the words of these hold the first and the last of sizes and strides, which are the same for a vector.
struct PackedTensor {
  static constexpr uint64_t kSite = detail::CallMemo::kPacked;
  static constexpr FormKind kKind = FormKind::kPacked;
  static constexpr uint32_t kWords = detail::CallMemo::kPerPackedTensor;

  static bool is_usual(const yard_tensor_t& t) noexcept {
    return static_cast<uint32_t>(t.ndim) - 1 <= 1 && t.shape != nullptr && t.strides != nullptr;
  }
  static uint64_t word(int64_t n) noexcept { return static_cast<uint64_t>(n); }
  [[gnu::always_inline]] static bool is_tensor(const yard_value_t& v) noexcept {
    return (static_cast<uint32_t>(detail::word_at(&v)) == YARD_TAG_TENSOR) &
           (v.u.tensor != nullptr);
  }
  // Whether `v` has the form of a usual tensor with the words at `w`.
  [[gnu::always_inline]] static bool is_like(const yard_value_t& v, const uint64_t* w) noexcept {
    if (!is_tensor(v)) return false;
    const yard_tensor_t& t = *v.u.tensor;
    const uint64_t head = detail::word_at(&t.ndim);  // rank and dtype
    const int64_t *const shape = t.shape, *const strides = t.strides;
    if ((shape == nullptr) | (strides == nullptr) | (t.data == nullptr)) return false;
    if (!same_words(detail::word_at(&t.device), head, w)) return false;
    const size_t last = static_cast<uint32_t>(head) - 1;
    return same_words(word(shape[0]), word(shape[last]), word(strides[0]), word(strides[last]),
                      w + 2);
  }
  static uint64_t address(const yard_tensor_t& t) noexcept { return address_of(t); }

  // For the hash. False if `v` is something else than a usual tensor.
  bool look_at(const yard_value_t& v) noexcept {
    if (!is_tensor(v) || !is_usual(*v.u.tensor)) return false;
    const yard_tensor_t& t = *v.u.tensor;
    head = detail::word_at(&t.ndim), dims = word(t.shape[0]) + (word(t.strides[0]) << 20);
    return true;
  }
  uint64_t head, dims;
};

// A tensor of a packed call that belongs to a TensorView: two words and an address say all, as in typed calls.
struct ViewTensor {
  static constexpr uint64_t kSite = detail::CallMemo::kViews;
  static constexpr FormKind kKind = FormKind::kViews;
  static constexpr uint32_t kWords = detail::CallMemo::kPerTensor;

  [[gnu::always_inline]] static bool is_tensor(const yard_value_t& v) noexcept {
    return detail::word_at(&v) == YARD_TAG_TENSOR;  // with count 0: see Value::cell()
  }
  [[gnu::always_inline]] static bool is_like(const yard_value_t& v, const uint64_t* w) noexcept {
    if (!is_tensor(v)) return false;
    const TensorView::Form& form = TensorView::of(*v.u.tensor).form();
    return same_words(form.head, form.dims, w);
  }
  static uint64_t address(const yard_tensor_t& t) noexcept {
    return reinterpret_cast<uintptr_t>(t.data);
  }

  bool look_at(const yard_value_t& v) noexcept {
    if (!is_tensor(v)) return false;
    const TensorView::Form& form = TensorView::of(*v.u.tensor).form();
    head = form.head, dims = form.dims;
    return form.is_exact();
  }
  uint64_t head, dims;
};

// Of packed calls with few tensors the distances of all pairs are compared, of others those of which one is written.
constexpr uint32_t kAllPairs = 4;
constexpr bool is_compared(uint32_t written, uint32_t n, uint32_t i, uint32_t j) noexcept {
  return n <= kAllPairs || ((written >> i | written >> j) & 1) != 0;
}

// Whether a memo, stale or not, is that of a packed call whose first arguments are tensors of kind T, and whose others are
// not tensors. Calls nothing; arguments may be anything.
template <class T, uint32_t kTensors>
[[gnu::always_inline]] inline bool is_of(const detail::CallMemo& m, uint64_t site, uint64_t scope,
                                         const yard_value_t* args, uint32_t count) noexcept {
  static_assert(kTensors <= kAllPairs);
  if (m.site != site || m.scope != scope) return false;
  if (m.counts != counts_of(count, kTensors)) return false;
  if (count > kTensors) {
    if (args[kTensors].tag != m.tags[kTensors]) return false;
    for (uint32_t i = kTensors + 1; i != count; ++i)
      if (args[i].tag != m.tags[i]) return false;
  }
  const uint64_t* w = m.words;
  uint64_t at[kTensors], any_bit = 0;
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kTensors; ++i, w += T::kWords) {
    if (!T::is_like(args[i], w)) return false;
    at[i] = T::address(*args[i].u.tensor);
    any_bit |= at[i];
  }
  if ((any_bit & m.zero_bits) != 0) return false;
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kTensors; ++i)
#pragma GCC unroll 4
    for (uint32_t j = i + 1; j < kTensors; ++j, w += 2)
      if (at[j] - at[i] - w[0] > w[1]) return false;
  return true;
}

// The hash of such a call; 0 if it is another.
template <class T, uint32_t kTensors>
uint64_t leading_hash(const detail::ThreadHead& thread, const detail::Site& site,
                      const yard_value_t* args, uint32_t count) noexcept {
  if (count < kTensors) return 0;
  T t[kTensors];
  uint64_t h = 0, dims = 0;
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kTensors; ++i) {
    if (!t[i].look_at(args[i])) return 0;
    h ^= detail::hash_part(i, t[i].head);
    dims += t[i].dims;
  }
  if constexpr (kTensors > 1)
    h ^= detail::in_place_part(T::address(*args[0].u.tensor) == T::address(*args[1].u.tensor));
  return detail::hash_end(thread, h ^ detail::hash_begin(site.id, thread.scope, dims));
}
// That of any packed call.
uint64_t packed_hash(const detail::ThreadHead& thread, const detail::Site& site,
                     const yard_value_t* args, uint32_t count) noexcept;

// The memo of a call with this hash in any place, stale or not; null: none. Arguments may be anything. `site`: with
// kPacked or kViews.
const detail::CallMemo* find_in_set(const detail::ThreadHead& thread, uint64_t site,
                                    const yard_value_t* args, uint32_t count,
                                    uint64_t hash) noexcept;

}  // namespace yard::dispatch
