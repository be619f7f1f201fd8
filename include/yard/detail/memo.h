// SPDX-License-Identifier: Apache-2.0
// The call memo: what a thread remembers of the calls it makes, shared by the library and the inline part
// of a typed call. Not for direct use.
//
// A decoder makes the same calls again and again: a few shapes, some in place, some on strided rows. The memo
// maps the exact form of a call (site, scope, and of every tensor device, dtype, rank, sizes, strides, the
// alignment that matters, and where written tensors lie relative to the others) to the route to its kernel.
// A call of a known form needs no schema check and no key: they gave this route before. A memo belongs to its
// thread and owns nothing. It is valid only while the op's version is the one it was stored under.
#pragma once

#include <yard/detail/guard.h>
#include <yard/plugin.h>
#include <yard/tensor.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

namespace yard::detail {

class Core;

// An op of a runtime as one caller calls it: by a checked C++ signature, or packed. Lives as long as its
// core; found again after fork().
struct Site {
  Core* core;
  uint64_t id;                  // unique in the process, never 0
  uint32_t count;               // arguments
  std::atomic<uint32_t> index;  // of the op in snapshots
  bool typed;                   // the signature was checked: tags need no look
  uint8_t leading;              // tensors, if they come first and are always there; else 0
  std::string name, letters;
  Site* next = nullptr;
};

// From a call to its kernel, valid while `version` holds `found`. Memos and bound handles consist of one.
struct Route {
  const std::atomic<uint64_t>* version = nullptr;  // of the op, or of all overlays of its runtime
  uint64_t found = 0;
  const void* entry = nullptr;    // of the op; keeps the plan while it is held
  const void* plan = nullptr;     // null: to be looked up for each call
  void (*typed)(void) = nullptr;  // the kernel's typed entry; null: the plan runs packed
  const yard_host_t* host = nullptr;
  void* self = nullptr;
  uint32_t flags = 0;  // YARD_CALL_*
  uint32_t counter = 0;

  // To be asked after the guard has announced the entry (or the node of a bound handle).
  bool is_current() const noexcept { return version->load(kReread) == found; }
};

inline uint64_t address_of(const yard_tensor_t& t) noexcept {
  return reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
}
inline uint64_t word_at(const void* p) noexcept {
  uint64_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

// One remembered form. `words` holds, in this order:
// - for each tensor, in a typed call: the two words of its TensorView::Form, 0 if it is absent; in a packed one six:
//   device; rank and dtype; of its sizes and strides the first and the last of each (see is_usual() in
//   dispatch/memo.h) or the first four, 0 where the rank leaves them open or strides are null
// - for each pair of tensors of which one is written: `low` and `width`. The second tensor's address minus
//   the first one's, minus `low`, must be at most `width` (unsigned). That says "apart" as well as "at
//   exactly this distance", which covers in-place calls and interleaved slices of one buffer. In a packed call
//   the first is one that is written.
// - with kScalars, for each integer, number and boolean: its payload
// - with kLong: in a typed call, where some form is inexact, device, rank and dtype, sizes and strides of every tensor;
//   in a packed one the sizes and strides beyond the first four
// Tensors are the parameters of a typed call, in order; those given, in a packed one.
//
// A memo may also stand for a range of forms of typed calls, which differ in the first size of some tensors: a sequence
// that grows. Then `words` holds four for each tensor: its form, without the first size if that varies; how many bytes
// it covers for each unit of that size, and beside that.
struct alignas(64) CallMemo {
  static constexpr uint32_t kWords = 80, kTensors = 16;
  static constexpr uint32_t kPerTensor = 2, kPerPackedTensor = 6, kPerRangeTensor = 4;
  // kOdd: a packed call that has strings, or tensors that are not of rank 1 or 2 with strides.
  enum More : uint8_t { kScalars = 1, kLong = 2, kOdd = 4, kAlignment = 8 };

  Route route;
  uint64_t hash = 0;
  uint64_t site = 0;  // its id, and kPacked for packed calls; 0: empty
  static constexpr uint64_t kPacked = uint64_t{1} << 63;
  uint64_t scope = 0;
  // Address bits that are 0 in every tensor: their alignment, where it counts and is the most that is asked for.
  uint64_t zero_bits = 0;
  ThreadHead::Value* calls = nullptr;  // this thread's counter of the kernel
  uint8_t more = 0;
  uint8_t arg_count = 0;
  uint16_t written = 0, null_strides = 0;  // bit n is tensor n of a packed call
  uint64_t in_place = 0;  // of a range, bit n: the n-th pair is at one address; others are apart
  uint64_t low = 0;       // of a range: the least first size, and how much more it may be
  alignas(64) uint64_t words[kWords] = {};
  uint64_t width = 0;
  // With kAlignment, where some are less aligned. Byte n of `align_mask`: which of the low address bits of tensor n must
  // be those in `align`.
  static constexpr uint32_t kAlignable = 8;  // tensors
  uint64_t align_mask = 0, align = 0;
  uint8_t tags[YARD_MAX_ARGS] = {};  // of packed arguments
};
static_assert(YARD_MAX_ALIGN <= 256, "the bits of an alignment are a byte");

// A thread's memos. A form has a home, a place beside it, and two more around these. Forms beyond that replace each other.
struct CallMemos {
  static constexpr uint32_t kCount = 256, kWays = 4;
  CallMemo of[kCount];
  static constexpr uint32_t kRanges = 64;
  CallMemo ranges[kRanges];
  // Hashes seen of late.
  static constexpr uint32_t kSeenSets = 64, kSeenWays = 4;
  uint32_t seen[kSeenSets][kSeenWays] = {};
  uint32_t next_victim = 0;
  // Every so many hits away from home a memo is moved there; every so many forms that a range in use leaves out, it is
  // replaced.
  static constexpr uint32_t kPromoted = 16, kReplaced = 8;
  uint32_t hits_away = 0, left_out = 0;

  // Whether a form of this hash came not long ago. Only then is it worth a memo of its own: a growing sequence neither
  // pays for storing nor evicts what is used.
  bool seen_before(uint64_t hash) noexcept {
    const auto tag = static_cast<uint32_t>(hash >> 26) | 1;
    uint32_t(&set)[kSeenWays] = seen[(hash >> 50) % kSeenSets];
    for (const uint32_t s : set)
      if (s == tag) return true;
    set[next_victim++ % kSeenWays] = tag;
    return false;
  }

  static constexpr uint32_t home(uint64_t hash) noexcept {
    return static_cast<uint32_t>(hash >> 56);
  }
  // The memo of a site whose words begin so: at home, or beside it. The other places are for the long way. Null: none.
  [[gnu::always_inline]] const CallMemo* find(uint64_t hash, uint64_t site,
                                              uint64_t first_word) const noexcept {
    const CallMemo* m = of + home(hash);
    asm("" : "+r"(m));  // or g++ computes the address again for every use
    if (((m->site ^ site) | (m->words[0] ^ first_word)) == 0) [[likely]]
      return m;
    m = of + (home(hash) ^ 1);
    asm("" : "+r"(m));
    return ((m->site ^ site) | (m->words[0] ^ first_word)) == 0 ? m : nullptr;
  }
  CallMemo& range(uint64_t hash) noexcept { return ranges[hash >> 58]; }
  // The first of the places where a form may be.
  const CallMemo* set(uint64_t hash) const noexcept { return of + home(hash) / kWays * kWays; }
};
static_assert(sizeof(CallMemo) == 832,
              "a few cache lines, and no power of two: sets spread over the cache");

// The hash of a call is made from the forms of its tensors. Calls that it cannot tell apart share a set.
// `dims`: the sum over all tensors.
[[gnu::always_inline]] inline uint64_t hash_begin(uint64_t site, uint64_t scope,
                                                  uint64_t dims) noexcept {
  return site ^ scope << 16 ^ std::rotr(dims, 42);
}
// What the n-th tensor adds. Apart from each other, so that they are made side by side.
[[gnu::always_inline]] inline uint64_t hash_part(size_t n, uint64_t head) noexcept {
  return std::rotr(head, static_cast<int>(16 * n % 64));
}
[[gnu::always_inline]] inline uint64_t in_place_part(bool in_place) noexcept {
  return uint64_t{in_place} << 40;
}
// The factor and the rotations were searched for: some 16 or 32 sizes in a row, in place and strided ones too, have homes
// of their own.
[[gnu::always_inline]] inline uint64_t hash_end(const ThreadHead& thread, uint64_t hash) noexcept {
  return hash * thread.hash_factor;
}

// Forms of a range have this in common.
[[gnu::always_inline]] inline uint64_t range_part(size_t n, uint64_t head) noexcept {
  return hash_part(n, head & ((uint64_t{1} << TensorView::Form::kFirst) - 1));
}

// The n-th of a tensor's sizes and strides.
[[gnu::always_inline]] inline uint64_t dim_word(const yard_tensor_t& t, int32_t n) noexcept {
  if (n < t.ndim) return static_cast<uint64_t>(t.shape[n]);
  return t.strides != nullptr ? static_cast<uint64_t>(t.strides[n - t.ndim]) : 0;
}
// Holds those from the n-th on against the words at `w`. Null if they differ, else past them.
inline const uint64_t* same_dims(const yard_tensor_t& t, int32_t n, const uint64_t* w) noexcept {
  for (; n < 2 * t.ndim; ++n)
    if (dim_word(t, n) != *w++) return nullptr;
  return w;
}

}  // namespace yard::detail
