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
  uint32_t id;                  // unique in the process; 0: calls are not memoised
  uint32_t count;               // arguments
  std::atomic<uint32_t> index;  // of the op in snapshots
  bool typed;                   // the signature was checked: tags need no look
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
// - for each tensor six: device; rank and dtype; the first four of its sizes and strides. What a rank leaves
//   open is 0, and so are strides that are null.
// - for each pair of tensors of which one is written: `low` and `width`. The second tensor's address minus
//   the first one's, minus `low`, must be at most `width` (unsigned). That says "apart" as well as "at
//   exactly this distance", which covers in-place calls and interleaved slices of one buffer.
// - with kAlignment, for each tensor: `value` and `mask` of the address bits that must be equal
// - with kScalars, for each integer, number and boolean: its payload
// - with kLong, for each tensor: the rest of its sizes and strides
// Tensors are the parameters of a typed call, in order; those given, in a packed one.
struct alignas(64) CallMemo {
  static constexpr uint32_t kWords = 80, kTensors = 16;
  static constexpr uint32_t kPerTensor = 6;
  enum More : uint8_t { kAlignment = 1, kScalars = 2, kLong = 4 };

  Route route;
  uint64_t key = 0;  // site and hash; 0: empty
  uint64_t scope = 0;
  ThreadHead::Value* calls = nullptr;  // this thread's counter of the kernel
  uint8_t more = 0;
  uint8_t arg_count = 0;
  // Bit n is tensor n: there (typed calls); written, without strides (packed calls).
  uint16_t present = 0, written = 0, null_strides = 0;
  uint8_t tags[YARD_MAX_ARGS] = {};  // of packed arguments
  uint8_t home = 0;                  // where it would be found first
  alignas(16) uint64_t words[kWords] = {};

  static uint64_t key_of(uint32_t site, uint64_t hash) noexcept {
    return (uint64_t{site} << 32) | static_cast<uint32_t>(hash >> 26);
  }
};

// A thread's memos. A form has a home, and may be in any of the four places around it. Forms beyond that replace each
// other.
struct CallMemos {
  static constexpr uint32_t kCount = 256, kWays = 4;
  CallMemo of[kCount];
  // Hashes seen of late: a form is stored when it comes a second time.
  static constexpr uint32_t kSeenSets = 64, kSeenWays = 4;
  uint32_t seen[kSeenSets][kSeenWays] = {};
  uint32_t next_victim = 0;

  static constexpr uint32_t home(uint64_t hash) noexcept {
    return static_cast<uint32_t>(hash >> 56);
  }
  // The first of the places where a form may be.
  const CallMemo* set(uint64_t hash) const noexcept { return of + home(hash) / kWays * kWays; }
};
static_assert(sizeof(CallMemo) == 768,
              "a few cache lines, and no power of two: sets spread over the cache");

// The hash of a call is made from those of its tensors' forms. Calls that it cannot tell apart share a set.
[[gnu::always_inline]] inline uint64_t hash_step(uint64_t hash, uint64_t word) noexcept {
  return std::rotr(hash, 11) ^ word;
}
[[gnu::always_inline]] inline uint64_t hash_begin(uint32_t site, uint64_t scope) noexcept {
  return site ^ scope << 16;
}

// Two words at once.
typedef uint64_t WordPair __attribute__((vector_size(16), may_alias));
typedef uint64_t UnalignedWordPair __attribute__((vector_size(16), aligned(8), may_alias));

// The n-th of a tensor's sizes and strides.
[[gnu::always_inline]] inline uint64_t dim_word(const yard_tensor_t& t, int32_t n) noexcept {
  if (n < t.ndim) return static_cast<uint64_t>(t.shape[n]);
  return t.strides != nullptr ? static_cast<uint64_t>(t.strides[n - t.ndim]) : 0;
}
// Holds those beyond the first four against the words at `w`. Null if they differ, else past them.
[[gnu::always_inline]] inline const uint64_t* same_rest(const yard_tensor_t& t,
                                                        const uint64_t* w) noexcept {
  for (int32_t n = 4; n < 2 * t.ndim; ++n)
    if (dim_word(t, n) != *w++) return nullptr;
  return w;
}

}  // namespace yard::detail
