// SPDX-License-Identifier: Apache-2.0
// argmax, topk_softmax and sample. Elements are ordered by value, largest first. A NaN is larger
// than all numbers, and the lower index comes first among equal values.
#include <bit>
#include <cmath>

#include "kernels.h"
#include "numeric.h"
#include "rows.h"

namespace yard::reference {
namespace {

struct Element {
  double value;
  int64_t index;

  bool precedes(const Element& other) const noexcept {
    if (std::isnan(value) != std::isnan(other.value)) return std::isnan(value);
    if (std::isnan(value) || value == other.value) return index < other.index;
    return value > other.value;
  }
};

// Returns the first element, or the first element after `previous`.
template <class T>
Element first_of(const Row<T>& x, const Element* previous = nullptr) noexcept {
  Element best{0, -1};
  for (int64_t i = 0; i < x.size(); ++i) {
    const Element e{x[i], i};
    if (previous != nullptr && !previous->precedes(e)) continue;
    if (best.index < 0 || e.precedes(best)) best = e;
  }
  return best;
}

// Returns the bits of a double as a number that grows with the double. Both zeros give one number.
uint64_t ordered(double v) noexcept {
  const auto bits = std::bit_cast<uint64_t>(v + 0.0);
  return (bits >> 63) != 0 ? ~bits : bits | (uint64_t{1} << 63);
}

// The elements that can be chosen: those above a bound, and the first `equal` that equal it.
class Kept {
 public:
  static Kept all(int64_t size) noexcept { return {0, size}; }

  template <class T, class Body>
  void for_each(const Row<T>& x, const Body& body) const {
    int64_t left = equal_;
    for (int64_t i = 0; i < x.size(); ++i) {
      const uint64_t at = ordered(x[i]);
      if (at > bound_ || (at == bound_ && left-- > 0)) body(i, x[i]);
    }
  }

  // Sums measure(element) over the elements that are at least `bound`, in the order of indices.
  template <class T, class Measure>
  double sum(const Row<T>& x, uint64_t bound, const Measure& measure) const {
    double total = 0;
    for_each(x, [&](int64_t, double v) { total += ordered(v) >= bound ? measure(v) : 0; });
    return total;
  }

  // Returns the fewest first elements whose measures sum up to `needed`, or all elements.
  template <class T, class Measure>
  Kept smallest(const Row<T>& x, double needed, const Measure& measure) const {
    uint64_t low = 0, high = ~uint64_t{0};  // the sum from `low` on is enough, or low is 0
    while (high - low > 1) {
      const uint64_t middle = low + (high - low) / 2;
      (sum(x, middle, measure) >= needed ? low : high) = middle;
    }
    double reached = sum(x, low + 1, measure);
    int64_t equal = 0;
    for_each(x, [&](int64_t, double v) {
      if (ordered(v) != low || reached >= needed) return;
      reached += measure(v);
      ++equal;
    });
    return {low, equal};
  }

 private:
  Kept(uint64_t bound, int64_t equal) noexcept : bound_(bound), equal_(equal) {}
  uint64_t bound_;  // in terms of ordered()
  int64_t equal_;
};

// Returns output `row` of the SplitMix64 generator that starts at `seed`, as a number in [0, 1).
double random_unit(int64_t seed, int64_t row) noexcept {
  uint64_t z = static_cast<uint64_t>(seed) + (static_cast<uint64_t>(row) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

struct Choice {
  double temperature, top_p;
  int64_t top_k;
};

template <class T>
int64_t choose(const Row<T>& x, const Choice& choice, double random) {
  const Element largest = first_of(x);
  if (choice.temperature == 0 || std::isnan(largest.value)) return largest.index;
  const auto weight = [&](double v) {
    return v == largest.value ? 1.0 : std::exp((v - largest.value) / choice.temperature);
  };
  Kept kept = Kept::all(x.size());
  if (choice.top_k > 0 && choice.top_k < x.size())
    kept = kept.smallest(x, static_cast<double>(choice.top_k), [](double) { return 1.0; });
  if (choice.top_p < 1)
    kept = kept.smallest(x, std::fmax(choice.top_p * kept.sum(x, 0, weight), 0x1p-1074), weight);
  const double target = random * kept.sum(x, 0, weight);
  double reached = 0;
  int64_t chosen = largest.index;
  bool found = false;
  kept.for_each(x, [&](int64_t i, double v) {
    if (found || weight(v) == 0) return;
    reached += weight(v);
    chosen = i;
    found = reached > target;
  });
  return chosen;
}

}  // namespace

int32_t argmax(Call call, Tensor out, Tensor x) {
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_index<2>(leading(x, 1), {out, x}, [&](const auto& offsets) {
      set_index(out, offsets[0], first_of(Row<T>(x, offsets[1])).index);
    });
    return YARD_OK;
  });
}

int32_t topk_softmax(Call call, Tensor weights, Tensor ids, Tensor x, bool renormalize) {
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_index<3>(leading(x, 1), {weights, ids, x}, [&](const auto& offsets) {
      const Row<float> w(weights, offsets[0]);
      const Row<T> v(x, offsets[2]);
      if (v.size() == 0) return;
      const Element largest = first_of(v);
      double all = 0, kept = 0;
      for (int64_t i = 0; i < v.size(); ++i) all += std::exp(v[i] - largest.value);
      const auto for_each_first = [&](const auto& body) {
        Element e = largest;
        for (int64_t k = 0; k < w.size(); ++k) {
          if (k > 0) e = first_of(v, &e);
          body(k, e.index, std::exp(e.value - largest.value));
        }
      };
      for_each_first([&](int64_t, int64_t, double exponential) { kept += exponential; });
      for_each_first([&](int64_t k, int64_t index, double exponential) {
        set_index(ids, offsets[1] + k * ids.stride(-1), index);
        w.set(k, exponential / (renormalize ? kept : all));
      });
    });
    return YARD_OK;
  });
}

int32_t sample(Call call, Tensor out, Tensor x, double temperature, int64_t top_k, double top_p,
               int64_t seed) {
  if (!(temperature >= 0) || std::isinf(temperature))
    return call.fail(YARD_CALLER, "sample: invalid temperature: expected 0 or more, got %g",
                     temperature);
  if (top_k < 0)  // bound calls change scalars without a check
    return call.fail(YARD_CALLER, "sample: invalid top_k: expected 0 or more, got %lld",
                     static_cast<long long>(top_k));
  if (std::isnan(top_p)) return call.fail(YARD_CALLER, "sample: invalid top_p: got NaN");
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    int64_t row = 0;
    for_each_index<2>(leading(x, 1), {out, x}, [&](const auto& offsets) {
      set_index(out, offsets[0],
                choose(Row<T>(x, offsets[1]), {temperature, top_p, top_k}, random_unit(seed, row)));
      ++row;
    });
    return YARD_OK;
  });
}

}  // namespace yard::reference
