// SPDX-License-Identifier: Apache-2.0
// Recipes: what of a call goes into its key, so that calls which every reader treats alike share a plan.
//
// A recipe is compiled from what the contest's contenders say they read. `hidden % 8 == 0` adds one
// bit; a dimension nobody reads adds nothing; a cost hint adds the half octave of each field it sees; a
// verifier that does not say what it reads makes everything part of the key. Keys are compared word by
// word, so a shape class is exact and never a matter of hashing.
#pragma once

#include <yard/plugin.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "op/field.h"
#include "select/contest.h"

namespace yard::dispatch {

struct Key {
  static constexpr uint32_t kMaxWords = 56;
  uint64_t hash;
  uint32_t words;
  uint64_t w[kMaxWords];
};

class Recipe {
 public:
  static Recipe compile(const select::Contest& contest);

  // The key of a call that fits its schema. False when it would not fit into a Key: such calls are
  // selected for anew each time. No allocation, no lock.
  bool fold(const yard_value_t* args, uint32_t flags, Key& key) const noexcept {
    for (uint32_t i = 0; i < fixed_words_; ++i) key.w[i] = 0;
    key.w[0] = flags & kFlagMask;
    for (const Facts& f : facts_) {
      const yard_value_t& v = args[f.arg];
      const uint64_t facts = v.tag == YARD_TAG_TENSOR ? v.u.tensor->facts & f.mask : 0;
      key.w[f.word] |= facts << f.shift;
    }
    for (const Test& t : tests_) key.w[t.word] |= static_cast<uint64_t>(holds(t, args)) << t.shift;
    key.words = fixed_words_;
    if (more_) [[unlikely]]
      if (!fold_more(args, key)) return false;
    uint64_t h = key.w[0] * kMix;
    for (uint32_t i = 1; i < key.words; ++i) h = (std::rotl(h, 29) ^ key.w[i]) * kMix;
    key.hash = h ^ (h >> 32);
    return true;
  }

  // Whether scalars (other than by a test that bind() can make once) are part of the key: a bound handle
  // must then look its plan up.
  bool reads_scalars() const noexcept { return reads_scalars_; }

  // How many bits of a call tell classes apart, not counting what is read whole; for tests and docs.
  uint32_t tests() const noexcept { return static_cast<uint32_t>(tests_.size()); }

 private:
  friend class RecipeCompiler;
  static constexpr uint64_t kMix = 0x9e3779b97f4a7c15ull;
  static constexpr uint32_t kFlagMask = 31;  // YARD_CALL_*
  static constexpr uint32_t kFlagBits = 5;

  // Bits of one tensor's facts word.
  struct Facts {
    uint32_t mask;
    uint8_t arg, word, shift;
  };
  // One bit: a limit's predicate.
  struct Test {
    uint32_t kind;  // YARD_LIMIT_*
    uint8_t arg, word, shift;
    int64_t a, b;
    op::Field field;
  };
  struct Bucket {
    uint8_t word, shift;
    op::Field field;
  };

  static bool holds(const Test& t, const yard_value_t* args) noexcept {
    switch (t.kind) {
      case YARD_LIMIT_ABSENT: return args[t.arg].tag == YARD_TAG_NONE;
      case YARD_LIMIT_ALIGN:
      case YARD_LIMIT_RANK: {
        if (args[t.arg].tag != YARD_TAG_TENSOR) return true;
        const uint64_t f = args[t.arg].u.tensor->facts;
        if (t.kind == YARD_LIMIT_ALIGN)
          return static_cast<int64_t>((f & YARD_FACTS_ALIGN) >> YARD_FACTS_ALIGN_SHIFT) >= t.a;
        const auto rank = static_cast<int64_t>((f & YARD_FACTS_RANK) >> YARD_FACTS_RANK_SHIFT);
        return rank >= t.a && rank <= t.b;
      }
      default: break;
    }
    const int64_t v = op::read(t.field, args);
    if (v == op::kAbsent) return true;
    switch (t.kind) {
      case YARD_LIMIT_MIN: return v >= t.a;
      case YARD_LIMIT_MAX: return v <= t.a;
      case YARD_LIMIT_MULTIPLE: return v % t.a == 0;
      default: return v == t.a;  // YARD_LIMIT_EQUALS
    }
  }

  bool fold_more(const yard_value_t* args, Key& key) const noexcept;

  uint32_t fixed_words_ = 1;
  bool more_ = false;  // buckets, exact fields or whole arguments
  bool oversize_ = false;
  bool reads_scalars_ = false;
  std::vector<Facts> facts_;
  std::vector<Test> tests_;
  std::vector<Bucket> buckets_;
  std::vector<op::Field> exact_;  // one word each
  std::vector<uint8_t> whole_;    // arguments of which everything counts
};

}  // namespace yard::dispatch
