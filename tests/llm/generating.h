// SPDX-License-Identifier: Apache-2.0
// Generations for tests: a model that the tests write, prompts, and their greedy tokens from a
// forward pass in float64 (expected.py). Every kernel must choose these tokens, because the second
// best token is always further away than the error of the kernels.
#pragma once

#include <gtest/gtest.h>
#include <yard/yard.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "model.h"

namespace llm {

using Ids = std::vector<int32_t>;

struct Expected {
  Ids prompt, tokens;
};

// Each line contains the tokens of a prompt, a bar, and the tokens that follow.
inline std::vector<Expected> read_expected(const std::string& path) {
  std::vector<Expected> all;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    Expected e;
    bool after = false;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      if (word == "|")
        after = true;
      else
        (after ? e.tokens : e.prompt).push_back(std::stoi(word));
    }
    all.push_back(std::move(e));
  }
  return all;
}

// Accepts the names of yard-chat --policy.
inline yard::Policy policy_named(const std::string& name) {
  yard::Policy p;
  if (name == "reference") p.reference_only = true;
  if (name == "simd") p.allow_kernels = {"default.simd*", "reference.*"};
  if (name == "vendor") p.prefer = yard::Kind::kVendor;
  return p;
}
inline constexpr const char* kPolicies[] = {"reference", "simd", "vendor", "default"};

// Continues a session greedily. `before_each` gets the index of each token.
inline Ids continued(Session& session, size_t count,
                     const std::function<void(size_t)>& before_each = {}) {
  Ids tokens;
  for (size_t i = 0; i < count; ++i) {
    if (before_each) before_each(i);
    int32_t id = -1;
    session.sample({}, &id).or_throw();
    tokens.push_back(id);
    session.advance({&id, 1}).or_throw();
  }
  return tokens;
}

inline Ids generated(const Model& model, const Expected& e,
                     const std::function<void(size_t)>& before_each = {}) {
  Session session(model, 256);
  session.advance(e.prompt).or_throw();
  return continued(session, e.tokens.size(), before_each);
}

}  // namespace llm
