// SPDX-License-Identifier: Apache-2.0
// The result of `sample` is defined by sums in double in the order of indices, and this kernel adds
// the same numbers in the same order as the reference. It is faster because vectors find the
// largest elements, exponentials are computed once, and elements that cannot be chosen are dropped
// first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sample.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"
#include "scalars.h"

#include "largest.inc"  // after lanes.inc

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

// Returns the first index from `i` on with an element above `bound`, or `width`. Rows have no NaN.
template <class T>
HWY_INLINE size_t next_above(const T* x, size_t i, size_t width, float bound) {
  const DF d;
  const size_t pair = pair_lanes();
  const VF limit = hn::Set(d, bound);
  VF a, b, c, e;
  for (; i + 2 * pair <= width; i += 2 * pair) {
    load2(x + i, a, b), load2(x + i + pair, c, e);
    const VF most = hn::Max(hn::Max(a, b), hn::Max(c, e));
    if (!hn::AllFalse(d, hn::Gt(most, limit))) break;
  }
  while (i < width && !(widen(read<T>(x + i)) > bound)) ++i;
  return i;
}

Largest largest_as(const char* x, int64_t width, uint32_t dtype) {
  const auto count = static_cast<size_t>(width);
  switch (dtype) {
    case YARD_F16: return largest_of_row(reinterpret_cast<const F16*>(x), count);
    case YARD_BF16: return largest_of_row(reinterpret_cast<const BF16*>(x), count);
    default: return largest_of_row(reinterpret_cast<const float*>(x), count);
  }
}
size_t next_above_as(const char* x, size_t i, size_t width, uint32_t dtype, float bound) {
  switch (dtype) {
    case YARD_F16: return next_above(reinterpret_cast<const F16*>(x), i, width, bound);
    case YARD_BF16: return next_above(reinterpret_cast<const BF16*>(x), i, width, bound);
    default: return next_above(reinterpret_cast<const float*>(x), i, width, bound);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(largest_as);
HWY_EXPORT(next_above_as);

struct Item {
  double weight;
  uint32_t key;  // grows with the value; equal for both zeros
  uint32_t index;
};

// The workspace has room for this many rows at once.
constexpr int64_t kRowsTogether = 8;

uint32_t key_of(float v) {
  const auto bits = std::bit_cast<uint32_t>(v + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | (1u << 31);
}
float value_of(uint32_t key) {
  return std::bit_cast<float>((key >> 31) != 0 ? key & ~(1u << 31) : ~key);
}

// Returns output `row` of the SplitMix64 generator that starts at `seed`, as a number in [0, 1).
double random_unit(int64_t seed, int64_t row) {
  uint64_t z = static_cast<uint64_t>(seed) + (static_cast<uint64_t>(row) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

struct SampledRow {
  const char* x;
  int64_t width;
  uint32_t dtype;
  Largest largest;
  double temperature;

  float at(int64_t i) const { return read_as_float(x + i * (dtype == YARD_F32 ? 4 : 2), dtype); }
  double weight(float v) const {
    const double value = v, most = largest.value;
    return value == most ? 1.0 : std::exp((value - most) / temperature);
  }
  Item item(int64_t i, float v) const { return {weight(v), key_of(v), static_cast<uint32_t>(i)}; }
};

// Items that may be chosen, in the order of indices.
struct Items {
  Item* first;
  int64_t count;
  Item* begin() const { return first; }
  Item* end() const { return first + count; }

  double sum(uint32_t bound = 0) const {
    double total = 0;
    for (const Item& i : *this)
      if (i.key >= bound) total += i.weight;
    return total;
  }
  template <class Condition>
  void keep(const Condition& condition) {
    int64_t kept = 0;
    for (int64_t i = 0; i < count; ++i)
      if (condition(first[i])) first[kept++] = first[i];
    count = kept;
  }
};

// Returns the first `k` elements in the order of values.
Items first_elements(const SampledRow& row, int64_t k, Item* room) {
  // The last of the elements found so far is at the front of the heap.
  const auto precedes = [](const Item& a, const Item& b) {
    return a.key != b.key ? a.key > b.key : a.index < b.index;
  };
  for (int64_t i = 0; i < k; ++i) room[i] = {0, key_of(row.at(i)), static_cast<uint32_t>(i)};
  std::make_heap(room, room + k, precedes);
  const auto width = static_cast<size_t>(row.width);
  for (auto i = static_cast<size_t>(k);; ++i) {
    i = HWY_DYNAMIC_DISPATCH(next_above_as)(row.x, i, width, row.dtype, value_of(room->key));
    if (i >= width) break;
    std::pop_heap(room, room + k, precedes);
    room[k - 1] = {0, key_of(row.at(static_cast<int64_t>(i))), static_cast<uint32_t>(i)};
    std::push_heap(room, room + k, precedes);
  }
  std::sort(room, room + k, [](const Item& a, const Item& b) { return a.index < b.index; });
  for (Item* i = room; i < room + k; ++i) i->weight = row.weight(value_of(i->key));
  return {room, k};
}

// Keeps the fewest of the first elements whose weights sum up to `needed`. Adding an element never
// makes the rounded sum smaller, so any order of search finds the same bound.
void keep_fewest(Items& items, double needed) {
  uint32_t low = 0, high = ~0u;  // the sum from `low` on is enough, or low is 0
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (items.sum(middle) >= needed) {
      low = middle;
      items.keep([&](const Item& i) { return i.key >= low; });
    } else {
      high = middle;
    }
  }
  double reached = items.sum(low + 1);
  items.keep([&](const Item& i) {
    if (i.key != low) return true;
    if (reached >= needed) return false;
    reached += i.weight;
    return true;
  });
}

double needed_of(double top_p, double total) { return std::fmax(top_p * total, 0x1p-1074); }

// Does this for a whole row. Usually only a few elements matter, and they are collected while all
// weights are added.
Items fewest_of_row(const SampledRow& row, double top_p, Item* room) {
  constexpr double kSmall = -14;  // a weight of 8e-7
  constexpr double kLeast = -std::numeric_limits<float>::max();
  const double least = row.largest.value + kSmall * row.temperature;
  auto bound = static_cast<float>(std::max(least, kLeast));
  while (true) {
    Items items{room, 0};
    double total = 0, listed = 0;
    for (int64_t i = 0; i < row.width; ++i) {
      const float v = row.at(i);
      const double weight = row.weight(v);
      total += weight;
      if (!(v >= bound)) continue;
      listed += weight;
      room[items.count++] = {weight, key_of(v), static_cast<uint32_t>(i)};
    }
    const double needed = needed_of(top_p, total);
    if (listed >= needed || items.count == row.width) {
      keep_fewest(items, needed);
      return items;
    }
    bound = -std::numeric_limits<float>::infinity();
  }
}

int64_t draw(const SampledRow& row, const Items& items, double random) {
  const double target = random * items.sum();
  double reached = 0;
  int64_t chosen = row.largest.index;
  for (const Item& i : items) {
    if (i.weight == 0) continue;
    reached += i.weight;
    chosen = i.index;
    if (reached > target) break;
  }
  return chosen;
}

// Draws from all elements. Partial sums limit the repeated exponentials to one part of the row.
int64_t draw(const SampledRow& row, double random, double* sums) {
  constexpr int64_t kPart = 128;
  const auto end_of = [&](int64_t part) { return std::min(row.width, (part + 1) * kPart); };
  const int64_t parts = (row.width + kPart - 1) / kPart;
  double total = 0;
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t i = part * kPart; i < end_of(part); ++i) total += row.weight(row.at(i));
    sums[part] = total;
  }
  const double target = random * total;
  const int64_t part = std::upper_bound(sums, sums + parts, target) - sums;
  if (part < parts) {
    double reached = part > 0 ? sums[part - 1] : 0;
    for (int64_t i = part * kPart; i < end_of(part); ++i)
      if ((reached += row.weight(row.at(i))) > target) return i;
  }
  // Rounding can make the target as large as the sum. Then take the last element with a weight.
  int64_t last = row.width - 1;
  while (row.weight(row.at(last)) == 0) --last;
  return last;
}

struct Sampling {
  RowWalk<2> walk;  // out, x; a row of out is one index
  int64_t width;    // of x
  uint32_t dtype;
  bool wide;  // indices are i64, else i32
  double temperature;
  int64_t top_k;
  double top_p;
  int64_t seed;

  int64_t choose(const char* x, int64_t row_number, Item* room) const {
    const SampledRow row{x, width, dtype, HWY_DYNAMIC_DISPATCH(largest_as)(x, width, dtype),
                         temperature};
    if (temperature == 0 || std::isnan(row.largest.value)) return row.largest.index;
    const double random = random_unit(seed, row_number);
    if (top_k > 0 && top_k < width) {
      Items items = first_elements(row, top_k, room);
      if (top_p < 1) keep_fewest(items, needed_of(top_p, items.sum()));
      return draw(row, items, random);
    }
    if (top_p < 1) return draw(row, fewest_of_row(row, top_p, room), random);
    return draw(row, random, reinterpret_cast<double*>(room));
  }
};

}  // namespace

int32_t sample(Call call, Tensor out, Tensor x, double temperature, int64_t top_k, double top_p,
               int64_t seed) {
  if (!(temperature >= 0) || std::isinf(temperature))
    return call.fail(YARD_CALLER, "sample: invalid temperature: expected 0 or more, got %g",
                     temperature);
  if (top_k < 0)  // bound calls change scalars without a check
    return call.fail(YARD_CALLER, "sample: invalid top_k: expected 0 or more, got %lld",
                     static_cast<long long>(top_k));
  if (std::isnan(top_p)) return call.fail(YARD_CALLER, "sample: invalid top_p: got NaN");
  if (out.numel() == 0) return YARD_OK;
  const int64_t width = x.size(-1);
  if (width == 0)
    return call.fail(YARD_CALLER, "sample: invalid x: expected rows of at least 1 element, got 0");
  const Sampling job{{{out, x}, 0}, width, x.dtype(), out.dtype() == YARD_I64,
                     temperature,   top_k, top_p,     seed};
  Item* const room = call.workspace<Item>().data();
  for (int64_t first = 0; first < job.walk.rows(); first += kRowsTogether) {
    const int64_t rows = std::min(kRowsTogether, job.walk.rows() - first);
    call.parallel_for(rows, grain_of(width * 32), [&](int64_t begin, int64_t end) {
      auto at = job.walk.from(first + begin);
      for (int64_t r = begin; r < end; ++r, at.next())
        write_index(at.at<char>(0), job.wide,
                    job.choose(at.at<char>(1), first + r, room + r * width));
    });
  }
  return YARD_OK;
}

int64_t sample_workspace(Tensor out, Tensor x, double, int64_t, double, int64_t) {
  return std::min(kRowsTogether, out.numel()) * x.size(-1) * static_cast<int64_t>(sizeof(Item));
}

}  // namespace yard::simd
#endif
