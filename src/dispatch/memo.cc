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

// Writes the words of one form.
class Writer {
 public:
  explicit Writer(CallMemo& memo) : m_(memo) {}

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
    if (written) m_.written |= static_cast<uint16_t>(1u << n);
    if (t == nullptr) {
      for (uint32_t i = 0; i < CallMemo::kPerTensor; ++i)
        if (!put(0)) return false;
      return true;
    }
    m_.present |= static_cast<uint16_t>(1u << n);
    if (t->strides == nullptr) m_.null_strides |= static_cast<uint16_t>(1u << n);
    if (t->ndim > 2) m_.more |= CallMemo::kLong;
    return t->data != nullptr && extent_of(*t, s.extent) && put(word_at(&t->device)) &&
           put(word_at(&t->ndim)) && put(dim(*t, 0)) && put(dim(*t, 1)) && put(dim(*t, 2)) &&
           put(dim(*t, 3));
  }

  bool places() noexcept {
    for (uint32_t i = 0; i < count_; ++i)
      for (uint32_t j = i + 1; j < count_; ++j)
        if ((slots_[i].written || slots_[j].written) && !place(slots_[i], slots_[j])) return false;
    return true;
  }

  bool alignments() noexcept {
    m_.more |= CallMemo::kAlignment;
    for (uint32_t i = 0; i < count_; ++i) {
      const uint64_t low = slots_[i].t != nullptr ? slots_[i].at | YARD_MAX_ALIGN : 0;
      // The lowest bit that is set, and zeros below; beyond YARD_MAX_ALIGN nothing is asked.
      const uint64_t bit = low & (0 - low);
      const uint64_t mask = slots_[i].t == nullptr  ? 0
                            : bit == YARD_MAX_ALIGN ? bit - 1
                                                    : 2 * bit - 1;
      if (!put(bit & mask) || !put(mask)) return false;
    }
    return true;
  }

  bool rest() noexcept {
    if ((m_.more & CallMemo::kLong) == 0) return true;
    for (uint32_t n = 0; n < count_; ++n)
      for (int32_t i = 4; slots_[n].t != nullptr && i < 2 * slots_[n].t->ndim; ++i)
        if (!put(dim(*slots_[n].t, i))) return false;
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
  uint32_t used_ = 0, count_ = 0;
  Slot slots_[CallMemo::kTensors];
};

bool is_scalar(uint32_t tag) noexcept {
  return tag == YARD_TAG_INT || tag == YARD_TAG_FLOAT || tag == YARD_TAG_BOOL;
}

bool write_form(CallMemo& m, FormKind kind, const Entry& entry, const yard_value_t* args) {
  const op::Program& program = entry.program();
  const bool scalars = entry.recipe().reads_scalars() || program.checks_scalars();
  Writer to(m);
  m.more = 0, m.present = m.written = m.null_strides = 0;
  m.arg_count = static_cast<uint8_t>(program.arg_count());
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const op::Param& p = program.schema().params[i];
    const yard_value_t& v = args[i];
    m.tags[i] = static_cast<uint8_t>(v.tag);
    if (v.tag == YARD_TAG_LIST || (v.tag == YARD_TAG_STRING && scalars)) return false;
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

// Sizes and strides of a tensor whose rank is that of the memo, where they are not the two of most.
[[gnu::noinline]] bool same_dims(const yard_tensor_t& t, bool null_strides,
                                 const uint64_t* w) noexcept {
  if (t.ndim == 0) return true;
  if (t.shape == nullptr || (t.strides == nullptr) != null_strides) return false;
  for (int32_t n = 0; n < 4 && n < 2 * t.ndim; ++n)
    if (detail::dim_word(t, n) != w[n]) return false;
  return true;
}

bool same_more(const CallMemo& m, const yard_value_t* args, const uint64_t* w, const uint64_t* at,
               uint32_t tensors) noexcept {
  if ((m.more & CallMemo::kAlignment) != 0)
    for (uint32_t i = 0; i < tensors; ++i, w += 2)
      if (((at[i] ^ w[0]) & w[1]) != 0) return false;
  if ((m.more & (CallMemo::kScalars | CallMemo::kLong)) == 0) return true;
  if ((m.more & CallMemo::kScalars) != 0)
    for (uint32_t i = 0; i < m.arg_count; ++i)
      if (is_scalar(args[i].tag) && word_at(&args[i].u) != *w++) return false;
  if ((m.more & CallMemo::kLong) != 0)
    for (uint32_t i = 0; i < m.arg_count; ++i)
      if (args[i].tag == YARD_TAG_TENSOR &&
          (w = detail::same_rest(*args[i].u.tensor, w)) == nullptr)
        return false;
  return true;
}

bool same_packed(const CallMemo& m, const yard_value_t* args, uint32_t count) noexcept {
  if (m.arg_count != count) return false;
  const uint64_t* w = m.words;
  uint64_t at[CallMemo::kTensors];
  uint32_t n = 0;
#pragma GCC unroll 1
  for (uint32_t i = 0; i < count; ++i) {
    const yard_value_t& v = args[i];
    if (v.tag != m.tags[i]) return false;
    if (v.tag != YARD_TAG_TENSOR) {
      if (v.tag == YARD_TAG_STRING && v.u.string == nullptr && v.count > 0) return false;
      continue;
    }
    const yard_tensor_t* const t = v.u.tensor;
    if (t == nullptr || t->data == nullptr ||
        ((word_at(&t->device) ^ w[0]) | (word_at(&t->ndim) ^ w[1])) != 0)
      return false;
    const auto* const size = reinterpret_cast<const uint64_t*>(t->shape);
    const auto* const stride = reinterpret_cast<const uint64_t*>(t->strides);
    if (size == nullptr || stride == nullptr || m.null_strides != 0 || t->ndim > 2) [[unlikely]] {
      if (!same_dims(*t, ((m.null_strides >> n) & 1) != 0, w + 2)) return false;
    } else if (t->ndim == 2) {
      if (((size[0] ^ w[2]) | (size[1] ^ w[3]) | (stride[0] ^ w[4]) | (stride[1] ^ w[5])) != 0)
        return false;
    } else if (t->ndim == 1 && ((size[0] ^ w[2]) | (stride[0] ^ w[3])) != 0) {
      return false;
    }
    at[n++] = address_of(*t);
    w += CallMemo::kPerTensor;
  }
  const uint32_t written = m.written;
#pragma GCC unroll 1
  for (uint32_t i = 0; i + 1 < n; ++i) {
#pragma GCC unroll 1
    for (uint32_t j = i + 1; j < n; ++j) {
      if ((((written >> i) | (written >> j)) & 1) == 0) continue;
      if (at[j] - at[i] - w[0] > w[1]) return false;
      w += 2;
    }
  }
  return m.more == 0 || same_more(m, args, w, at, n);
}

// Where to store a form: over a stale memo of the same hash, which may be of this form; at its home, unless another form
// is at home there; in an empty place; over some other.
CallMemo* place_for(CallMemos& memos, uint64_t hash, uint64_t key, uint64_t scope) noexcept {
  CallMemo* const set = memos.of + (memos.set(hash) - memos.of);
  CallMemo* empty = nullptr;
  for (CallMemo* m = set; m != set + CallMemos::kWays; ++m) {
    if (m->key == key && m->scope == scope && !m->route.is_current()) return m;
    if (m->key == 0) empty = m;
  }
  CallMemo& home = memos.of[CallMemos::home(hash)];
  if (home.key != 0 && home.home != CallMemos::home(hash)) {
    if (empty != nullptr) *empty = home;
    return &home;
  }
  if (home.key == 0) return &home;
  return empty != nullptr ? empty : &set[memos.next_victim++ % CallMemos::kWays];
}

}  // namespace

uint64_t packed_hash(const Site& site, uint64_t scope, const yard_value_t* args,
                     uint32_t count) noexcept {
  uint64_t h = detail::hash_begin(site.id, scope);
  for (uint32_t i = 0; i < count; ++i) {
    const yard_tensor_t* const t = args[i].u.tensor;
    if (args[i].tag != YARD_TAG_TENSOR || t == nullptr) continue;
    uint64_t dims = word_at(&t->ndim);
    if (t->ndim > 0 && t->shape != nullptr) {
      dims ^= static_cast<uint64_t>(t->shape[0]) << 20;
      if (t->strides != nullptr) dims += static_cast<uint64_t>(t->strides[0]);
    }
    h = detail::hash_step(h, dims * 0x9e3779b97f4a7c15ull);
  }
  return h;
}

const CallMemo* find_packed(const CallMemos& memos, const Site& site, uint64_t scope,
                            const yard_value_t* args, uint32_t count, uint64_t hash) noexcept {
  const uint64_t key = CallMemo::key_of(site.id, hash);
  const CallMemo& home = memos.of[CallMemos::home(hash)];
  if (home.key == key && home.scope == scope && same_packed(home, args, count)) [[likely]]
    return &home;
  const CallMemo* const set = memos.set(hash);
  for (uint32_t i = 0; i < CallMemos::kWays; ++i)
    if (set[i].key == key && set[i].scope == scope && same_packed(set[i], args, count))
      return &set[i];
  return nullptr;
}

void remember(base::ThreadRecord& thread, const Site& site, uint64_t hash, FormKind kind,
              const Route& route, const yard_value_t* args) {
  if (site.id == 0 || route.found == MemoVersion::kNever) return;
  CallMemos* const memos = memos_of(thread);
  if (memos == nullptr) return;
  // A form that cannot be stored takes no other's place.
  CallMemo made;
  if (!write_form(made, kind, *static_cast<const Entry*>(route.entry), args)) return;
  made.route = route;
  made.key = CallMemo::key_of(site.id, hash);
  made.scope = thread.scope;
  made.home = static_cast<uint8_t>(CallMemos::home(hash));
  made.calls = &detail::counter(thread, route.counter);
  *place_for(*memos, hash, made.key, thread.scope) = made;
}

void forget_memos() noexcept {
  if (detail::t_thread == nullptr) return;
  base::ThreadRecord& thread = base::this_thread();
  thread.memos = &detail::kNoMemos;
  if (void* const memos = std::exchange(thread.locals[kThreadLocal], nullptr)) free_memos(memos);
}

}  // namespace yard::dispatch
