// SPDX-License-Identifier: Apache-2.0
#include "dispatch/memo.h"

#include <cstdlib>
#include <new>
#include <optional>
#include <utility>

namespace yard::dispatch {

using detail::address_of;
using detail::CallMemo;
using detail::CallMemos;
using detail::Route;
using detail::Site;
using detail::word_at;

namespace {

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

// False if they are more than a number holds.
bool extent_of(const yard_tensor_t& t, std::optional<Extent>& to) noexcept {
  const int64_t bytes = (t.dtype.bits + 7) / 8;
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

// Of a packed call: whether the places of tensors i, which is written, and j are compared. Each pair once.
constexpr bool is_pair(uint32_t written, uint32_t i, uint32_t j) noexcept {
  return j != i && (j > i || (written >> j & 1) == 0);
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
    Slot& s = slots_[n];
    s = {t, written, t != nullptr ? address_of(*t) : 0, {}};
    if (t == nullptr) return put(0) && put(0);
    if (t->data == nullptr || !extent_of(*t, s.extent)) return false;
    if (kind_ == FormKind::kTyped) {
      const TensorView::Form& form = TensorView::of(*t).form();
      if (!form.is_exact()) m_.more |= CallMemo::kLong;
      return put(form.head) && put(form.dims);
    }
    if (written) m_.written |= static_cast<uint16_t>(1u << n);
    if (t->strides == nullptr) m_.null_strides |= static_cast<uint16_t>(1u << n);
    if (t->ndim > 2) m_.more |= CallMemo::kLong;
    if (t->ndim < 1 || t->ndim > 2 || t->strides == nullptr) m_.more |= CallMemo::kOdd;
    return put(word_at(&t->device)) && put(word_at(&t->ndim)) && put(dim(*t, 0)) &&
           put(dim(*t, 1)) && put(dim(*t, 2)) && put(dim(*t, 3));
  }

  bool places() noexcept {
    for (uint32_t i = 0; i < count_; ++i) {
      if (kind_ == FormKind::kPacked && !slots_[i].written) continue;
      for (uint32_t j = kind_ == FormKind::kPacked ? 0 : i + 1; j < count_; ++j) {
        const bool counts = kind_ == FormKind::kPacked ? is_pair(m_.written, i, j)
                                                       : slots_[i].written || slots_[j].written;
        if (counts && !place(slots_[i], slots_[j])) return false;
      }
    }
    return true;
  }

  bool alignments() noexcept {
    bool most = true;
    for (uint32_t i = 0; i < count_; ++i) most &= slots_[i].at % YARD_MAX_ALIGN == 0;
    if (most) {
      m_.zero_bits = YARD_MAX_ALIGN - 1;
      return true;
    }
    if (count_ > CallMemo::kAlignable) return false;
    m_.more |= CallMemo::kAlignment;
    for (uint32_t i = 0; i < count_; ++i) {
      if (slots_[i].t == nullptr) continue;
      // The lowest bit that is set, and zeros below; beyond YARD_MAX_ALIGN nothing is asked.
      const uint64_t low = slots_[i].at | YARD_MAX_ALIGN, bit = low & (0 - low);
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
      const yard_tensor_t* const t = slots_[n].t;
      if (t == nullptr) continue;
      if (kind_ == FormKind::kTyped && !(put(word_at(&t->device)) && put(word_at(&t->ndim))))
        return false;
      for (int32_t i = first; i < 2 * t->ndim; ++i)
        if (!put(dim(*t, i))) return false;
    }
    return true;
  }

 private:
  struct Slot {
    const yard_tensor_t* t;
    bool written;
    uint64_t at;
    std::optional<Extent> extent;
  };

  static uint64_t dim(const yard_tensor_t& t, int32_t n) noexcept {
    return n < 2 * t.ndim ? detail::dim_word(t, n) : 0;
  }

  bool place(const Slot& a, const Slot& b) noexcept {
    if (!a.extent || !b.extent) return put(0) && put(~uint64_t{0});  // anywhere
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
  Slot slots_[CallMemo::kTensors];
};

bool is_scalar(uint32_t tag) noexcept {
  return tag == YARD_TAG_INT || tag == YARD_TAG_FLOAT || tag == YARD_TAG_BOOL;
}

bool write_form(CallMemo& m, FormKind kind, const Entry& entry, const yard_value_t* args) {
  const op::Program& program = entry.program();
  const bool scalars = entry.recipe().reads_scalars() || program.checks_scalars();
  Writer to(m, kind);
  m.arg_count = static_cast<uint8_t>(program.arg_count());
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const op::Param& p = program.schema().params[i];
    const yard_value_t& v = args[i];
    m.tags[i] = static_cast<uint8_t>(v.tag);
    if (v.tag == YARD_TAG_LIST || (v.tag == YARD_TAG_STRING && scalars)) return false;
    if (v.tag == YARD_TAG_STRING) m.more |= CallMemo::kOdd;
    if (v.tag == YARD_TAG_TENSOR) {
      if (!to.tensor(v.u.tensor, p.is_written())) return false;
    } else if (kind == FormKind::kTyped && p.is_tensor()) {
      if (!to.tensor(nullptr, p.is_written())) return false;
    }
  }
  if (!to.places() || (entry.recipe().reads_alignment() && !to.alignments())) return false;
  if (scalars) m.more |= CallMemo::kScalars;
  for (uint32_t i = 0; scalars && i < program.arg_count(); ++i)
    if (is_scalar(args[i].tag) && !to.put(word_at(&args[i].u))) return false;
  return to.rest();
}

// The first four of a tensor's sizes and strides. Its rank is that of the memo.
bool same_first_dims(const yard_tensor_t& t, const uint64_t* w, bool null_strides) noexcept {
  if (t.ndim == 0) return true;
  if (t.shape == nullptr || (t.strides == nullptr) != null_strides) return false;
  for (int32_t n = 0; n < 4 && n < 2 * t.ndim; ++n)
    if (detail::dim_word(t, n) != w[n]) return false;
  return true;
}

bool same_more(const CallMemo& m, const yard_value_t* args, const uint64_t* w,
               const uint64_t* at) noexcept {
  for (uint32_t i = 0; (m.more & CallMemo::kAlignment) != 0 && i < CallMemo::kAlignable; ++i)
    if (const uint64_t mask = m.align_mask >> (8 * i) & 0xff;
        mask != 0 && (at[i] & mask) != (m.align >> (8 * i) & mask))
      return false;
  if ((m.more & CallMemo::kScalars) != 0)
    for (uint32_t i = 0; i < m.arg_count; ++i)
      if (is_scalar(args[i].tag) && word_at(&args[i].u) != *w++) return false;
  if ((m.more & CallMemo::kLong) != 0)
    for (uint32_t i = 0; i < m.arg_count; ++i)
      if (args[i].tag == YARD_TAG_TENSOR &&
          (w = detail::same_dims(*args[i].u.tensor, 4, w)) == nullptr)
        return false;
  return true;
}

// Everything that the hash of a call leaves open. Arguments may be anything.
template <bool kOdd>
[[gnu::always_inline]] inline bool same_arguments(const CallMemo& m,
                                                  const yard_value_t* args) noexcept {
  const uint64_t* w = m.words;
  uint64_t at[CallMemo::kTensors], any_bit = 0;
  uint32_t n = 0;
  const uint8_t* tag = m.tags;
  for (const yard_value_t *v = args, *const end = args + m.arg_count; v != end; ++v) {
    if (v->tag != *tag++) return false;
    if (v->tag != YARD_TAG_TENSOR) {
      if (kOdd && v->tag == YARD_TAG_STRING && v->u.string == nullptr && v->count > 0) return false;
      continue;
    }
    const yard_tensor_t* const t = v->u.tensor;
    if (t == nullptr || t->data == nullptr ||
        ((word_at(&t->device) ^ w[0]) | (word_at(&t->ndim) ^ w[1])) != 0)
      return false;
    if constexpr (kOdd) {
      if (!same_first_dims(*t, w + 2, (m.null_strides >> n & 1) != 0)) return false;
    } else {
      const auto* const size = reinterpret_cast<const uint64_t*>(t->shape);
      const auto* const stride = reinterpret_cast<const uint64_t*>(t->strides);
      if (size == nullptr || stride == nullptr) return false;
      if (t->ndim == 2) {
        if (((size[0] ^ w[2]) | (size[1] ^ w[3]) | (stride[0] ^ w[4]) | (stride[1] ^ w[5])) != 0)
          return false;
      } else if (((size[0] ^ w[2]) | (stride[0] ^ w[3])) != 0) {
        return false;
      }
    }
    at[n] = address_of(*t);
    any_bit |= at[n];
    w += CallMemo::kPerPackedTensor;
    ++n;
  }
  if ((any_bit & m.zero_bits) != 0) return false;
  for (uint32_t left = m.written; left != 0; left &= left - 1) {
    const auto i = static_cast<uint32_t>(std::countr_zero(left));
    for (uint32_t j = 0; j < n; ++j) {
      if (!is_pair(m.written, i, j)) continue;
      if (at[j] - at[i] - w[0] > w[1]) return false;
      w += 2;
    }
  }
  return m.more == 0 || same_more(m, args, w, at);
}

[[gnu::noinline]] bool same_odd(const CallMemo& m, const yard_value_t* args) noexcept {
  return same_arguments<true>(m, args);
}

[[gnu::always_inline]] inline bool same_packed(const CallMemo& m, const yard_value_t* args,
                                               uint32_t count) noexcept {
  if (m.arg_count != count) return false;
  return (m.more & CallMemo::kOdd) == 0 ? same_arguments<false>(m, args) : same_odd(m, args);
}

// Where to store a form: over a stale memo of the site, which may be of this form; at its home, unless another form
// is at home there; beside it; in another empty place; over some other.
CallMemo* place_for(CallMemos& memos, uint64_t hash, uint64_t site, uint64_t scope) noexcept {
  CallMemo* const set = memos.of + (memos.set(hash) - memos.of);
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
  uint64_t h = detail::hash_begin(site.id, thread.scope);
  for (uint32_t i = 0; i < count; ++i) {
    const yard_tensor_t* const t = args[i].u.tensor;
    if (args[i].tag != YARD_TAG_TENSOR || t == nullptr) continue;
    const auto last = static_cast<uint32_t>(t->ndim) - 1;
    uint64_t dims = 0;
    if (last < YARD_MAX_RANK && t->shape != nullptr)
      dims = static_cast<uint64_t>(t->shape[0]) << 26 ^ static_cast<uint64_t>(t->shape[last]);
    h ^= detail::hash_part(i, word_at(&t->ndim), dims);
  }
  return detail::hash_end(thread, h);
}

const CallMemo* find_packed(const detail::ThreadHead& thread, const Site& site,
                            const yard_value_t* args, uint32_t count, uint64_t hash) noexcept {
  const uint64_t id = site.id | CallMemo::kPacked;
  const yard_tensor_t* const first =
      count > 0 && args[0].tag == YARD_TAG_TENSOR ? args[0].u.tensor : nullptr;
  const CallMemo* m = thread.memos->find(hash, id, first != nullptr ? word_at(&first->device) : 0);
  if (m != nullptr && m->scope == thread.scope && same_packed(*m, args, count)) [[likely]]
    return m;
  m = thread.memos->set(hash);
  for (const CallMemo* const end = m + CallMemos::kWays; m != end; ++m)
    if (m->hash == hash && m->site == id && m->scope == thread.scope && m->arg_count == count &&
        same_odd(*m, args))
      return m;
  return nullptr;
}

void remember(base::ThreadRecord& thread, const Site& site, uint64_t hash, FormKind kind,
              const Route& route, const yard_value_t* args) {
  if (route.found == MemoVersion::kNever) return;
  CallMemos* const memos = memos_of(thread);
  if (memos == nullptr) return;
  // A form that cannot be stored takes no other's place.
  CallMemo made;
  if (!write_form(made, kind, *static_cast<const Entry*>(route.entry), args)) return;
  made.route = route;
  made.site = site.id | (kind == FormKind::kPacked ? CallMemo::kPacked : 0);
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
