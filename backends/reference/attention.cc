// SPDX-License-Identifier: Apache-2.0
// The attention family: the softmax of the scores of a query with the keys that it sees, times
// their values. Each pass computes the scores again, so that nothing is allocated.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels.h"
#include "numeric.h"
#include "rows.h"

namespace yard::reference {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// Refers to a function object. If these were template parameters of the loops below, the loops
// would be compiled 60 times, which would take most of the time to compile this backend.
template <class Signature>
class Function;
template <class Result, class... Args>
class Function<Result(Args...)> {
 public:
  template <class F>
  Function(const F& f) noexcept
      : f_(&f), call_([](const void* to, Args... args) -> Result {
          return (*static_cast<const F*>(to))(args...);
        }) {}
  Result operator()(Args... args) const { return call_(f_, args...); }

 private:
  const void* f_;
  Result (*call_)(const void*, Args...);
};

// Where a key and its value begin, in elements.
struct Place {
  int64_t key, value;
};
using PlaceOf = Function<Place(int64_t key)>;
using AddedTo = Function<double(int64_t key)>;

// One query of one head. The query sees the keys [first, last).
template <class T, class C>
class Query {
 public:
  static constexpr int64_t kDims = 256;  // elements of the result that are computed at once

  Query(Row<T> out, Row<T> query, double scale, bool magnitude) noexcept
      : out_(out),
        query_(query),
        scale_(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(query.size()))),
        magnitude_(magnitude) {}

  // added(j) is added to the score of key j. `sink` is one more score, for a key without a value.
  void attend(Tensor key, Tensor value, int64_t first, int64_t last, const PlaceOf& at,
              const AddedTo& added, double sink = kNothing) const {
    const auto score = [&](int64_t j) {
      const Row<C> k(key, at(j).key);
      double sum = 0;
      for (int64_t d = 0; d < k.size(); ++d) sum += query_[d] * k[d];
      return sum * scale_ + added(j);
    };
    double largest = sink;
    for (int64_t j = first; j < last; ++j) largest = std::max(largest, score(j));
    // A NaN, or infinity minus infinity, makes the sum NaN, and with it the whole row.
    const auto weight = [&](double s) { return s == kNothing ? 0.0 : std::exp(s - largest); };
    for (int64_t from = 0; from < out_.size(); from += kDims) {
      const int64_t dims = std::min(kDims, out_.size() - from);
      double sums[kDims] = {}, total = weight(sink);
      for (int64_t j = first; j < last; ++j) {
        const double w = weight(score(j));
        total += w;
        const Row<C> v(value, at(j).value);
        for (int64_t d = 0; w != 0 && d < dims; ++d) sums[d] += w * v[from + d];
      }
      for (int64_t d = 0; d < dims; ++d) sums[d] = total == 0 ? 0 : sums[d] / total;
      if (magnitude_) {
        double sizes[kDims] = {};
        for (int64_t j = first; j < last; ++j) {
          const double w = weight(score(j)) / total;
          const double terms =
              kScoreError * (size_of_score(Row<C>(key, at(j).key)) + std::fabs(added(j)));
          const Row<C> v(value, at(j).value);
          for (int64_t d = 0; w != 0 && d < dims; ++d)
            sizes[d] += w * (std::fabs(v[from + d]) + terms * std::fabs(v[from + d] - sums[d]));
        }
        std::copy_n(sizes, dims, sums);
      }
      for (int64_t d = 0; d < dims; ++d) out_.set(from + d, sums[d]);
    }
  }

 private:
  // A relative error of a weight equals the absolute error of its score, and moves the result
  // towards its value or away from it. Scores are off by 1e-6 of the size of their terms, which is
  // a tenth of the tolerance of f32 results.
  static constexpr double kScoreError = 0.1;

  double size_of_score(Row<C> k) const noexcept {
    double sum = 0;
    for (int64_t d = 0; d < k.size(); ++d) sum += std::fabs(query_[d] * k[d]);
    return sum * std::fabs(scale_);
  }

  Row<T> out_, query_;
  double scale_;
  bool magnitude_;
};

// Each group of heads / kv_heads query heads shares a key head.
int64_t key_head(int64_t head, int64_t heads, int64_t kv_heads) noexcept {
  return head / (heads / kv_heads);
}

// Checks that every length is in [0, most]. The error names the first that is not.
int32_t check_lengths(Call call, const char* op, Tensor lengths, int64_t most) noexcept {
  for (int64_t b = 0; b < lengths.size(0); ++b) {
    const int64_t length = index_at(lengths, b * lengths.stride(0));
    if (length < 0 || length > most)
      return call.fail(YARD_CALLER,
                       "%s: invalid length: expected 0 <= length <= %lld, got %lld for batch %lld",
                       op, static_cast<long long>(most), static_cast<long long>(length),
                       static_cast<long long>(b));
  }
  return YARD_OK;
}

struct Inputs {
  Tensor out, query, key, value, mask;
  double scale;
  bool magnitude;  // whether to compute magnitudes instead of results
};

// Returns 0 without a mask. `row` is the offset of the mask's row.
double mask_at(Tensor mask, int64_t row, int64_t key) noexcept {
  return mask ? float_at(mask, row + key * mask.stride(-1)) : 0;
}

// visible(b, i) returns the keys [first, last) that query i of batch b sees.
using Visible = Function<std::pair<int64_t, int64_t>(int64_t b, int64_t i)>;

int32_t attention(Call call, const Inputs& in, Tensor sinks, const Visible& visible) {
  const int64_t heads = in.query.size(2), kv_heads = in.key.size(2);
  return with_type(call, in.query.dtype(), [&]<class T>(std::type_identity<T>) {
    const auto one = [&](int64_t b, int64_t i, int64_t h) {
      const int64_t g = key_head(h, heads, kv_heads);
      const auto begin = [&](Tensor t, int64_t second, int64_t third) {
        return b * t.stride(0) + second * t.stride(1) + third * t.stride(2);
      };
      const int64_t mask_row = in.mask ? begin(in.mask, h, i) : 0;
      const auto [first, last] = visible(b, i);
      Query<T, T>(Row<T>(in.out, begin(in.out, i, h)), Row<T>(in.query, begin(in.query, i, h)),
                  in.scale, in.magnitude)
          .attend(
              in.key, in.value, first, last,
              [&](int64_t j) {
                return Place{begin(in.key, j, g), begin(in.value, j, g)};
              },
              [&](int64_t j) { return mask_at(in.mask, mask_row, j); },
              sinks ? load<float>(sinks, h * sinks.stride(0)) : kNothing);
    };
    for (int64_t b = 0; b < in.query.size(0); ++b)
      for (int64_t i = 0; i < in.query.size(1); ++i)
        for (int64_t h = 0; h < heads; ++h) one(b, i, h);
    return YARD_OK;
  });
}

// at(t, b, j) returns where key or value j of batch b begins in its tensor.
using BeginOf = Function<int64_t(Tensor t, int64_t b, int64_t j)>;

int32_t decode(Call call, const Inputs& in, Tensor lengths, const BeginOf& at) {
  const int64_t heads = in.query.size(1), kv_heads = in.key.size(2);
  const auto one = [&]<class T, class C>(std::type_identity<T>, std::type_identity<C>, int64_t b,
                                         int64_t h) {
    const int64_t g = key_head(h, heads, kv_heads);
    const auto begin = [&](Tensor t) { return b * t.stride(0) + h * t.stride(1); };
    const int64_t mask_row = in.mask ? begin(in.mask) : 0;
    Query<T, C>(Row<T>(in.out, begin(in.out)), Row<T>(in.query, begin(in.query)), in.scale,
                in.magnitude)
        .attend(
            in.key, in.value, 0, index_at(lengths, b * lengths.stride(0)),
            [&](int64_t j) {
              return Place{at(in.key, b, j) + g * in.key.stride(2),
                           at(in.value, b, j) + g * in.value.stride(2)};
            },
            [&](int64_t j) { return mask_at(in.mask, mask_row, j); });
  };
  return with_type(call, in.query.dtype(), [&]<class T>(std::type_identity<T> t) {
    return with_type(call, in.key.dtype(), [&]<class C>(std::type_identity<C> c) {
      for (int64_t b = 0; b < in.query.size(0); ++b)
        for (int64_t h = 0; h < heads; ++h) one(t, c, b, h);
      return YARD_OK;
    });
  });
}

// Checks the entries of the block table that lengths reach, and names the first invalid one.
int32_t check_blocks(Call call, Tensor table, Tensor lengths, int64_t blocks,
                     int64_t block) noexcept {
  for (int64_t b = 0; b < lengths.size(0); ++b) {
    const int64_t length = index_at(lengths, b * lengths.stride(0));
    for (int64_t n = 0; n * block < length; ++n) {
      const int64_t entry = index_at(table, b * table.stride(0) + n * table.stride(1));
      if (entry < 0 || entry >= blocks)
        return call.fail(YARD_CALLER,
                         "attention.paged_decode: invalid block: expected 0 <= block < %lld, got "
                         "%lld in entry %lld of batch %lld",
                         static_cast<long long>(blocks), static_cast<long long>(entry),
                         static_cast<long long>(n), static_cast<long long>(b));
    }
  }
  return YARD_OK;
}

}  // namespace

template <bool kMagnitude>
int32_t attention_full(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                       double scale) {
  return attention(call, {out, query, key, value, mask, scale, kMagnitude}, Tensor(nullptr),
                   [&](int64_t, int64_t) { return std::pair(int64_t{0}, key.size(1)); });
}

template <bool kMagnitude>
int32_t attention_causal(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                         double scale) {
  const int64_t before = key.size(1) - query.size(1);
  return attention(call, {out, query, key, value, mask, scale, kMagnitude}, Tensor(nullptr),
                   [&](int64_t, int64_t i) { return std::pair(int64_t{0}, before + i + 1); });
}

template <bool kMagnitude>
int32_t attention_sliding_window(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                                 Tensor mask, Tensor sinks, int64_t window, double scale) {
  if (window < 1)  // bound calls change scalars without a check
    return call.fail(YARD_CALLER,
                     "attention.sliding_window: invalid window: expected at least 1, got %lld",
                     static_cast<long long>(window));
  const int64_t before = key.size(1) - query.size(1);
  return attention(call, {out, query, key, value, mask, scale, kMagnitude}, sinks,
                   [&](int64_t, int64_t i) {
                     const int64_t last = before + i + 1;
                     return std::pair(window < last ? last - window : 0, last);
                   });
}

template <bool kMagnitude>
int32_t attention_cross(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                        Tensor lengths, Tensor mask, double scale) {
  if (lengths)
    if (const int32_t code = check_lengths(call, "attention.cross", lengths, key.size(1));
        code != YARD_OK)
      return code;
  return attention(call, {out, query, key, value, mask, scale, kMagnitude}, Tensor(nullptr),
                   [&](int64_t b, int64_t) {
                     return std::pair(int64_t{0}, lengths ? index_at(lengths, b * lengths.stride(0))
                                                          : key.size(1));
                   });
}

template <bool kMagnitude>
int32_t attention_decode(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                         Tensor lengths, Tensor mask, double scale) {
  if (const int32_t code = check_lengths(call, "attention.decode", lengths, key.size(1));
      code != YARD_OK)
    return code;
  return decode(call, {out, query, key, value, mask, scale, kMagnitude}, lengths,
                [](Tensor t, int64_t b, int64_t j) { return b * t.stride(0) + j * t.stride(1); });
}

template <bool kMagnitude>
int32_t attention_paged_decode(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                               Tensor block_table, Tensor lengths, double scale) {
  const int64_t block = key.size(1);
  if (const int32_t code =
          check_lengths(call, "attention.paged_decode", lengths, block_table.size(1) * block);
      code != YARD_OK)
    return code;
  if (const int32_t code = check_blocks(call, block_table, lengths, key.size(0), block);
      code != YARD_OK)
    return code;
  return decode(call, {out, query, key, value, Tensor(nullptr), scale, kMagnitude}, lengths,
                [&](Tensor t, int64_t b, int64_t j) {
                  const int64_t entry =
                      b * block_table.stride(0) + j / block * block_table.stride(1);
                  return index_at(block_table, entry) * t.stride(0) + j % block * t.stride(1);
                });
}

#define YARD_BOTH(function)                           \
  template decltype(function<false>) function<false>; \
  template decltype(function<true>) function<true>
YARD_BOTH(attention_full);
YARD_BOTH(attention_causal);
YARD_BOTH(attention_sliding_window);
YARD_BOTH(attention_cross);
YARD_BOTH(attention_decode);
YARD_BOTH(attention_paged_decode);
#undef YARD_BOTH

}  // namespace yard::reference
