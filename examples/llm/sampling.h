// SPDX-License-Identifier: Apache-2.0
// Parameters for choosing the next token from logits. They match llama.cpp's. The ops `argmax` and
// `sample` choose the token. The repeat penalty and min-p, which `sample` lacks, change the logits
// before that.
#pragma once

#include <cstdint>
#include <span>

namespace llm {

struct Sampling {
  float temperature = 0;     // 0 chooses the most probable token
  int64_t top_k = 0;         // considers only this many of the best tokens; 0 considers all
  float top_p = 1;           // considers only the best tokens, up to this sum of probabilities
  float min_p = 0;           // considers only tokens with this share of the best probability
  float repeat_penalty = 1;  // above 1, recent tokens become less probable
  int64_t repeat_last = 64;  // `repeat_penalty` applies to this many last tokens
  uint32_t seed = 0;         // equal seeds give equal tokens
};

bool changes_logits(const Sampling& how);
// Applies the repeat penalty for the last tokens of `before`, and then min-p to the probabilities
// at temperature 1.
void change_logits(const Sampling& how, std::span<const int32_t> before, std::span<float> logits);

}  // namespace llm
