// SPDX-License-Identifier: Apache-2.0
#include "dispatch/memo.h"

#include <sys/mman.h>

#include <bit>

namespace yard::dispatch {

using detail::CallMemo;
using detail::CallMemos;
using detail::Route;
using detail::Site;
using detail::word_at;

namespace {

constexpr int kThreadLocal = 2;  // our index in ThreadRecord::locals

void free_memos(void* memos) noexcept { ::munmap(memos, sizeof(CallMemos)); }

uint64_t word(int64_t n) noexcept { return static_cast<uint64_t>(n); }

// The form of a tensor of any rank and origin, as TensorView makes it. Its address includes the offset.
[[gnu::noinline]] bool any_form(const yard_tensor_t& t, TensorView::Form& to) noexcept {
  if (t.ndim < 0 || t.ndim > YARD_MAX_RANK || (t.ndim > 0 && t.shape == nullptr)) return false;
  yard_tensor_t at_start = t;
  at_start.byte_offset = 0;
  to = TensorView(at_start).form();
  return true;
}
// The part of a form that dtype and device give; 0 if they are unusual. Most tensors of a call share it.
struct TypePart {
  uint64_t device = 0;
  uint32_t dtype = 0;
  uint64_t bits = 0;

  [[gnu::always_inline]] bool is_of(const yard_tensor_t& t) const noexcept {
    return word_at(&t.device) == device && std::bit_cast<uint32_t>(t.dtype) == dtype;
  }
  [[gnu::noinline]] static uint64_t bits_of(const yard_tensor_t& t) noexcept {
    const uint32_t index = yard_dtype_index(t.dtype);
    const auto device_type = static_cast<uint32_t>(t.device.type);
    const auto device_index = static_cast<uint32_t>(t.device.index);
    if (index == 0 || device_type - 1 >= 31 || device_index > 255) return 0;
    return index | device_type << 6 | device_index << 11;
  }
};
// The same as any_form(), quickly for vectors and matrices.
[[gnu::always_inline]] inline bool form_of(const yard_tensor_t& t, TypePart& type,
                                           TensorView::Form& to) noexcept {
  using Form = TensorView::Form;
  if (!type.is_of(t)) [[unlikely]]
    type = {word_at(&t.device), std::bit_cast<uint32_t>(t.dtype), TypePart::bits_of(t)};
  const auto inner = static_cast<uint32_t>(t.ndim) - 1;
  if (inner > 1 || t.shape == nullptr || type.bits == 0) [[unlikely]]
    return any_form(t, to);
  const uint64_t rows = word(t.shape[0]), row = word(t.shape[inner]);
  uint64_t by = row, in = 1;
  if (t.strides != nullptr) by = word(t.strides[0]), in = word(t.strides[inner]);
  if (((rows >> 37) | ((row | by | in) >> 20)) != 0) [[unlikely]]
    return any_form(t, to);
  const bool compact = in == 1 && (inner == 0 || by == row);
  to.head = type.bits | uint64_t{inner + 1} << Form::kRank | (compact ? Form::kCompact : 0) |
            rows << Form::kFirst;
  to.dims = inner == 0 ? in : row | by << 20 | in << 40;
  return true;
}

// Calls f(i, j) for each pair of `count` tensors of which one is written, in the order of CallMemo::words, until it
// returns false. Returns whether it never did.
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

bool is_scalar(uint32_t tag) noexcept {
  return tag == YARD_TAG_INT || tag == YARD_TAG_FLOAT || tag == YARD_TAG_BOOL;
}

// Calls f(word) for device, rank and dtype, sizes and strides of a tensor until it returns false.
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

// Calls f(word) for the words that follow the pairs of tensors until it returns false.
template <class F>
bool each_later_word(uint32_t more, const CallForm& form, const Cells& cells, const F& f) {
  for (uint32_t i = 0; (more & CallMemo::kScalars) != 0 && i < cells.count; ++i)
    if (is_scalar(cells.at[i].tag) && !f(word_at(&cells.at[i].u))) return false;
  for (uint32_t i = 0; (more & CallMemo::kLong) != 0 && i < form.tensors; ++i)
    if (form.tensor[i] != nullptr && !each_word(*form.tensor[i], f)) return false;
  return true;
}

// Compares alignments, and the words at `w`, which follow the pairs of tensors.
bool same_more(const CallMemo& m, const CallForm& form, const Cells& cells,
               const uint64_t* w) noexcept {
  for (uint32_t i = 0; (m.more & CallMemo::kAlignment) != 0 && i < form.tensors; ++i)
    if (const uint64_t mask = m.align_mask >> (8 * i) & 0xff;
        (form.address[i] & mask) != (m.align >> (8 * i) & mask))
      return false;
  return each_later_word(m.more, form, cells, [&](uint64_t word) { return word == *w++; });
}

}  // namespace

bool CallForm::read(const detail::ThreadHead& thread, const Site& site,
                    const Cells& given) noexcept {
  const Cells cells = given;  // as the locals below: no store to a member can change them
  const uint32_t parameters = site.tensors.load(std::memory_order_relaxed);
  if (cells.count != site.count.load(std::memory_order_relaxed) || cells.count > kMostCells)
    return false;
  uint64_t heads = 0, dims = 0, all_tags = 0, bits = 0;
  TypePart type;
  uint32_t n = 0;
  for (uint32_t i = 0; i < cells.count; ++i) {
    const yard_value_t& v = cells.at[i];
    const uint32_t tag = v.tag;
    if (tag >= YARD_TAG_LIST) return false;
    all_tags = all_tags << kTagBits | tag;
    if ((parameters >> i & 1) == 0) {
      if (tag == YARD_TAG_STRING && v.u.string == nullptr && v.count > 0) return false;
      continue;
    }
    if (n == kTensors) return false;
    if (tag != YARD_TAG_TENSOR) [[unlikely]] {
      form[n] = {0, 0}, address[n] = 0, tensor[n++] = nullptr;
      continue;
    }
    const yard_tensor_t* const t = v.u.tensor;
    if (t == nullptr || t->data == nullptr) return false;
    TensorView::Form f;
    if ((cells.views >> i & 1) != 0)
      f = TensorView::of(*t).form();
    else if (!form_of(*t, type, f))
      return false;
    const uint64_t at = reinterpret_cast<uintptr_t>(t->data) + t->byte_offset;
    heads ^= detail::hash_part(n, f.head);
    dims += f.dims;
    bits |= at;
    form[n] = f, address[n] = at, tensor[n++] = t;
  }
  tensors = n, tags = all_tags, any_bit = bits;
  written = site.written.load(std::memory_order_relaxed);
  if (written != 0 && n > 1) {
    // The first pair of which one is written.
    const auto second = (written & 1) != 0 ? 1 : std::countr_zero(written);
    heads ^= detail::in_place_part(address[0] == address[second]);
  }
  hash = detail::hash_end(thread, heads ^ detail::hash_begin(site.id, thread.scope, dims));
  return true;
}

bool CallForm::is_of(const CallMemo& m, const Cells& cells) const noexcept {
  const uint32_t n = tensors;
  uint64_t unlike =
      (m.tags ^ tags) | (any_bit & m.zero_bits) | (m.tensors ^ n) | (m.written ^ written);
  const uint64_t* w = m.words;
  for (uint32_t i = 0; i < n; ++i, w += 2) unlike |= (form[i].head ^ w[0]) | (form[i].dims ^ w[1]);
  if (unlike != 0) return false;
  const auto placed = [&](uint32_t i, uint32_t j) {
    w += 2;
    return address[j] - address[i] - w[-2] <= w[-1];
  };
  bool apart = true;
  if (written == 1) {  // as of most ops
    for (uint32_t j = 1; apart && j < n; ++j) apart = placed(0, j);
  } else {
    apart = each_pair(n, written, placed);
  }
  return apart && (m.more == 0 || same_more(m, *this, cells, w));
}

namespace {

// The bytes that a tensor covers, relative to its address.
struct Extent {
  int64_t low = 0, high = 0;
};

// Leaves `to` as it is if the tensor is empty. Returns false on overflow.
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

// Sets which low address bits a call of the form has. Returns false if that cannot be stored.
bool write_alignments(CallMemo& m, const CallForm& form) noexcept {
  if (form.any_bit % YARD_MAX_ALIGN == 0) {
    m.zero_bits = YARD_MAX_ALIGN - 1;
    return true;
  }
  if (form.tensors > CallMemo::kAlignable) return false;
  m.more |= CallMemo::kAlignment;
  for (uint32_t i = 0; i < form.tensors; ++i) {
    if (form.tensor[i] == nullptr) continue;
    // The lowest bit that is set, and zeros below. Beyond YARD_MAX_ALIGN nothing is asked.
    const uint64_t low = form.address[i] | YARD_MAX_ALIGN, bit = low & (0 - low);
    const uint64_t mask = bit == YARD_MAX_ALIGN ? bit - 1 : 2 * bit - 1;
    m.align_mask |= mask << (8 * i);
    m.align |= (bit & mask) << (8 * i);
  }
  return true;
}

// Writes what calls of the form are compared with. Returns false if the form cannot be stored.
bool write_form(CallMemo& m, const CallForm& form, const Entry& entry, const Cells& cells) {
  m.tags = form.tags;
  m.tensors = static_cast<uint8_t>(form.tensors);
  m.written = static_cast<uint16_t>(form.written);
  uint32_t used = 0;
  const auto put = [&](uint64_t w) {
    if (used == CallMemo::kWords) return false;
    m.words[used++] = w;
    return true;
  };
  std::optional<Extent> extents[CallForm::kTensors];
  for (uint32_t i = 0; i < form.tensors; ++i) {
    if (form.tensor[i] != nullptr && !extent_of(*form.tensor[i], extents[i])) return false;
    if (!put(form.form[i].head) || !put(form.form[i].dims)) return false;
    if (!form.form[i].is_exact()) m.more |= CallMemo::kLong;
  }
  const auto put_pair = [&](uint32_t i, uint32_t j) {
    const auto &a = extents[i], &b = extents[j];
    if (!a || !b) return put(0) && put(~uint64_t{0});
    const uint64_t distance = form.address[j] - form.address[i];
    const uint64_t after = word(a->high - b->low), before = word(b->high - a->low);
    const uint64_t width = 0 - after - before;
    if (distance - after <= width) return put(after) && put(width);
    return put(distance) && put(0);
  };
  if (!each_pair(form.tensors, form.written, put_pair)) return false;
  if (entry.recipe().reads_alignment() && !write_alignments(m, form)) return false;
  if (entry.recipe().reads_scalars() || entry.program().checks_scalars()) {
    m.more |= CallMemo::kScalars;
    for (uint32_t i = 0; i < cells.count; ++i)
      if (cells.at[i].tag == YARD_TAG_STRING) return false;
  }
  return each_later_word(m.more, form, cells, put);
}

// The first of the places where a form may be.
CallMemo* set_of(CallMemos& memos, uint64_t hash) noexcept {
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

const CallMemo* find(const detail::ThreadHead& thread, const Site& site, const CallForm& form,
                     const Cells& cells) noexcept {
  CallMemos& memos = *thread.memos;
  const auto is_it = [&](const CallMemo& m) __attribute__((always_inline)) {
    return m.hash == form.hash && m.site == site.id && m.scope == thread.scope &&
           form.is_of(m, cells);
  };
  CallMemo& home = memos.of[CallMemos::home(form.hash)];
  if (is_it(home)) [[likely]]
    return &home;
  CallMemo* const set = set_of(memos, form.hash);
  for (CallMemo* m = set; m != set + CallMemos::kWays; ++m) {
    if (m == &home || !is_it(*m)) continue;
    if (++memos.hits_away % CallMemos::kPromoted != 0) return m;
    std::swap(home, *m);
    return &home;
  }
  return nullptr;
}

bool seen_before(base::ThreadRecord& thread, const CallForm& form) noexcept {
  if (form.hash == 0) return false;
  if (thread.memos == &detail::kNoMemos) {
    // Zeroed pages cost nothing until they are used.
    void* const made = ::mmap(nullptr, sizeof(CallMemos), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return false;
    base::set_thread_exit_hook(kThreadLocal, free_memos);
    thread.locals[kThreadLocal] = made;
    thread.memos = static_cast<CallMemos*>(made);
  }
  return thread.memos->seen_before(form.hash);
}

void remember(base::ThreadRecord& thread, const Site& site, const CallForm& form,
              const Route& route, const Cells& cells) {
  if (route.found == MemoVersion::kNever) return;
  // Written apart first: a form that cannot be stored replaces no other.
  CallMemo made;
  if (!write_form(made, form, *static_cast<const Entry*>(route.entry), cells)) return;
  made.route = route;
  made.site = site.id;
  made.scope = thread.scope;
  made.hash = form.hash;
  made.calls = &detail::counter(thread, route.counter);
  *place_for(*thread.memos, form.hash, site.id, thread.scope) = made;
}

void forget_memos() noexcept {
  if (detail::t_thread == nullptr) return;
  base::ThreadRecord& thread = base::this_thread();
  thread.memos = &detail::kNoMemos;
  if (void* const memos = std::exchange(thread.locals[kThreadLocal], nullptr)) free_memos(memos);
}

}  // namespace yard::dispatch
