// SPDX-License-Identifier: Apache-2.0
// How the next token is chosen from logits, with the parameters that llama.cpp has. The ops `argmax` and `sample` choose; the
// repeat penalty and min-p, which `sample` does not have, change the logits first.
#pragma once

#include <cstdint>
#include <span>

namespace llm {

struct Sampling {
  float temperature = 0;     // 0: the most probable token
  int64_t top_k = 0;         // how many of the best tokens are considered; 0 means all
  float top_p = 1;           // only the best, whose probabilities sum up to this
  float min_p = 0;           // only tokens with at least this share of the best one's probability
  float repeat_penalty = 1;  // above 1: tokens that occurred lately become less probable
  int64_t repeat_last = 64;  // how many tokens back `repeat_penalty` looks; 0: none
  uint32_t seed = 0;         // the same seed gives the same tokens
};

// Whether change_logits() does anything.
bool changes_logits(const Sampling& how);
// Applies the repeat penalty for the last tokens of `before`, then min-p to the probabilities at temperature 1.
void change_logits(const Sampling& how, std::span<const int32_t> before, std::span<float> logits);

}  // namespace llm
