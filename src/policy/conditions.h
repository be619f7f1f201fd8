// SPDX-License-Identifier: Apache-2.0
// The compiled conditions of an op's rules.
//
// A condition becomes a test of one field of the call, or the opposite of a test. Equal tests are
// stored once and evaluated once per call. Axes list the fields that tests read. Calls that are in
// the same class on every axis pass the same conditions, so a cache key needs only the classes
// (fold()), however many rules there are.
#pragma once

#include <yard/config.h>

#include "policy/fields.h"
#include "policy/regex.h"

namespace yard::policy {

// A predicate on the value of one axis.
struct Test {
  enum class Kind : uint8_t {
    kInteger,      // `integer` holds
    kOneOf,        // one of the integers
    kTextOneOf,    // one of the texts
    kGlob,         // matches one of the texts; a device matches as `cuda` or as `cuda:0`
    kRegex,        // matches one of the regular expressions
    kDeviceOneOf,  // one of the integers: type << 16 | (index + 1, or 0 for any)
  };
  Kind kind = Kind::kOneOf;
  FieldType of = FieldType::kWhole;  // kGlob and kRegex: kDevice, kPlatform or text
  uint16_t axis = 0;
  op::IntegerTest integer = {};
  std::vector<int64_t> integers = {};  // ascending
  std::vector<std::string> texts = {};
  std::vector<Regex> regexes = {};  // compiled from the texts

  bool is_pattern() const noexcept { return kind == Kind::kGlob || kind == Kind::kRegex; }
  bool holds(const AxisValue& v) const;
  bool holds_for(std::string_view text) const;
  void add_cuts(std::vector<int64_t>& to) const;
  bool operator<(const Test& o) const;
};

// Conditions that must all hold. A literal is 2 * test, or 2 * test + 1 for its opposite. The
// literal that the fewest conjunctions have is stored again before the first, because most
// conjunctions that do not hold fail there.
struct Conjunction {
  uint32_t first = 0, count = 0;
};

// Immutable. Borrows nothing.
class Conditions {
 public:
  std::span<const Axis> axes() const noexcept { return axes_; }
  std::span<const Test> tests() const noexcept { return tests_; }
  std::span<const uint32_t> literals(Conjunction c) const {
    return std::span(literals_).subspan(c.first, c.count);
  }
  bool reads_scalars() const noexcept { return reads_scalars_; }
  bool reads_labels() const noexcept { return reads_labels_; }

  void read(const CallView& call, std::vector<AxisValue>& values) const;
  // Sets one byte of `truth` for each literal, and one for conjunctions without conditions.
  void evaluate(const std::vector<AxisValue>& values, std::vector<uint8_t>& truth) const;
  bool hold(Conjunction c, const std::vector<uint8_t>& truth) const noexcept {
    for (uint32_t i = c.first - 1; i < c.first + c.count; ++i)
      if (truth[literals_[i]] == 0) return false;
    return true;
  }

  uint32_t key_words() const noexcept { return key_words_; }
  // Calls with equal words, device and flags pass the same conditions.
  void fold(const CallView& call, uint64_t* words) const;

 private:
  friend class ConditionCompiler;
  // Tests of one axis for a binary search: all `>= n`, all `== n`, or comparisons with one text.
  struct Run {
    uint16_t axis = 0;
    bool at_least = false;
    uint32_t first = 0, count = 0;  // tests
  };
  void answer(const Run& run, const AxisValue& v, uint8_t* truth) const;

  std::vector<uint32_t> literals_;
  std::vector<Axis> axes_;
  std::vector<Test> tests_;  // the tests of runs_ come first
  std::vector<Run> runs_;
  uint32_t in_runs_ = 0;  // tests
  uint32_t key_words_ = 0;
  bool reads_scalars_ = false, reads_labels_ = false;
};

struct Wrong {
  std::string found, right;
};

class ConditionCompiler {
 public:
  explicit ConditionCompiler(Conditions& to) : to_(to) { to_.literals_.push_back(0); }

  // Adds a condition to the current conjunction. Returns false and sets `wrong` if it is invalid.
  bool add(const OpField& field, Operator op, const Condition& condition, Wrong& wrong);
  // Ends the current conjunction, or drops its conditions.
  Conjunction end();
  void drop() { to_.literals_.resize(begin_); }
  // Call this after the last conjunction.
  void finish();

 private:
  uint16_t axis_of(const OpField& field);
  void finish_literals(const std::vector<uint32_t>& moved);

  Conditions& to_;
  size_t begin_ = 1;
  std::vector<Conjunction> all_;
  std::map<Test, uint32_t> tests_;  // and their order of insertion
};

}  // namespace yard::policy
