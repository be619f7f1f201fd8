// SPDX-License-Identifier: Apache-2.0
// Regular expressions for rules. The whole text must match. Matching takes time proportional to the
// text for every pattern, and little stack.
//
//   alternatives  a|b      groups  (a)  (?:a)     any character  .
//   repetition    * + ? {n} {n,} {n,m}
//   classes       [a-z_]  [^0-9]  \d \D \w \W \s \S      \ quotes any other character
//   ^ at the beginning and $ at the end are allowed and change nothing
//
// Characters are bytes. Bytes beyond ASCII are allowed except in a class.
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

  static Result<Regex> compile(std::string_view pattern);

  bool matches(std::string_view text) const;

 private:
  friend class RegexCompiler;
  struct State {
    enum class Op : uint8_t { kClass, kBranch, kEnd };
    Op op = Op::kEnd;
    uint32_t x = 0, y = 0;        // the next states; kClass has only `x`
    std::bitset<256> bytes = {};  // kClass
  };
  std::vector<State> states_;
};

}  // namespace yard::policy
