// SPDX-License-Identifier: Apache-2.0
#include "health/probe_slots.h"

namespace yard::health {
namespace {

// The word: four flags and four numbers of 15 bits. Every transition is one exchange.
constexpr uint64_t kBusy = 1, kStale = 2, kFaulted = 4, kActive = 8;
constexpr unsigned kEntered = 4, kSuccesses = 19, kCalls = 34, kNeeded = 49;
constexpr uint64_t kMask = (1u << 15) - 1;

constexpr uint64_t get(uint64_t word, unsigned at) { return word >> at & kMask; }
constexpr uint64_t put(uint64_t value, unsigned at) {
  return (value < kMask ? value : kMask) << at;
}

ProbeSlots::Result result_of(uint64_t word) {
  if ((word & kActive) == 0) return ProbeSlots::Result::kNone;
  if ((word & kFaulted) != 0) return ProbeSlots::Result::kReopen;
  return get(word, kSuccesses) >= get(word, kNeeded) ? ProbeSlots::Result::kClose
                                                     : ProbeSlots::Result::kNone;
}

bool admits(uint64_t word) {
  return (word & kActive) != 0 && (word & kBusy) == 0 &&
         result_of(word) == ProbeSlots::Result::kNone && get(word, kEntered) < get(word, kCalls);
}

// When a phase ends, a probe inside becomes stale.
uint64_t make_stale(uint64_t word) { return (word & kBusy) != 0 ? kBusy | kStale : 0; }

// Replaces the word by f(word); returns the new one.
template <class F>
uint64_t change(std::atomic<uint64_t>& word, F f) noexcept {
  uint64_t before = word.load(std::memory_order_relaxed), after = f(before);
  while (!word.compare_exchange_weak(before, after, std::memory_order_acq_rel,
                                     std::memory_order_relaxed))
    after = f(before);
  return after;
}

}  // namespace

bool ProbeSlots::try_enter() noexcept {
  uint64_t word = word_.load(std::memory_order_relaxed);
  do {
    if (!admits(word)) return false;
  } while (!word_.compare_exchange_weak(word, (word | kBusy) + put(1, kEntered),
                                        std::memory_order_acq_rel, std::memory_order_relaxed));
  return true;
}

bool ProbeSlots::leave(ErrorClass outcome) noexcept {
  bool counted = false;
  const uint64_t now = change(word_, [&](uint64_t word) {
    const bool stale = (word & kStale) != 0 || (word & kBusy) == 0;
    counted = !stale && (outcome == ErrorClass::kOk || outcome == ErrorClass::kFault);
    word &= ~(kBusy | kStale);
    if (counted && outcome == ErrorClass::kFault) word |= kFaulted;
    if (counted && outcome == ErrorClass::kOk) word += put(1, kSuccesses);
    return word;
  });
  return counted && result_of(now) != Result::kNone;
}

void ProbeSlots::begin(uint32_t calls, uint32_t successes_needed) noexcept {
  change(word_, [&](uint64_t word) {
    return kActive | put(calls, kCalls) | put(successes_needed, kNeeded) | make_stale(word);
  });
}

void ProbeSlots::next_period(uint32_t calls) noexcept {
  change(word_, [&](uint64_t word) {
    return (word & ~(kMask << kEntered | kMask << kCalls)) | put(calls, kCalls);
  });
}

void ProbeSlots::end() noexcept { change(word_, make_stale); }

ProbeSlots::Result ProbeSlots::result() const noexcept {
  return result_of(word_.load(std::memory_order_acquire));
}
bool ProbeSlots::busy() const noexcept {
  return (word_.load(std::memory_order_acquire) & kBusy) != 0;
}
bool ProbeSlots::would_admit() const noexcept {
  return admits(word_.load(std::memory_order_acquire));
}

}  // namespace yard::health
