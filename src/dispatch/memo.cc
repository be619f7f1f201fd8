// SPDX-License-Identifier: Apache-2.0
#include "dispatch/memo.h"

#include <sys/mman.h>

#include "dispatch/snapshot.h"

namespace yard::dispatch {
namespace {

constexpr int kThreadLocal = 2;  // this file's index in ThreadRecord::locals

void free_memos(void* memos) noexcept { ::munmap(memos, sizeof(CallMemos)); }

bool is_scalar(uint32_t tag) noexcept {
  return tag == YARD_TAG_INT || tag == YARD_TAG_FLOAT || tag == YARD_TAG_BOOL;
}

// Calls f(word) for device, rank and dtype, sizes and strides, until f returns false.
template <class F>
bool each_word(const yard_tensor_t& t, const F& f) {
  if (!f(word_at(&t.device)) || !f(word_at(&t.ndim))) return false;
  for (int32_t i = 0; i < t.ndim; ++i)
    if (!f(word(t.shape[i]))) return false;
  uint64_t compact = 1;
  for (int32_t i = t.ndim; i-- > 0;) {
    if (!f(t.strides != nullptr ? word(t.strides[i]) : compact)) return false;
    compact *= word(t.shape[i]);
  }
  return true;
}

// Calls f(word) for all words after the pairs of tensors, until f returns false.
template <class F>
bool each_later_word(uint32_t more, const CallForm& form, const Cells& cells, const F& f) {
  for (uint32_t i = 0; (more & CallMemo::kScalars) != 0 && i < cells.count; ++i)
    if (is_scalar(cells.at[i].tag) && !f(word_at(&cells.at[i].u))) return false;
  for (uint32_t i = 0; (more & CallMemo::kLong) != 0 && i < form.count(); ++i)
    if (form.tensor[i].get() != nullptr && !each_word(*form.tensor[i].get(), f)) return false;
  return true;
}

// The bytes that a tensor covers, relative to its address.
struct Extent {
  int64_t low = 0, high = 0;
};

// Does not change `to` if the tensor is empty. Returns false on overflow.
bool extent_of(const yard_tensor_t& of, std::optional<Extent>& to) noexcept {
  const op::ByteTensor addressable(of);
  const yard_tensor_t& t = addressable.get();
  const int64_t bytes = yard_unit_bytes(t.dtype);
  const auto is_large = [](op::Wide n) { return n >> 57 != 0 && n >> 57 != -1; };
  Extent e{0, bytes};
  op::Wide compact = bytes;
  for (int32_t i = t.ndim - 1; i >= 0; --i) {
    if (t.shape[i] == 0) return true;
    const op::Wide step = t.strides != nullptr ? op::times(t.strides[i], bytes) : compact;
    const op::Wide reach = op::times(t.shape[i] - 1, step);
    compact = op::times(compact, t.shape[i]);
    if (is_large(step) || is_large(reach) || is_large(compact)) return false;
    (reach < 0 ? e.low : e.high) += static_cast<int64_t>(reach);
  }
  to = e;
  return true;
}

// Stores which low address bits a call of the form has. Returns false if it cannot.
bool write_alignments(CallMemo& m, const CallForm& form) noexcept {
  if (form.any_bit % YARD_MAX_ALIGN == 0) {
    m.zero_bits = YARD_MAX_ALIGN - 1;
    return true;
  }
  if (form.count() > CallMemo::kAlignable) return false;
  m.more |= CallMemo::kAlignment;
  for (uint32_t i = 0; i < form.count(); ++i) {
    // Compare the lowest set bit and the zeros below. No predicate asks beyond YARD_MAX_ALIGN.
    const uint64_t low = form.tensor[i].address | YARD_MAX_ALIGN, bit = low & (0 - low);
    const uint64_t mask = bit == YARD_MAX_ALIGN ? bit - 1 : 2 * bit - 1;
    m.align_mask |= mask << (8 * i);
    m.align |= (bit & mask) << (8 * i);
  }
  return true;
}

// Writes the words that calls are compared with. Returns false if the form cannot be stored.
bool write_form(CallMemo& m, const CallForm& form, const Entry& entry, const Cells& cells) {
  m.tags = form.tags;
  m.tensors = form.tensors;
  uint32_t used = 0;
  const auto put = [&](uint64_t w) {
    if (used == CallMemo::kWords) return false;
    m.words[used++] = w;
    return true;
  };
  std::optional<Extent> extents[CallForm::kMostCells];
  for (uint32_t i = 0; i < form.count(); ++i) {
    const yard_tensor_t* const t = form.tensor[i].get();
    if (t != nullptr && !extent_of(*t, extents[i])) return false;
    if (!put(form.tensor[i].form.head) || !put(form.tensor[i].form.dims)) return false;
    if (!form.tensor[i].form.is_exact()) m.more |= CallMemo::kLong;
  }
  const auto put_pair = [&](uint32_t i, uint32_t j) {
    const auto &a = extents[i], &b = extents[j];
    if (!a || !b) return put(0) && put(~uint64_t{0});
    const uint64_t distance = form.tensor[j].address - form.tensor[i].address;
    const uint64_t after = word(a->high - b->low), before = word(b->high - a->low);
    const uint64_t width = 0 - after - before;
    if (distance - after <= width) return put(after) && put(width);
    return put(distance) && put(0);
  };
  if (!each_pair(form.count(), form.written(), put_pair)) return false;
  if (entry.recipe().reads_alignment() && !write_alignments(m, form)) return false;
  if (entry.recipe().reads_scalars() || entry.program().checks_scalars()) {
    m.more |= CallMemo::kScalars;
    for (uint32_t i = 0; i < cells.count; ++i)
      if (cells.at[i].tag == YARD_TAG_STRING) return false;
  }
  return each_later_word(m.more, form, cells, put);
}

// Chooses where to store a form. Prefers a stale memo of the site, then the form's home unless the
// memo there is at its own home, then the place beside it, then another empty place, then any.
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

bool any_form(const yard_tensor_t& t, TensorView::Form& to) noexcept {
  if (t.ndim < 0 || t.ndim > YARD_MAX_RANK || (t.ndim > 0 && t.shape == nullptr)) return false;
  yard_tensor_t at_start = t;
  at_start.byte_offset = 0;
  to = TensorView(at_start).form();
  return true;
}

uint64_t make_type(CallMemos& memos, const yard_tensor_t& t) noexcept {
  const uint32_t index = yard_dtype_index(t.dtype);
  const auto device = static_cast<uint32_t>(t.device.type);
  const auto number = static_cast<uint32_t>(t.device.index);
  if (index == 0 || device - 1 >= 31 || number > 255) return 0;
  const uint64_t type = index | device << 6 | number << 11;
  if (&memos != &kNoMemos)
    memos.last_device = word_at(&t.device), memos.last_dtype = std::bit_cast<uint32_t>(t.dtype),
    memos.last_type = type;
  return type;
}

bool same_more(const CallMemo& m, const CallForm& form, const Cells& cells,
               const uint64_t* w) noexcept {
  for (uint32_t i = 0; (m.more & CallMemo::kAlignment) != 0 && i < form.count(); ++i)
    if (const uint64_t mask = m.align_mask >> (8 * i) & 0xff;
        (form.tensor[i].address & mask) != (m.align >> (8 * i) & mask))
      return false;
  return each_later_word(m.more, form, cells, [&](uint64_t word) { return word == *w++; });
}

const CallMemo* find_in_set(const ThreadHead& thread, const Site& site, const CallForm& form,
                            const Cells& cells) noexcept {
  CallMemos& memos = *thread.memos;
  CallMemo& home = memos.of[CallMemos::home(form.hash)];
  CallMemo* const set = set_of(memos, form.hash);
  for (CallMemo* m = set; m != set + CallMemos::kWays; ++m) {
    if (m == &home || !form.is_of(*m, site, cells)) continue;
    if (++memos.hits_away % CallMemos::kPromoted != 0) return m;
    std::swap(home, *m);
    return &home;
  }
  return nullptr;
}

bool make_memos(base::ThreadRecord& thread) noexcept {
  // Zeroed pages take no memory until they are used.
  void* const made = ::mmap(nullptr, sizeof(CallMemos), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return false;
  base::set_thread_exit_hook(kThreadLocal, free_memos);
  thread.locals[kThreadLocal] = made;
  thread.memos = static_cast<CallMemos*>(made);
  return true;
}

void remember(base::ThreadRecord& thread, const Site& site, const CallForm& form,
              const Route& route, const Cells& cells) {
  if (route.found == MemoVersion::kNever) return;
  // Write to a copy first, so that a form that cannot be stored replaces no memo.
  CallMemo made;
  if (!write_form(made, form, *static_cast<const Entry*>(route.entry), cells)) return;
  made.route = route;
  made.site = site.id;
  made.scope = form.scope;
  made.hash = form.hash;
  made.calls = &counter(thread, route.counter);
  *place_for(*thread.memos, form.hash, site.id, form.scope) = made;
}

void forget_memos() noexcept {
  if (t_thread == nullptr) return;
  base::ThreadRecord& thread = base::this_thread();
  thread.memos = &kNoMemos;
  if (void* const memos = std::exchange(thread.locals[kThreadLocal], nullptr)) free_memos(memos);
}

}  // namespace yard::dispatch
