// SPDX-License-Identifier: Apache-2.0
// Regular expressions for rules: a subset that is matched in time proportional to the text, for every pattern, and
// with little stack. The whole text must match.
//
//   alternatives  a|b      groups  (a)  (?:a)     any character  .
//   repetition    * + ? {n} {n,} {n,m}
//   classes       [a-z_]  [^0-9]  \d \D \w \W \s \S      \ before any other character: that character
//   ^ at the beginning and $ at the end are allowed and change nothing
//
// Characters are bytes; those beyond ASCII are allowed except in a class.
#pragma once

#include <yard/status.h>

#include <bitset>
#include <vector>

namespace yard::policy {

class Regex {
 public:
  static constexpr size_t kMostPattern = 256;  // bytes
  static constexpr size_t kMostStates = 2000;  // after expanding repetitions
  static constexpr uint32_t kMostRepeat = 100;

  // Failures are kParse: the problem, its place, and what was expected.
  static Result<Regex> compile(std::string_view pattern);

  // Threads may call it at once.
  bool matches(std::string_view text) const;

 private:
  friend class RegexCompiler;
  struct State {
    enum class Op : uint8_t { kClass, kSplit, kJump, kEnd };
    Op op = Op::kEnd;
    uint32_t x = 0, y = 0;  // where to go on; kClass: x, by class y
  };
  std::vector<State> states_;
  std::vector<std::bitset<256>> classes_;
};

}  // namespace yard::policy
