// SPDX-License-Identifier: Apache-2.0
#include "dispatch/memo.h"

#include <yard/detail/call.h>
#include <yard/detail/guard.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <optional>
#include <span>
#include <utility>

namespace yard::dispatch {

using detail::CallMemo;
using detail::CallMemos;
using detail::Route;
using detail::Site;
using detail::word_at;

namespace {

// The n-th of a tensor's sizes and strides.
[[gnu::always_inline]] inline uint64_t dim_word(const yard_tensor_t& t, int32_t n) noexcept {
  if (n < t.ndim) return static_cast<uint64_t>(t.shape[n]);
  return t.strides != nullptr ? static_cast<uint64_t>(t.strides[n - t.ndim]) : 0;
}
// Compares those from the n-th on with the words at `w`. Null if they differ, else past them.
inline const uint64_t* same_dims(const yard_tensor_t& t, int32_t n, const uint64_t* w) noexcept {
  for (; n < 2 * t.ndim; ++n)
    if (dim_word(t, n) != *w++) return nullptr;
  return w;
}

constexpr int kThreadLocal = 2;  // our index in ThreadRecord::locals

// From zeroed pages, which cost nothing until a set is used.
CallMemos* allocate_memos() noexcept {
  constexpr size_t kAlign = alignof(CallMemos);
  auto* memory = static_cast<char*>(std::calloc(1, sizeof(CallMemos) + kAlign));
  if (memory == nullptr) return nullptr;
  const size_t gap = kAlign - reinterpret_cast<uintptr_t>(memory) % kAlign;  // at least 16
  auto* memos = reinterpret_cast<CallMemos*>(memory + gap);
  std::memcpy(memory + gap - sizeof memory, &memory, sizeof memory);
  return memos;
}
void free_memos(void* memos) noexcept {
  char* memory;
  std::memcpy(&memory, static_cast<char*>(memos) - sizeof memory, sizeof memory);
  std::free(memory);
}

}  // namespace

CallMemos* memos_of(base::ThreadRecord& thread) noexcept {
  if (thread.locals[kThreadLocal] == nullptr) {
    CallMemos* const made = allocate_memos();
    if (made == nullptr) return nullptr;
    base::set_thread_exit_hook(kThreadLocal, free_memos);
    thread.locals[kThreadLocal] = made;
    thread.memos = made;
  }
  return thread.memos;
}

namespace {

// The bytes that a tensor covers, relative to its address; nothing: none.
struct Extent {
  int64_t low = 0, high = 0;
};

// False on overflow.
bool extent_of(const yard_tensor_t& of, std::optional<Extent>& to) noexcept {
  const op::ByteTensor addressable(of);
  const yard_tensor_t& t = addressable.get();
  const int64_t bytes = yard_unit_bytes(t.dtype);
  Extent e{0, bytes};
  int64_t compact = bytes;
  for (int32_t i = t.ndim - 1; i >= 0; --i) {
    const int64_t n = t.shape[i];
    if (n == 0) {
      to.reset();
      return true;
    }
    int64_t step = compact, reach;
    if (t.strides != nullptr && __builtin_mul_overflow(t.strides[i], bytes, &step)) return false;
    if (__builtin_mul_overflow(n - 1, step, &reach) ||
        __builtin_add_overflow(reach < 0 ? e.low : e.high, reach, reach < 0 ? &e.low : &e.high) ||
        __builtin_mul_overflow(compact, n, &compact))
      return false;
  }
  constexpr int64_t kMost = int64_t{1} << 61;
  to = e;
  return e.low > -kMost && e.high < kMost;
}

// Writes the words of one form.
class Writer {
 public:
  Writer(CallMemo& memo, FormKind kind) : m_(memo), kind_(kind) {}

  bool put(uint64_t word) noexcept {
    if (used_ == CallMemo::kWords) return false;
    m_.words[used_++] = word;
    return true;
  }

  // `t` may be null in a typed call.
  bool tensor(const yard_tensor_t* t, bool written) noexcept {
    if (count_ == CallMemo::kTensors) return false;
    const uint32_t n = count_++;
    Tensor& s = tensors_[n];
    s = {t, written, t != nullptr ? address_of(*t) : 0, {}};
    if (t == nullptr) return put(0) && put(0);
    if (t->data == nullptr || !extent_of(*t, s.extent)) return false;
    if (written && is_packed(kind_)) m_.written |= static_cast<uint16_t>(1u << n);
    if (kind_ != FormKind::kPacked) {
      const TensorView::Form& form = TensorView::of(*t).form();
      if (!form.is_exact() && kind_ == FormKind::kViews) return false;
      if (!form.is_exact()) m_.more |= CallMemo::kLong;
      return put(form.head) && put(form.dims);
    }
    if (t->strides == nullptr) m_.null_strides |= static_cast<uint16_t>(1u << n);
    if (t->ndim > 2) m_.more |= CallMemo::kLong;
    if (!PackedTensor::is_usual(*t)) m_.more |= CallMemo::kOdd;
    if (!put(word_at(&t->device)) || !put(word_at(&t->ndim))) return false;
    if (PackedTensor::is_usual(*t)) {
      const int32_t last = t->ndim - 1;
      return put(static_cast<uint64_t>(t->shape[0])) &&
             put(static_cast<uint64_t>(t->shape[last])) &&
             put(static_cast<uint64_t>(t->strides[0])) &&
             put(static_cast<uint64_t>(t->strides[last]));
    }
    return put(dim(*t, 0)) && put(dim(*t, 1)) && put(dim(*t, 2)) && put(dim(*t, 3));
  }

  bool distances() noexcept {
    for (uint32_t i = 0; i < count_; ++i)
      for (uint32_t j = i + 1; j < count_; ++j) {
        const bool written = tensors_[i].written || tensors_[j].written;
        if (written && !place(tensors_[i], tensors_[j])) return false;
        if (!written && is_packed(kind_) && is_compared(0, count_, i, j) && !anywhere())
          return false;
      }
    return true;
  }

  bool alignments() noexcept {
    bool most = true;
    for (uint32_t i = 0; i < count_; ++i) most &= tensors_[i].at % YARD_MAX_ALIGN == 0;
    if (most) {
      m_.zero_bits = YARD_MAX_ALIGN - 1;
      return true;
    }
    if (count_ > CallMemo::kAlignable) return false;
    m_.more |= CallMemo::kAlignment;
    for (uint32_t i = 0; i < count_; ++i) {
      if (tensors_[i].t == nullptr) continue;
      // The lowest bit that is set, and zeros below; beyond YARD_MAX_ALIGN nothing is asked.
      const uint64_t low = tensors_[i].at | YARD_MAX_ALIGN, bit = low & (0 - low);
      const uint64_t mask = bit == YARD_MAX_ALIGN ? bit - 1 : 2 * bit - 1;
      m_.align_mask |= mask << (8 * i);
      m_.align |= (bit & mask) << (8 * i);
    }
    return true;
  }

  bool rest() noexcept {
    if ((m_.more & CallMemo::kLong) == 0) return true;
    const int32_t first = kind_ == FormKind::kTyped ? 0 : 4;
    for (uint32_t n = 0; n < count_; ++n) {
      const yard_tensor_t* const t = tensors_[n].t;
      if (t == nullptr) continue;
      if (kind_ == FormKind::kTyped && !(put(word_at(&t->device)) && put(word_at(&t->ndim))))
        return false;
      for (int32_t i = first; i < 2 * t->ndim; ++i)
        if (!put(dim(*t, i))) return false;
    }
    return true;
  }

 private:
  struct Tensor {
    const yard_tensor_t* t;
    bool written;
    uint64_t at;
    std::optional<Extent> extent;
  };

  static uint64_t dim(const yard_tensor_t& t, int32_t n) noexcept {
    return n < 2 * t.ndim ? dim_word(t, n) : 0;
  }

  bool anywhere() noexcept { return put(0) && put(~uint64_t{0}); }
  bool place(const Tensor& a, const Tensor& b) noexcept {
    if (!a.extent || !b.extent) return anywhere();
    const uint64_t distance = b.at - a.at;
    const auto after = static_cast<uint64_t>(a.extent->high - b.extent->low);
    const auto before = static_cast<uint64_t>(b.extent->high - a.extent->low);
    const uint64_t width = 0 - after - before;
    if (distance - after <= width) return put(after) && put(width);
    return put(distance) && put(0);
  }

  CallMemo& m_;
  const FormKind kind_;
  uint32_t used_ = 0, count_ = 0;
  Tensor tensors_[CallMemo::kTensors];
};

bool is_scalar(uint32_t tag) noexcept {
  return tag == YARD_TAG_INT || tag == YARD_TAG_FLOAT || tag == YARD_TAG_BOOL;
}

bool write_form(CallMemo& m, FormKind kind, const Entry& entry, const yard_value_t* args) {
  const op::Program& program = entry.program();
  const bool scalars = entry.recipe().reads_scalars() || program.checks_scalars();
  Writer to(m, kind);
  uint32_t tensors = 0, leading = 0;
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const op::Param& p = program.schema().params[i];
    const yard_value_t& v = args[i];
    m.tags[i] = static_cast<uint8_t>(v.tag);
    if (v.tag == YARD_TAG_LIST || (v.tag == YARD_TAG_STRING && scalars)) return false;
    if (v.tag == YARD_TAG_STRING) m.more |= CallMemo::kOdd;
    if (v.tag == YARD_TAG_TENSOR) {
      leading += tensors++ == i;
      if (!to.tensor(v.u.tensor, p.is_written())) return false;
    } else if (kind == FormKind::kTyped && p.is_tensor()) {
      if (!to.tensor(nullptr, p.is_written())) return false;
    }
  }
  if (!to.distances() || (entry.recipe().reads_alignment() && !to.alignments())) return false;
  if (scalars) m.more |= CallMemo::kScalars;
  for (uint32_t i = 0; scalars && i < program.arg_count(); ++i)
    if (is_scalar(args[i].tag) && !to.put(word_at(&args[i].u))) return false;
  const bool is_leading = is_packed(kind) && m.more == 0 && leading == tensors;
  m.counts = counts_of(program.arg_count(), is_leading ? leading : 0);
  return to.rest();
}

// Whether a tensor has the form of the words at `w`. `null_strides`: that one's strides are null.
bool same_tensor(const yard_value_t& v, const uint64_t* w, bool null_strides) noexcept {
  const yard_tensor_t* const t = v.u.tensor;
  if (t == nullptr || t->data == nullptr || word_at(&t->device) != w[0] ||
      word_at(&t->ndim) != w[1])
    return false;
  if (t->ndim == 0) return true;
  if (t->shape == nullptr || (t->strides == nullptr) != null_strides) return false;
  if (PackedTensor::is_usual(*t)) return PackedTensor::is_like(v, w);
  for (int32_t n = 0; n < 4 && n < 2 * t->ndim; ++n)
    if (dim_word(*t, n) != w[2 + n]) return false;
  return true;
}

// Alignments, scalars and long sizes of packed tensors. Null if they differ, else past their words.
const uint64_t* same_more(const CallMemo& m, const yard_value_t* args, const uint64_t* w,
                          const uint64_t* at) noexcept {
  for (uint32_t i = 0; (m.more & CallMemo::kAlignment) != 0 && i < CallMemo::kAlignable; ++i)
    if (const uint64_t mask = m.align_mask >> (8 * i) & 0xff;
        mask != 0 && (at[i] & mask) != (m.align >> (8 * i) & mask))
      return nullptr;
  if ((m.more & CallMemo::kScalars) != 0)
    for (uint32_t i = 0; i < arg_count(m); ++i)
      if (is_scalar(args[i].tag) && word_at(&args[i].u) != *w++) return nullptr;
  if ((m.more & CallMemo::kLong) != 0 && (m.site & CallMemo::kPacked) != 0)
    for (uint32_t i = 0; i < arg_count(m); ++i)
      if (args[i].tag == YARD_TAG_TENSOR && (w = same_dims(*args[i].u.tensor, 4, w)) == nullptr)
        return nullptr;
  return w;
}

// Compares what the hash of a call does not cover. Arguments may be anything.
bool same_packed(const CallMemo& m, const yard_value_t* args) noexcept {
  const bool views = (m.site & CallMemo::kViews) != 0;
  const uint64_t* w = m.words;
  uint64_t at[CallMemo::kTensors], any_bit = 0;
  uint32_t n = 0;
  for (uint32_t i = 0; i < arg_count(m); ++i) {
    const yard_value_t& v = args[i];
    if (v.tag != m.tags[i]) return false;
    if (v.tag != YARD_TAG_TENSOR) {
      if (v.tag == YARD_TAG_STRING && v.u.string == nullptr && v.count > 0) return false;
      continue;
    }
    if (views ? !ViewTensor::is_like(v, w) : !same_tensor(v, w, (m.null_strides >> n & 1) != 0))
      return false;
    at[n] = address_of(*v.u.tensor);
    any_bit |= at[n++];
    w += views ? CallMemo::kPerTensor : CallMemo::kPerPackedTensor;
  }
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = i + 1; j < n; ++j) {
      if (!is_compared(m.written, n, i, j)) continue;
      if (at[j] - at[i] - w[0] > w[1]) return false;
      w += 2;
    }
  return (any_bit & m.zero_bits) == 0 && (m.more == 0 || same_more(m, args, w, at) != nullptr);
}

// The same for a typed call. Tensors are those of views; those of inexact forms are compared in all they have.
bool same_typed(const CallMemo& m, const Site& site, const yard_value_t* args) noexcept {
  const uint64_t* w = m.words;
  const yard_tensor_t* tensors[CallMemo::kTensors];
  uint64_t at[CallMemo::kTensors], any_bit = 0;
  uint32_t n = 0, written = 0;
  for (size_t i = 0; i < site.letters.size(); ++i) {
    const Letter letter(site.letters[i]);
    if (!letter.is_tensor()) continue;
    const yard_tensor_t* const t = args[i].u.tensor;  // null: absent
    if (t == nullptr ? (w[0] | w[1]) != 0 : t->data == nullptr || !ViewTensor::is_like(args[i], w))
      return false;
    if (letter.is_written()) written |= 1u << n;
    tensors[n] = t, at[n] = t == nullptr ? 0 : address_of(*t);
    any_bit |= at[n++];
    w += CallMemo::kPerTensor;
  }
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = i + 1; j < n; ++j) {
      if (((written >> i | written >> j) & 1) == 0) continue;
      if (at[j] - at[i] - w[0] > w[1]) return false;
      w += 2;
    }
  if ((any_bit & m.zero_bits) != 0 || (w = same_more(m, args, w, at)) == nullptr) return false;
  if ((m.more & CallMemo::kLong) == 0) return true;
  for (const yard_tensor_t* const t : std::span(tensors, n)) {
    if (t == nullptr) continue;
    if (word_at(&t->device) != w[0] || word_at(&t->ndim) != w[1]) return false;
    const size_t dims = 2 * static_cast<size_t>(t->ndim);  // of a view: strides follow the sizes
    if (std::memcmp(t->shape, w + 2, dims * sizeof *w) != 0) return false;
    w += 2 + dims;
  }
  return true;
}

// The first of the places where a form may be.
template <class M>  // CallMemos, perhaps const
auto* set_of(M& memos, uint64_t hash) noexcept {
  return memos.of + CallMemos::home(hash) / CallMemos::kWays * CallMemos::kWays;
}

// Where to store a form: over a stale memo of the site, which may be of this form; at its home, unless another form
// is at home there; beside it; in another empty place; over some other.
CallMemo* place_for(CallMemos& memos, uint64_t hash, uint64_t site, uint64_t scope) noexcept {
  CallMemo* const set = set_of(memos, hash);
  CallMemo* empty = nullptr;
  for (CallMemo* m = set; m != set + CallMemos::kWays; ++m) {
    if (m->site == site && m->scope == scope && !m->route.is_current()) return m;
    if (m->site == 0) empty = m;
  }
  CallMemo& home = memos.of[CallMemos::home(hash)];
  if (home.site != 0 && CallMemos::home(home.hash) != CallMemos::home(hash)) {
    if (empty != nullptr) *empty = home;
    return &home;
  }
  if (home.site == 0) return &home;
  if (CallMemo& beside = memos.of[CallMemos::home(hash) ^ 1]; beside.site == 0) return &beside;
  return empty != nullptr ? empty : &set[memos.next_victim++ % CallMemos::kWays];
}

}  // namespace

uint64_t packed_hash(const detail::ThreadHead& thread, const Site& site, const yard_value_t* args,
                     uint32_t count) noexcept {
  uint64_t h = 0, dims = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const yard_tensor_t* const t = args[i].u.tensor;
    if (args[i].tag != YARD_TAG_TENSOR || t == nullptr) continue;
    h ^= detail::hash_part(i, word_at(&t->ndim));
    const auto last = static_cast<uint32_t>(t->ndim) - 1;
    if (last < YARD_MAX_RANK && t->shape != nullptr)
      dims += static_cast<uint64_t>(t->shape[0]) + (static_cast<uint64_t>(t->shape[last]) << 20);
  }
  return detail::hash_end(thread, h ^ detail::hash_begin(site.id, thread.scope, dims));
}

const CallMemo* find_in_set(const detail::ThreadHead& thread, uint64_t site,
                            const yard_value_t* args, uint32_t count, uint64_t hash) noexcept {
  const CallMemo* m = set_of(*thread.memos, hash);
  for (const CallMemo* const end = m + CallMemos::kWays; m != end; ++m)
    if (m->hash == hash && m->site == site && m->scope == thread.scope && arg_count(*m) == count &&
        same_packed(*m, args))
      return m;
  return nullptr;
}

const CallMemo* find_typed(const detail::ThreadHead& thread, const Site& site,
                           const yard_value_t* args, uint64_t hash) noexcept {
  const CallMemo* m = set_of(*thread.memos, hash);
  for (const CallMemo* const end = m + CallMemos::kWays; m != end; ++m)
    if (m->hash == hash && m->site == site.id && m->scope == thread.scope &&
        same_typed(*m, site, args))
      return m;
  return nullptr;
}

const CallMemo* note_hit_away(CallMemos& memos, const CallMemo* m) noexcept {
  if (++memos.hits_away % CallMemos::kPromoted != 0) return m;
  CallMemo& home = memos.of[CallMemos::home(m->hash)];
  std::swap(home, memos.of[m - memos.of]);
  return &home;
}

void remember(base::ThreadRecord& thread, const Site& site, uint64_t hash, FormKind kind,
              const Route& route, const yard_value_t* args) {
  if (route.found == MemoVersion::kNever) return;
  CallMemos* const memos = memos_of(thread);
  if (memos == nullptr) return;
  // Written apart first: a form that cannot be stored replaces no other.
  CallMemo made;
  if (!write_form(made, kind, *static_cast<const Entry*>(route.entry), args)) return;
  made.route = route;
  made.site = site.id | (kind == FormKind::kPacked  ? CallMemo::kPacked
                         : kind == FormKind::kViews ? CallMemo::kViews
                                                    : 0);
  made.scope = thread.scope;
  made.hash = hash;
  made.calls = &detail::counter(thread, route.counter);
  *place_for(*memos, hash, made.site, thread.scope) = made;
}

void forget_memos() noexcept {
  if (detail::t_thread == nullptr) return;
  base::ThreadRecord& thread = base::this_thread();
  thread.memos = &detail::kNoMemos;
  if (void* const memos = std::exchange(thread.locals[kThreadLocal], nullptr)) free_memos(memos);
}

}  // namespace yard::dispatch
