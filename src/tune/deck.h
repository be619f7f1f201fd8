// SPDX-License-Identifier: Apache-2.0
// A deck of cards: deals every one of its values, in random order, before any comes again. So few cases
// meet every value of every factor, and many meet most pairs.
#pragma once

#include <utility>
#include <vector>

#include "tune/elements.h"

namespace yard::tune {

template <class T>
class Deck {
 public:
  Deck() = default;
  // A value may be in it several times, to come more often.
  explicit Deck(std::vector<T> values) : values_(std::move(values)), at_(values_.size()) {}

  bool empty() const noexcept { return values_.empty(); }
  // The deck must not be empty.
  T next(Random& random) {
    if (at_ >= values_.size()) {
      for (size_t i = values_.size(); i > 1; --i)
        std::swap(values_[i - 1], values_[random.below(i)]);
      at_ = 0;
    }
    return values_[at_++];
  }

 private:
  std::vector<T> values_;
  size_t at_ = 0;
};

}  // namespace yard::tune
