// SPDX-License-Identifier: Apache-2.0
// attention.full, .causal, .sliding_window and .cross, by blocks of queries and keys with an online
// softmax, so that memory does not grow with the sequence.
//
// Lanes are queries. Scores are then products of single elements of keys with vectors of queries,
// results are products of single elements of values with vectors of weights, and the softmax does
// not sum across lanes. Queries and results are transposed once per block. Keys and values are read
// in place, but if many queries read the keys, products of pairs use copies of both.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "attention.h"
#include "jobs.h"
#include "lanes.inc"
#include "math.inc"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int64_t kKeys = 32;  // keys in a block, if they are not packed
constexpr int64_t kMostKeys = HWY_MAX(kKeys, PackedHeads::kKeys);
constexpr int64_t kSquare = 16;  // rows and columns that PairProducts::turn() transposes
// Queries in a block, and the most queries if a pair of vectors is wider than a block.
constexpr size_t kQueries = 64;
constexpr size_t kMostQueries = HWY_MAX(kQueries, 2 * hn::MaxLanes(DF()));

struct AttentionBlock {
  // In `query_pairs`, an element is a pair of bf16 elements.
  union {
    HWY_ALIGN float query[kMostDim * kMostQueries];
    HWY_ALIGN uint32_t query_pairs[kMostDim / 2 * kMostQueries];
  };
  HWY_ALIGN float result[kMostDim * kMostQueries];   // not yet divided by `sum`
  HWY_ALIGN float scores[kMostKeys * kMostQueries];  // later weights
  HWY_ALIGN float top[kMostQueries], sum[kMostQueries];
  // `tile` holds keys or values as f32. `value_pairs` holds pairs of values of two keys.
  union {
    HWY_ALIGN float tile[kKeys * kMostDim];
    HWY_ALIGN uint32_t value_pairs[kKeys / 2 * kMostDim];
  };
  HWY_ALIGN uint32_t weight_pairs[kMostKeys / 2 * kMostQueries];
  size_t stride;   // distance of rows; a row has one column per query
  size_t columns;  // columns in use: a multiple of a pair of vectors
  int64_t queries;
};

// Elements of f32 in memory. Data need not be aligned, and strides are in bytes.
struct Matrix {
  const char* data;
  int64_t row, column;
  float at(size_t r, size_t c) const {
    return read<float>(data + static_cast<int64_t>(r) * row + static_cast<int64_t>(c) * column);
  }
};

// Computes (or adds) the sum over t of a(r, t) * b[t][0, pair) to to[r][0, pair) of four rows.
template <bool kAdd>
HWY_INLINE void multiply4(const Matrix& a, size_t row, size_t count, const float* b, float* to,
                          size_t stride) {
  const DF d;
  VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, t0 = s0, t1 = s0, t2 = s0, t3 = s0, x, y;
  if constexpr (kAdd) {
    load2(to, s0, t0), load2(to + stride, s1, t1);
    load2(to + 2 * stride, s2, t2), load2(to + 3 * stride, s3, t3);
  }
  for (size_t t = 0; t < count; ++t, b += stride) {
    load2(b, x, y);
    const VF a0 = hn::Set(d, a.at(row, t)), a1 = hn::Set(d, a.at(row + 1, t));
    s0 = hn::MulAdd(a0, x, s0), t0 = hn::MulAdd(a0, y, t0);
    s1 = hn::MulAdd(a1, x, s1), t1 = hn::MulAdd(a1, y, t1);
    const VF a2 = hn::Set(d, a.at(row + 2, t)), a3 = hn::Set(d, a.at(row + 3, t));
    s2 = hn::MulAdd(a2, x, s2), t2 = hn::MulAdd(a2, y, t2);
    s3 = hn::MulAdd(a3, x, s3), t3 = hn::MulAdd(a3, y, t3);
  }
  store2(s0, t0, to), store2(s1, t1, to + stride);
  store2(s2, t2, to + 2 * stride), store2(s3, t3, to + 3 * stride);
}
template <bool kAdd>
HWY_INLINE void multiply1(const Matrix& a, size_t row, size_t count, const float* b, float* to,
                          size_t stride) {
  const DF d;
  VF s = hn::Zero(d), t = s, x, y;
  if constexpr (kAdd) load2(to, s, t);
  for (size_t i = 0; i < count; ++i, b += stride) {
    load2(b, x, y);
    const VF v = hn::Set(d, a.at(row, i));
    s = hn::MulAdd(v, x, s), t = hn::MulAdd(v, y, t);
  }
  store2(s, t, to);
}
template <bool kAdd>
HWY_INLINE void multiply(const Matrix& a, size_t rows, size_t count, const float* b, float* to,
                         const AttentionBlock& block) {
  const size_t stride = block.stride, pair = pair_lanes();
  size_t r = 0;
  for (; r + 4 <= rows; r += 4)
    for (size_t c = 0; c < block.columns; c += pair)
      multiply4<kAdd>(a, r, count, b + c, to + r * stride + c, stride);
  for (; r < rows; ++r)
    for (size_t c = 0; c < block.columns; c += pair)
      multiply1<kAdd>(a, r, count, b + c, to + r * stride + c, stride);
}

template <class T>
HWY_INLINE const char* address(Tensor t, int64_t batch, int64_t first, int64_t head) {
  return t.data<char>() + (batch * t.stride(0) + first * t.stride(1) + head * t.stride(2)) *
                              static_cast<int64_t>(sizeof(T));
}

// Returns rows of keys or values as f32, one per key, in place or in the tile.
template <class T>
HWY_INLINE Matrix rows_of(Tensor t, int64_t batch, int64_t head, int64_t first, int64_t count,
                          AttentionBlock& block) {
  const auto item = static_cast<int64_t>(sizeof(T));
  const char* const data = address<T>(t, batch, first, head);
  const int64_t step = t.stride(1) * item;
  if constexpr (std::is_same_v<T, float>) {
    return {data, step, item};
  } else {
    const auto dim = static_cast<size_t>(t.size(3));
    const size_t pair = pair_lanes();
    for (int64_t j = 0; j < count; ++j) {
      const T* const from = reinterpret_cast<const T*>(data + j * step);
      float* const to = block.tile + static_cast<size_t>(j) * kMostDim;
      size_t i = 0;
      VF a, b;
      for (; i + pair <= dim; i += pair) load2(from + i, a, b), store2_like<T>(a, b, to + i);
      for (; i < dim; ++i) to[i] = widen(read<T>(from + i));
    }
    return {reinterpret_cast<const char*>(block.tile), kMostDim * 4, 4};
  }
}

// Adds the mask, and sets scores of keys that a query does not see to -inf.
HWY_INLINE void mask_scores(const Attention& job, int64_t batch, int64_t head, int64_t query,
                            int64_t first, int64_t count, AttentionBlock& block) {
  for (int64_t q = 0; q < block.queries; ++q) {
    float* const scores = block.scores + q;
    if (job.mask) {
      const int64_t item = job.mask.c()->dtype.bits / 8;
      const char* const row =
          job.mask.data<char>() + (batch * job.mask.stride(0) + head * job.mask.stride(1) +
                                   (query + q) * job.mask.stride(2)) *
                                      item;
      for (int64_t j = 0; j < count; ++j)
        scores[static_cast<size_t>(j) * block.stride] +=
            read_as_float(row + (first + j) * job.mask.stride(3) * item, job.mask.dtype());
    }
    const Attention::Range range = job.visible(batch, query + q);
    const auto hide = [&](int64_t from, int64_t to) {
      for (int64_t j = from; j < to; ++j)
        scores[static_cast<size_t>(j) * block.stride] = kMinusInfinity;
    };
    hide(0, HWY_MIN(range.first - first, count));
    hide(HWY_MAX(range.last - first, 0), count);
  }
}

// Turns scores into weights relative to the largest score so far, and scales earlier results and
// sums to it. For pairs, weights are rounded to bf16, and sums add the rounded weights.
template <bool kPairs>
HWY_INLINE void weigh_block(AttentionBlock& block, size_t count, size_t dim) {
  const DF d;
  const VF least = hn::Set(d, kMinusInfinity);
  // Copies stay in registers. The compiler must assume that stores change the members.
  const size_t stride = block.stride, columns = block.columns;
  for (size_t c = 0; c < columns; c += hn::Lanes(d)) {
    const VF before = load(d, block.top + c);
    VF top = before;
    for (size_t j = 0; j < count; ++j) top = hn::Max(top, load(d, block.scores + j * stride + c));
    // If all scores so far are -inf, subtracting 0 from them gives weights of 0.
    const VF reference = hn::IfThenZeroElse(hn::Eq(top, least), top);
    VF sum = load(d, block.sum + c);
    if (!hn::AllTrue(d, hn::Eq(top, before))) {
      const VF factor = exp_minus(hn::Sub(reference, before));
      for (size_t i = 0; i < dim; ++i) {
        float* const r = block.result + i * stride + c;
        store(hn::Mul(load(d, r), factor), d, r);
      }
      sum = hn::Mul(sum, factor);
      store(top, d, block.top + c);
    }
    for (size_t j = 0; j < count; ++j) {
      float* const s = block.scores + j * stride + c;
      VF weight = exp_minus(hn::Sub(reference, load(d, s)));
      if constexpr (kPairs)
        weight = hn::BitCast(d, hn::And(round_bf16(plain_nan(weight)), hn::Set(DU(), 0xffff0000u)));
      sum = hn::Add(sum, weight);
      store(weight, d, s);
    }
    store(sum, d, block.sum + c);
  }
}

// Whether all values are finite. If not, values of weight 0 must be left out one by one.
HWY_INLINE bool all_finite(const Matrix& values, size_t count, size_t dim) {
  const DF d;
  const VF zero = hn::Zero(d);
  VF seen = zero;
  float rest = 0;
  for (size_t j = 0; j < count; ++j) {
    const char* const row = values.data + static_cast<int64_t>(j) * values.row;
    size_t i = 0;
    for (; i + hn::Lanes(d) <= dim; i += hn::Lanes(d))
      seen = hn::MulAdd(load(d, row + i * 4), zero, seen);
    for (; i < dim; ++i) rest += values.at(j, i) * 0.0f;
  }
  return sum_of(seen) + rest == 0.0f;
}
template <class T>
HWY_NOINLINE void add_weighted(const Attention& job, int64_t batch, int64_t head, int64_t first,
                               size_t count, size_t dim, AttentionBlock& block) {
  for (size_t j = 0; j < count; ++j) {
    const char* const value = address<T>(job.value, batch, first + static_cast<int64_t>(j), head);
    for (size_t i = 0; i < dim; ++i) {
      const float v = widen(read<T>(value + i * sizeof(T)));
      for (size_t q = 0; q < block.columns; ++q) {
        const float w = block.scores[j * block.stride + q];
        if (w != 0) block.result[i * block.stride + q] += w * v;
      }
    }
  }
}

// Pairs the weights of two keys each, and adds zeros for `pairs` pairs in all.
HWY_INLINE void pair_weights(size_t count, size_t pairs, AttentionBlock& block) {
  const DU du;
  const size_t stride = block.stride, columns = block.columns;
  for (size_t j = 0; j < 2 * pairs; j += 2)
    for (size_t c = 0; c < columns; c += hn::Lanes(du)) {
      const float* const w = block.scores + j * stride + c;
      const VU first =
          j < count ? hn::ShiftRight<16>(hn::BitCast(du, load(DF(), w))) : hn::Zero(du);
      const VU second = j + 1 < count ? hn::BitCast(du, load(DF(), w + stride)) : hn::Zero(du);
      store(hn::Or(first, second), du, block.weight_pairs + j / 2 * stride + c);
    }
}

// Pairs the values of two keys each, in rows of kMostDim. Returns false if a value is not finite.
HWY_INLINE bool pair_values(const char* values, int64_t step, size_t count, size_t dim,
                            uint32_t* pairs) {
  uint32_t largest = 0;
  for (size_t j = 0; j < count; j += 2, values += 2 * step) {
    uint32_t* const to = pairs + j / 2 * kMostDim;
    size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const D16 d;
    const auto infinite = hn::Set(d, uint16_t{0x7f80});
    auto top = hn::Zero(d);
    for (; i + hn::Lanes(d) <= dim; i += hn::Lanes(d)) {
      const auto a = load(d, values + 2 * i);
      const auto b = j + 1 < count ? load(d, values + step + 2 * i) : hn::Zero(d);
      top = hn::Max(top, hn::Max(hn::And(a, infinite), hn::And(b, infinite)));
      hn::StoreInterleaved2(a, b, d, reinterpret_cast<uint16_t*>(to + i));
    }
    if (!hn::AllTrue(d, hn::Lt(top, infinite))) return false;
#endif
    for (; i < dim; ++i) {
      const uint32_t a = read<uint16_t>(values + 2 * i);
      const uint32_t b = j + 1 < count ? read<uint16_t>(values + step + 2 * i) : 0u;
      largest = HWY_MAX(largest, HWY_MAX(a & 0x7f80u, b & 0x7f80u));
      to[i] = a | b << 16;
    }
  }
  return largest < 0x7f80u;
}

// Copies the keys and values of blocks [begin, end) of job.packed that some query can see.
void pack_heads(const Attention& job, int64_t begin, int64_t end) {
  constexpr auto kPairs = static_cast<size_t>(PackedHeads::kKeys / 2);
  const PackedHeads& to = job.packed;
  const int64_t row = to.dim * 2, pair_row = kPairs * sizeof(uint32_t);
  HWY_ALIGN uint32_t pairs[kPairs * kMostDim];
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i % to.blocks * to.kKeys, head = i / to.blocks % to.heads;
    const int64_t batch = i / to.blocks / to.heads;
    if (first >= job.visible(batch, job.query.size(1) - 1).last) continue;
    const int64_t count = HWY_MIN(to.kKeys, job.key.size(1) - first);
    const auto from = [&](Tensor t) {
      return t.data<char>() + (batch * t.stride(0) + first * t.stride(1) + head * t.stride(2)) * 2;
    };
    const char* key = from(job.key);
    for (int64_t j = 0; j < count; ++j, key += job.key.stride(1) * 2)
      std::memcpy(to.keys(i) + j * row, key, static_cast<size_t>(row));
    std::memset(to.keys(i) + count * row, 0, static_cast<size_t>((to.kKeys - count) * row));
    if (count < to.kKeys || to.dim < to.value_rows()) std::fill_n(pairs, kPairs * kMostDim, 0u);
    to.finite(i) = pair_values(from(job.value), job.value.stride(1) * 2, static_cast<size_t>(count),
                               static_cast<size_t>(to.dim), pairs);
    for (int64_t d = 0; d < to.value_rows(); d += kSquare)
      for (int64_t p = 0; p < pair_row / 4; p += kSquare)
        job.pairs->turn(reinterpret_cast<const char*>(pairs + p * kMostDim + d), kMostDim * 4,
                        to.values(i) + d * pair_row + p * 4, pair_row);
  }
}

int64_t attention_blocks(const Attention& job) {
  const auto each = static_cast<int64_t>(HWY_MAX(kQueries, pair_lanes()));
  return (job.query.size(1) + each - 1) / each;
}

struct AttentionRows {
  template <class T, bool kPairs>
  static HWY_INLINE void begin_block(const Attention& job, int64_t batch, int64_t head,
                                     int64_t query, AttentionBlock& block) {
    const auto dim = static_cast<size_t>(job.query.size(3));
    if constexpr (kPairs)
      std::fill_n(block.query_pairs, dim / 2 * block.stride, 0u);
    else
      std::fill_n(block.query, dim * block.stride, 0.0f);
    std::fill_n(block.result, dim * block.stride, 0.0f);
    int64_t q = 0;
    if constexpr (kPairs)
      for (; q + kSquare <= block.queries && dim % (2 * kSquare) == 0; q += kSquare) {
        const char* const from = address<T>(job.query, batch, query + q, head);
        for (size_t i = 0; i < dim / 2; i += kSquare)
          job.pairs->turn(from + i * sizeof(uint32_t), job.query.stride(1) * 2,
                          reinterpret_cast<char*>(block.query_pairs + i * block.stride + q),
                          static_cast<int64_t>(block.stride * sizeof(uint32_t)));
      }
    for (; q < block.queries; ++q) {
      const char* const from = address<T>(job.query, batch, query + q, head);
      if constexpr (kPairs)
        for (size_t i = 0; i < dim / 2; ++i)
          block.query_pairs[i * block.stride + static_cast<size_t>(q)] =
              read<uint32_t>(from + i * sizeof(uint32_t));
      else
        for (size_t i = 0; i < dim; ++i)
          block.query[i * block.stride + static_cast<size_t>(q)] =
              widen(read<T>(from + i * sizeof(T))) * job.scale;
    }
    // A sink is a key whose value is 0. A sink of infinity or NaN makes the row NaN.
    const float sink = job.sinks
                           ? read<float>(job.sinks.data<char>() + head * job.sinks.stride(0) * 4)
                           : kMinusInfinity;
    for (size_t c = 0; c < block.columns; ++c) {
      block.top[c] = sink;
      block.sum[c] = sink == kMinusInfinity ? 0.0f : 1.0f + (sink - sink);
    }
  }

  template <class T>
  static HWY_INLINE void end_block(const Attention& job, int64_t batch, int64_t head, int64_t query,
                                   AttentionBlock& block) {
    const auto dim = static_cast<size_t>(job.query.size(3));
    const size_t stride = block.stride, columns = block.columns;
    float* const factors = block.sum;
    for (size_t c = 0; c < columns; ++c) factors[c] = factors[c] == 0 ? 0.0f : 1.0f / factors[c];
    // Results rounded to T overwrite the queries, which are no longer needed.
    T* const rounded = reinterpret_cast<T*>(block.query);
    VF a, b, factor_a, factor_b;
    for (size_t c = 0; c < columns; c += pair_lanes()) {
      load2_like<T>(factors + c, factor_a, factor_b);
      for (size_t i = 0; i < dim; ++i) {
        load2_like<T>(block.result + i * stride + c, a, b);
        a = plain_nan(hn::Mul(a, factor_a)), b = plain_nan(hn::Mul(b, factor_b));
        store2(a, b, rounded + i * stride + c);
      }
    }
    for (int64_t q = 0; q < block.queries; ++q) {
      char* const to = const_cast<char*>(address<T>(job.out, batch, query + q, head));
      const T* const from = rounded + q;
      for (size_t i = 0; i < dim; ++i)
        std::memcpy(to + i * sizeof(T), from + i * stride, sizeof(T));
    }
  }

  // Pairs are scaled after the product, because scaling bf16 queries would round them.
  template <class T, bool kPairs>
  static HWY_INLINE void score(const Attention& job, int64_t batch, int64_t head, int64_t first,
                               int64_t count, AttentionBlock& block) {
    const auto dim = static_cast<size_t>(job.query.size(3)), keys = static_cast<size_t>(count);
    if constexpr (kPairs) {
      PairSums sums{{address<T>(job.key, batch, first, head), job.key.stride(1) * 2, 4},
                    keys,
                    dim / 2,
                    block.query_pairs,
                    block.scores,
                    block.stride,
                    block.columns};
      if (job.packed.data != nullptr) {
        const int64_t packed = job.packed.block_of(batch, head, first);
        sums.a = {job.packed.keys(packed), job.packed.dim * 2, 4};
        // Whole squares are faster, and blocks are filled with zeros.
        sums.rows = (keys + kSquare - 1) / kSquare * kSquare;
      }
      job.pairs->multiply(sums, job.scale);
    } else {
      const Matrix k = rows_of<T>(job.key, batch, head, first, count, block);
      multiply<false>(k, keys, dim, block.query, block.scores, block);
    }
  }

  template <class T, bool kPairs>
  static HWY_INLINE void add_values(const Attention& job, int64_t batch, int64_t head,
                                    int64_t first, int64_t count, AttentionBlock& block) {
    const auto dim = static_cast<size_t>(job.query.size(3)), keys = static_cast<size_t>(count);
    if constexpr (kPairs) {
      const size_t pairs = (keys + 1) / 2;
      if (job.packed.data != nullptr) {
        constexpr int64_t kRow = PackedHeads::kKeys * 2;
        const int64_t packed = job.packed.block_of(batch, head, first);
        const size_t whole = (pairs + kSquare - 1) / kSquare * kSquare;
        pair_weights(keys, whole, block);
        if (job.packed.finite(packed) != 0)
          return job.pairs->add({{job.packed.values(packed), kRow, 4},
                                 dim,
                                 whole,
                                 block.weight_pairs,
                                 block.result,
                                 block.stride,
                                 block.columns});
      } else if (pair_values(address<T>(job.value, batch, first, head), job.value.stride(1) * 2,
                             keys, dim, block.value_pairs)) {
        pair_weights(keys, pairs, block);
        const PairMatrix v{reinterpret_cast<const char*>(block.value_pairs), 4, kMostDim * 4};
        return job.pairs->add(
            {v, dim, pairs, block.weight_pairs, block.result, block.stride, block.columns});
      }
      return add_weighted<T>(job, batch, head, first, keys, dim, block);
    } else {
      const Matrix v = rows_of<T>(job.value, batch, head, first, count, block);
      if (all_finite(v, keys, dim))
        multiply<true>({v.data, v.column, v.row}, dim, keys, block.scores, block.result, block);
      else
        add_weighted<T>(job, batch, head, first, keys, dim, block);
    }
  }

  template <class T, bool kPairs>
  static HWY_NOINLINE void block_of(const Attention& job, int64_t batch, int64_t head,
                                    int64_t query) {
    AttentionBlock block;
    const size_t pair = kPairs ? HWY_MAX(pair_lanes(), kPairColumns) : pair_lanes();
    block.stride = HWY_MAX(kQueries, pair);
    block.queries = HWY_MIN(static_cast<int64_t>(block.stride), job.query.size(1) - query);
    block.columns = (static_cast<size_t>(block.queries) + pair - 1) / pair * pair;
    const auto dim = static_cast<size_t>(job.query.size(3));
    const int64_t key_head = head / (job.query.size(2) / job.key.size(2));
    begin_block<T, kPairs>(job, batch, head, query, block);
    // The ranges of keys grow with the query.
    const Attention::Range low = job.visible(batch, query);
    const Attention::Range high = job.visible(batch, query + block.queries - 1);
    const int64_t most = job.packed.data != nullptr ? PackedHeads::kKeys : kKeys;
    const int64_t begin = job.packed.data != nullptr ? low.first / most * most : low.first;
    for (int64_t first = begin; first < high.last; first += most) {
      const int64_t count = HWY_MIN(most, high.last - first);
      const auto keys = static_cast<size_t>(count);
      score<T, kPairs>(job, batch, key_head, first, count, block);
      if (job.mask || first < high.first || first + count > low.last)
        mask_scores(job, batch, head, query, first, count, block);
      weigh_block<kPairs>(block, keys, dim);
      add_values<T, kPairs>(job, batch, key_head, first, count, block);
    }
    end_block<T>(job, batch, head, query, block);
  }

  template <class T>
  static void of(const Attention& job, int64_t begin, int64_t end) {
    const int64_t blocks = attention_blocks(job), heads = job.query.size(2);
    const auto each = static_cast<int64_t>(HWY_MAX(kQueries, pair_lanes()));
    const auto all = [&](auto block) HWY_ATTR {
      for (int64_t i = begin; i < end; ++i)
        block(job, i / blocks / heads, i / blocks % heads, i % blocks * each);
    };
    if constexpr (std::is_same_v<T, BF16>)
      if (job.pairs != nullptr) {
        if (job.pairs->begin != nullptr) job.pairs->begin();
        all(block_of<T, true>);
        if (job.pairs->end != nullptr) job.pairs->end();
        return;
      }
    all(block_of<T, false>);
  }
};

void attention_rows(const Attention& job, int64_t begin, int64_t end) {
  by_type<AttentionRows>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(attention_blocks);
HWY_EXPORT(attention_rows);
HWY_EXPORT(pack_heads);

int32_t run_attention(Call call, Attention job) {
  if (job.out.numel() == 0) return YARD_OK;
  if (job.packed.count > 0) {
    job.packed.data = call.workspace<char>().data();
    call.parallel_for(job.packed.count, grain_of(2 * job.packed.block_bytes()),
                      [&](int64_t begin, int64_t end) {
                        HWY_DYNAMIC_DISPATCH(pack_heads)(job, begin, end);
                      });
  }
  const int64_t blocks = HWY_DYNAMIC_DISPATCH(attention_blocks)(job);
  const int64_t pieces = job.query.size(0) * job.query.size(2) * blocks;
  // The arithmetic of a block, expressed as bytes moved.
  const int64_t seen =
      job.window > 0 ? std::min(job.window + 64, job.key.size(1)) : job.key.size(1);
  const int64_t bytes = seen * job.query.size(3) * 64;
  call.parallel_for(pieces, grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(attention_rows)(job, begin, end);
  });
  return YARD_OK;
}

template <bool kPairs>
Attention job_of(Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask, double scale) {
  Attention job{out, query, key, value, mask, scale_of(scale, query.size(3)), query.dtype()};
  if (kPairs) job.pairs = pair_products(), job.packed = PackedHeads(query, key);
  return job;
}

}  // namespace

template <bool kPairs>
int32_t attention_full(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                       double scale) {
  return run_attention(call, job_of<kPairs>(out, query, key, value, mask, scale));
}

template <bool kPairs>
int32_t attention_causal(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                         double scale) {
  Attention job = job_of<kPairs>(out, query, key, value, mask, scale);
  job.causal = true;
  return run_attention(call, job);
}

template <bool kPairs>
int32_t attention_sliding_window(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                                 Tensor mask, Tensor sinks, int64_t window, double scale) {
  if (window < 1)  // bound calls change scalars without a check
    return call.fail(YARD_CALLER,
                     "attention.sliding_window: invalid window: expected at least 1, got %lld",
                     static_cast<long long>(window));
  Attention job = job_of<kPairs>(out, query, key, value, mask, scale);
  job.sinks = sinks, job.causal = true, job.window = window;
  return run_attention(call, job);
}

template <bool kPairs>
int32_t attention_cross(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                        Tensor lengths, Tensor mask, double scale) {
  if (lengths)
    if (const int32_t code = check_lengths(call, "attention.cross", lengths, key.size(1));
        code != YARD_OK)
      return code;
  Attention job = job_of<kPairs>(out, query, key, value, mask, scale);
  job.lengths = lengths;
  return run_attention(call, job);
}

int64_t attention_workspace(Tensor, Tensor query, Tensor key, Tensor, Tensor, double) {
  return PackedHeads(query, key).bytes();
}
int64_t attention_window_workspace(Tensor, Tensor query, Tensor key, Tensor, Tensor, Tensor,
                                   int64_t, double) {
  return PackedHeads(query, key).bytes();
}
int64_t attention_cross_workspace(Tensor, Tensor query, Tensor key, Tensor, Tensor, Tensor,
                                  double) {
  return PackedHeads(query, key).bytes();
}

#define YARD_BOTH(function)                           \
  template decltype(function<false>) function<false>; \
  template decltype(function<true>) function<true>
YARD_BOTH(attention_full);
YARD_BOTH(attention_causal);
YARD_BOTH(attention_sliding_window);
YARD_BOTH(attention_cross);
#undef YARD_BOTH

}  // namespace yard::simd
#endif
