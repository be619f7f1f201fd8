// SPDX-License-Identifier: Apache-2.0
// A recipe computes the key of a call. Calls that the selector cannot tell apart have equal keys
// and share a plan. The recipe is compiled from the predicates and fields that the candidates of an
// op list: `hidden % 8 == 0` adds a bit, a cost hint the half octave of each field it reads, and a
// verifier without a list of fields everything. Full keys are compared, so shape classes are exact.
//
// The first word holds the call's flags, up to 26 tests and the dtype and device of one tensor.
// Most ops need only this word, which is computed without a branch for each kind of test.
#pragma once

#include "select/candidate_set.h"

namespace yard::dispatch {

struct Key {
  static constexpr uint32_t kMaxWords = 56;
  uint64_t hash;
  uint32_t words;
  uint64_t w[kMaxWords];
};

class Recipe {
 public:
  static Recipe compile(const select::CandidateSet& candidates);

  // Computes the key of a call that fits its schema. Returns false if a Key has no room for it, and
  // then each call needs a selection. Allocates nothing and takes no lock.
  bool fold(const yard_value_t* args, uint32_t flags, Key& key) const noexcept {
    const uint64_t facts = lead_ == kNoLead ? 0 : args[lead_].u.tensor->facts & lead_mask_;
    const Test* test = tests_.data();
    uint64_t bits = 0;
    const Group* g = groups_.data();
    for (uint32_t n = first_groups_; n > 0; --n, ++g) bits = fold_group(*g, test, bits, args);
    key.w[0] = (facts << 32) | (bits << kFlagBits) | (flags & kFlagMask);
    key.words = 1;
    key.hash = mix(0, key.w[0]);
    return !longer_ || fold_rest(args, key);
  }

  // If scalars are part of the key, a bound handle must look its plan up at each call.
  bool reads_scalars() const noexcept { return reads_scalars_; }
  bool reads_alignment() const noexcept { return reads_alignment_; }
  uint32_t tests() const noexcept { return static_cast<uint32_t>(tests_.size()); }

 private:
  friend class RecipeCompiler;
  static constexpr uint64_t kMix = 0x9e3779b97f4a7c15ull;
  static constexpr uint32_t kFlagBits = 6;
  static constexpr uint32_t kFlagMask = (1u << kFlagBits) - 1;
  static constexpr uint32_t kFirstTests = 32 - kFlagBits;
  static constexpr uint8_t kNoLead = 255;

  // One bit: whether ((v ^ x) + y) & m == 0 for a value v. This covers thresholds (the sign of v -
  // a), multiples of a power of two, equality, and single bits of a facts word.
  struct Test {
    uint64_t x = 0, y = 0, m = 0;
    uint64_t pad_ = 0;  // makes the size a power of two, so that stepping is one instruction

    bool operator==(const Test&) const = default;
  };
  // Consecutive tests of one value.
  struct Group {
    enum class Source : uint8_t { kDim, kFacts, kProduct, kPredicate };
    Source source = Source::kPredicate;
    uint8_t arg = 0, axis = 0;
    uint8_t count = 0;       // how many tests, at least one
    uint32_t predicate = 0;  // for kPredicate: index into predicates_; v is 0 if it holds, else 1

    bool operator==(const Group&) const = default;
  };
  // Dtype or device bits of a tensor other than the lead.
  struct Facts {
    uint32_t mask;
    uint8_t arg;
  };

  static uint64_t mix(uint64_t h, uint64_t word) noexcept {
    h = (std::rotl(h, 29) ^ word) * kMix;
    return h ^ (h >> 32);
  }

  uint64_t fold_group(const Group& g, const Test*& test, uint64_t bits,
                      const yard_value_t* args) const noexcept {
    const yard_tensor_t* t = args[g.arg].u.tensor;
    uint64_t v;
    if (g.source == Group::Source::kDim) [[likely]] {
      v = static_cast<uint64_t>(t->shape[t->ndim - g.axis]);
    } else if (g.source == Group::Source::kFacts) {
      v = t->facts;
    } else if (g.source == Group::Source::kProduct) {
      v = 1;
      for (int32_t i = t->ndim - g.axis - 1; i >= 0; --i) v *= static_cast<uint64_t>(t->shape[i]);
    } else {
      v = op::holds(predicates_[g.predicate], args) ? 0 : 1;
    }
    const Test* const end = test + g.count;
    do {
      bits = bits * 2 + ((((v ^ test->x) + test->y) & test->m) == 0);
    } while (++test != end);
    return bits;
  }
  [[gnu::noinline]] bool fold_rest(const yard_value_t* args, Key& key) const noexcept;

  bool longer_ = false;     // the key has more than one word
  uint8_t lead_ = kNoLead;  // the tensor whose dtype and device are in the first word
  uint32_t lead_mask_ = 0;
  uint32_t first_groups_ = 0;  // groups whose tests are in the first word
  std::vector<Group> groups_;
  std::vector<Test> tests_;
  bool oversize_ = false;  // no call has a key
  bool reads_scalars_ = false;
  bool reads_alignment_ = false;
  std::vector<op::Predicate> predicates_;  // predicates that Test cannot express
  std::vector<Facts> facts_;
  std::vector<op::Field> half_octaves_;
  std::vector<op::Field> exact_;                     // one word each
  std::vector<uint8_t> whole_;                       // arguments that verifiers read entirely
  std::shared_ptr<const policy::Conditions> rules_;  // null if no rule reads arguments
};

}  // namespace yard::dispatch
