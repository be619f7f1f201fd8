// SPDX-License-Identifier: Apache-2.0
// Reproducible random choices for generated calls: a generator and a shuffle bag.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace yard::verification {

// splitmix64, which gives equal numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) noexcept : state_(seed) {}
  uint64_t bits() noexcept {
    uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  // Returns a number in [0, 1).
  double unit() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // Returns a number in [0, n), or 0 if n is 0.
  uint64_t below(uint64_t n) noexcept { return n == 0 ? 0 : bits() % n; }

 private:
  uint64_t state_;
};

// Returns its values in random order, each of them once before any is repeated. A few cases then
// cover every value of every choice, and many cases cover most pairs.
template <class T>
class ShuffleBag {
 public:
  ShuffleBag() = default;
  // A value may be listed several times to get a larger share.
  explicit ShuffleBag(std::vector<T> values) : values_(std::move(values)), at_(values_.size()) {}

  // The bag must not be empty.
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

}  // namespace yard::verification
