// SPDX-License-Identifier: Apache-2.0
// Two strided tensors overlap if a sum of bounded multiples of strides equals a given number. The
// search goes from the largest stride down. It prunes by range, by common divisor, and where the
// smaller strides leave no gap, so for layouts that occur in practice it visits a few nodes.
#include "op/overlap.h"

#include <algorithm>

namespace yard::op {
namespace {

constexpr int kBudget = 4000;              // nodes; a longer search counts as an overlap
constexpr Wide kFarthest = Wide{1} << 62;  // in bits; larger than any address space

int64_t stride_of(const yard_tensor_t& t, int axis) noexcept {
  if (t.strides) return t.strides[axis];
  int64_t s = 1;
  for (int i = t.ndim - 1; i > axis; --i) s *= std::max<int64_t>(t.shape[i], 1);
  return s;
}

bool is_empty(const yard_tensor_t& t) noexcept {
  return std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim;
}

// Is there an x with 0 <= x[i] <= limit[i] and sum(factor[i] * x[i]) == target?
class BoundedSum {
 public:
  void add(Wide factor, Wide limit) noexcept {
    if (factor == 0 || limit <= 0) return;
    if (limit > kFarthest || factor > kFarthest || factor < -kFarthest) {
      too_far_ = true;
      return;
    }
    if (factor < 0) {  // counts down from the limit instead
      aim(-times(factor, limit));
      factor = -factor;
    }
    if (times(factor, limit) > kFarthest) too_far_ = true;
    Term* const same =
        std::find_if(terms_, terms_ + count_, [&](const Term& t) { return t.factor == factor; });
    if (same == terms_ + count_) terms_[count_++] = {factor, 0};
    same->limit += limit;
  }
  // Adds to the target.
  void aim(Wide target) noexcept {
    if (target > kFarthest || target < -kFarthest)
      too_far_ = true;
    else
      target_ += target;
  }

  bool solvable() noexcept {
    if (too_far_) return true;
    std::sort(terms_, terms_ + count_,
              [](const Term& a, const Term& b) { return a.factor > b.factor; });
    reach_[count_] = 0, unit_[count_] = 0, dense_[count_] = true;
    for (int i = count_ - 1; i >= 0; --i) {
      const Wide f = terms_[i].factor;
      reach_[i] = reach_[i + 1] + times(f, terms_[i].limit);
      unit_[i] = gcd(unit_[i + 1], f);
      // Every multiple of the unit is reached if the smaller factors fill the gaps of this one.
      dense_[i] = unit_[i + 1] == 0 ||
                  (dense_[i + 1] && unit_[i] == unit_[i + 1] && f <= reach_[i + 1] + unit_[i]);
    }
    return search(0, target_);
  }

 private:
  struct Term {
    Wide factor, limit;
  };
  static Wide gcd(Wide a, Wide b) noexcept { return b == 0 ? a : gcd(b, a % b); }
  bool search(int i, Wide target) noexcept {
    if (target < 0 || target > reach_[i]) return false;
    if (unit_[i] == 0) return target == 0;
    if (target % unit_[i] != 0) return false;
    if (dense_[i] || --budget_ <= 0) return true;
    const Wide f = terms_[i].factor;
    const Wide over = target - reach_[i + 1];
    const Wide low = over > 0 ? (over + f - 1) / f : 0;
    const Wide high = std::min(terms_[i].limit, target / f);
    for (Wide x = low; x <= high; ++x)
      if (search(i + 1, target - times(f, x))) return true;
    return false;
  }

  static constexpr int kMost = 2 * YARD_MAX_RANK + 2;
  Term terms_[kMost];
  // For the terms from i on: the largest sum, the common divisor, and whether all multiples occur.
  Wide reach_[kMost + 1], unit_[kMost + 1];
  bool dense_[kMost + 1];
  int count_ = 0;
  Wide target_ = 0;
  bool too_far_ = false;
  int budget_ = kBudget;
};

bool same_layout(const yard_tensor_t& a, const yard_tensor_t& b) noexcept {
  if (a.ndim != b.ndim || yard_dtype_index(a.dtype) != yard_dtype_index(b.dtype)) return false;
  for (int i = 0; i < a.ndim; ++i) {
    if (a.shape[i] != b.shape[i]) return false;
    if (a.shape[i] > 1 && stride_of(a, i) != stride_of(b, i)) return false;
  }
  return true;
}

}  // namespace

TensorView ByteTensor::bytes_of(const yard_tensor_t& t) noexcept {
  const int64_t elements = yard_unit_elements(t.dtype), bytes = yard_unit_bytes(t.dtype);
  int64_t shape[YARD_MAX_RANK], strides[YARD_MAX_RANK];
  const auto rank = static_cast<size_t>(t.ndim);
  for (size_t i = 0; i < rank; ++i)
    shape[i] = t.shape[i], strides[i] = stride_of(t, static_cast<int>(i)) / elements * bytes;
  if (rank > 0) shape[rank - 1] = shape[rank - 1] / elements * bytes, strides[rank - 1] = 1;
  return TensorView(static_cast<char*>(t.data) + (t.data != nullptr ? t.byte_offset : 0), DType::u8,
                    std::span(shape, rank), std::span(strides, rank),
                    {t.device.type, t.device.index});
}

Overlap overlap(const yard_tensor_t& first, const yard_tensor_t& second) noexcept {
  if (!first.data || !second.data || is_empty(first) || is_empty(second)) return Overlap::kNone;
  const ByteTensor first_bytes(first), second_bytes(second);
  const yard_tensor_t &a = first_bytes.get(), &b = second_bytes.get();
  const auto address = [](const yard_tensor_t& t) {
    return reinterpret_cast<uintptr_t>(t.data) + t.byte_offset;
  };
  if (address(a) == address(b))
    return same_layout(first, second) ? Overlap::kSame : Overlap::kPartial;
  // In bits, since elements may be smaller than a byte:
  //   a0 + sum(stride * i) + p  ==  b0 + sum(stride * j) + q,  p and q inside an element.
  BoundedSum sum;
  for (int i = 0; i < a.ndim; ++i) sum.add(times(stride_of(a, i), a.dtype.bits), a.shape[i] - 1);
  for (int i = 0; i < b.ndim; ++i) sum.add(-times(stride_of(b, i), b.dtype.bits), b.shape[i] - 1);
  sum.add(1, a.dtype.bits - 1);
  sum.add(-1, b.dtype.bits - 1);
  sum.aim(times(Wide{address(b)} - Wide{address(a)}, 8));
  return sum.solvable() ? Overlap::kPartial : Overlap::kNone;
}

bool overlaps_itself(const yard_tensor_t& t) noexcept {
  if (is_empty(t)) return false;
  for (int k = 0; k < t.ndim; ++k) {
    if (t.shape[k] < 2) continue;
    if (stride_of(t, k) == 0) return true;
    // Two indices of one element differ by d with sum(stride * d) == 0. Let k be the first axis on
    // which they differ, with d >= 1. On later axes they differ by -(n-1) .. n-1.
    BoundedSum sum;
    sum.add(stride_of(t, k), t.shape[k] - 2);
    sum.aim(-Wide{stride_of(t, k)});
    for (int j = k + 1; j < t.ndim; ++j) {
      sum.add(stride_of(t, j), times(2, t.shape[j] - 1));
      sum.aim(times(stride_of(t, j), t.shape[j] - 1));
    }
    if (sum.solvable()) return true;
  }
  return false;
}

}  // namespace yard::op
