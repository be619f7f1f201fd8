// SPDX-License-Identifier: Apache-2.0
// Events that wait for whoever wants them: bounded, the oldest goes.
#pragma once

#include <yard/health.h>

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yard::health {

class EventQueue {
 public:
  void add(BreakerEvent event) {
    if (events_.size() == kBreakerEvents) {
      events_.pop_front();
      ++dropped_;
    }
    events_.push_back(std::move(event));
  }
  std::vector<BreakerEvent> take() {
    std::vector<BreakerEvent> all(std::make_move_iterator(events_.begin()),
                                  std::make_move_iterator(events_.end()));
    events_.clear();
    return all;
  }
  uint64_t dropped() const noexcept { return dropped_; }

 private:
  std::deque<BreakerEvent> events_;
  uint64_t dropped_ = 0;
};

// Texts come from kernels: no more than this of each is kept.
inline constexpr size_t kMostErrorText = 500;
inline std::string cut(std::string_view text) {
  return text.size() <= kMostErrorText ? std::string(text)
                                       : std::string(text.substr(0, kMostErrorText)) + "...";
}

// `5 failures in a row, the last: no answer`.
std::string after_failures(uint32_t in_a_row, std::string_view last);
// `a probe failed: no answer`.
std::string after_probe(std::string_view why);

}  // namespace yard::health
