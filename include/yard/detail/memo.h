// SPDX-License-Identifier: Apache-2.0
// Call memos, in which a thread remembers its calls. Not for direct use.
//
// A memo maps the exact form of a call (site, scope, and each tensor's device, dtype, rank, sizes,
// strides, alignment and distance from written ones) to the route to its kernel. It belongs to its
// thread, owns nothing, and is valid while the op's version is equal to the stored one.
#pragma once

#include <yard/detail/guard.h>
#include <yard/tensor.h>

namespace yard::detail {

class Core;

// An op of a runtime with a checked C++ signature, or for packed calls. Lives as long as its core.
struct Site {
  Core* core;
  uint64_t id;                       // of the op, shared by its sites; unique in the process, not 0
  std::atomic<uint32_t> index{0};    // of the op in snapshots
  std::atomic<uint32_t> count{0};    // of parameters
  std::atomic<uint32_t> tensors{0};  // bit n is set if parameter n is a tensor
  std::atomic<uint32_t> written{0};  // bit n is set if the n-th tensor is written
  bool typed;                        // its tensors belong to TensorViews
  std::string name, letters;
  Site* next = nullptr;
};

// The way from a call to its kernel, in memos and bound handles. Valid while `version` is `found`.
struct Route {
  const std::atomic<uint64_t>* version = nullptr;  // of the op, or of all overlays of its runtime
  uint64_t found = 0;
  const void* entry = nullptr;    // of the op; keeps the plan while it is held
  const void* plan = nullptr;     // null if it must be looked up for each call
  void (*typed)(void) = nullptr;  // the kernel's typed entry; if null, the library runs the plan
  const yard_host_t* host = nullptr;
  void* self = nullptr;
  uint32_t flags = 0;  // YARD_CALL_*
  uint32_t counter = 0;

  // Call this after the guard has announced the entry or the route of a bound handle.
  bool is_current() const noexcept { return version->load(kReread) == found; }
};

[[gnu::always_inline]] inline bool is_likely(bool condition) noexcept {
  return __builtin_expect(condition, true);
}

inline uint64_t word_at(const void* p) noexcept {
  uint64_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

// A remembered form. dispatch/memo.h describes `words`.
struct alignas(64) CallMemo {
  static constexpr uint32_t kWords = 80;
  enum More : uint8_t { kScalars = 1, kLong = 2, kAlignment = 4 };

  Route route;
  uint64_t hash = 0;
  uint64_t site = 0;  // Site::id; 0 if the memo is empty
  uint64_t scope = 0;
  // Address bits that must be 0 in every tensor, for the largest alignment that a kernel reads.
  uint64_t zero_bits = 0;
  ThreadHead::Value* calls = nullptr;  // this thread's counter of the plan's class
  uint64_t tags = 0;                   // of the cells; typed calls know theirs
  uint32_t tensors = 0;                // CallForm::tensors; typed calls know theirs
  uint8_t more = 0;
  alignas(64) uint64_t words[kWords] = {};
  // Byte n of `align_mask` has the address bits of tensor n that must be equal to `align`.
  static constexpr uint32_t kAlignable = 8;  // tensors
  uint64_t align_mask = 0, align = 0;
};
static_assert(YARD_MAX_ALIGN <= 256, "the bits of an alignment are a byte");

// A thread's memos. A form is in its home, in the place beside it, or in two more around these.
struct CallMemos {
  static constexpr uint32_t kCount = 256, kWays = 4;
  CallMemo of[kCount];
  static constexpr uint32_t kSeenSets = 64, kSeenWays = 4;
  uint32_t seen[kSeenSets][kSeenWays] = {};
  uint32_t next_victim = 0;
  // Device and dtype of the last raw tensor, and their part of its form (dispatch/memo.h).
  uint64_t last_device = 0, last_type = 0;
  uint32_t last_dtype = 0;
  // A memo moves to its home after this many hits elsewhere.
  static constexpr uint32_t kPromoted = 16;
  uint32_t hits_away = 0;

  // Only forms that come again get memos, so growing sequences neither store nor evict memos.
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
  // Returns a memo in its home or beside it, or null. The library searches the other places.
  [[gnu::always_inline]] const CallMemo* find(uint64_t hash, uint64_t site,
                                              uint64_t first_word) const noexcept {
    const CallMemo* m = of + home(hash);
    asm("" : "+r"(m));  // keeps g++ from computing the address again for every use
    // Compare the first word before the site: it differs more often.
    if (is_likely(m->words[0] == first_word) && is_likely(m->site == site)) return m;
    m = of + (home(hash) ^ 1);
    asm("" : "+r"(m));
    return m->words[0] == first_word && m->site == site ? m : nullptr;
  }
};
static_assert(sizeof(CallMemo) == 832,
              "a few cache lines, and no power of two: sets spread over the cache");

// Begins the hash of a call. `dims` is the sum over all tensors.
[[gnu::always_inline]] inline uint64_t hash_begin(uint64_t site, uint64_t scope,
                                                  uint64_t dims) noexcept {
  return site ^ scope << 16 ^ std::rotr(dims, 42);
}
[[gnu::always_inline]] inline uint64_t hash_part(size_t n, uint64_t head) noexcept {
  return std::rotr(head, static_cast<int>(16 * n % 64));
}
[[gnu::always_inline]] inline uint64_t in_place_part(bool in_place) noexcept {
  return uint64_t{in_place} << 40;
}
// A search found the factor: 16 or 32 consecutive sizes, also in place or strided, differ in home.
[[gnu::always_inline]] inline uint64_t hash_end(const ThreadHead& thread, uint64_t hash) noexcept {
  return hash * thread.hash_factor;
}

}  // namespace yard::detail
