// SPDX-License-Identifier: Apache-2.0
#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace llm {

bool changes_logits(const Sampling& how) {
  return (how.min_p > 0 && how.temperature != 0) ||
         (how.repeat_penalty != 1 && how.repeat_last > 0);
}

void change_logits(const Sampling& how, std::span<const int32_t> before, std::span<float> logits) {
  if (how.repeat_penalty != 1) {
    const auto most = static_cast<size_t>(how.repeat_last);
    const auto last = before.last(std::min(before.size(), most));
    for (size_t i = 0; i < last.size(); ++i) {
      const bool was_seen = std::ranges::find(last.first(i), last[i]) != last.begin() + i;
      const auto id = static_cast<size_t>(last[i]);
      if (was_seen || id >= logits.size()) continue;
      float& logit = logits[id];
      logit = logit > 0 ? logit / how.repeat_penalty : logit * how.repeat_penalty;
    }
  }
  if (!(how.min_p > 0)) return;
  const float least = *std::ranges::max_element(logits) + std::log(how.min_p);
  for (float& logit : logits)
    if (logit < least) logit = -std::numeric_limits<float>::infinity();
}

}  // namespace llm
