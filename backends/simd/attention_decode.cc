// SPDX-License-Identifier: Apache-2.0
// attention.decode and .paged_decode: the query heads that share a key head pass over its keys and values once, block by
// block, with a softmax whose maximum and sum grow with each (online softmax).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention_decode.cc"
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

#include "dots.inc"  // after lanes.inc

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

constexpr int64_t kDecodeKeys = 32, kDecodeRows = 4;
// Of a row of f32: room for a pair that begins inside it.
constexpr size_t kDecodeWidth = kMostDim + 2 * hn::MaxLanes(DF());

struct DecodeRows {
  HWY_ALIGN float query[kDecodeRows * kDecodeWidth];   // scaled; in the order of pairs of the cache
  HWY_ALIGN float result[kDecodeRows * kDecodeWidth];  // likewise, not yet divided by `sum`
  float weights[kDecodeRows][kDecodeKeys];             // first scores
  float top[kDecodeRows], sum[kDecodeRows];
};

// Some keys and values of one head.
template <class C>
struct CacheBlock {
  const C *keys[kDecodeKeys], *values[kDecodeKeys];
  int64_t count = 0;
};

template <class C>
HWY_INLINE void prefetch(const C* row, size_t dim) {
  for (size_t at = 0; at < dim * sizeof(C); at += 64)
    __builtin_prefetch(reinterpret_cast<const char*>(row) + at, 0, 2);  // into the second cache
}

// result[at, at + pair) of a row += weights times values of four keys, or of one.
template <bool kWhole, class C>
HWY_INLINE void add_four(const C* const* values, const float* weights, float* result, size_t at,
                         size_t left) {
  const DF d;
  VF r, s, a, b;
  load2(result + at, r, s);
  for (int j = 0; j < 4; ++j) {
    load2_part<kWhole>(values[j] + at, left, a, b);
    const VF w = hn::Set(d, weights[j]);
    r = hn::MulAdd(a, w, r), s = hn::MulAdd(b, w, s);
  }
  store2(r, s, result + at);
}
template <bool kWhole, class C>
HWY_INLINE void add_one(const C* value, float weight, float* result, size_t at, size_t left) {
  const VF w = hn::Set(DF(), weight);
  VF r, s, a, b;
  load2(result + at, r, s);
  load2_part<kWhole>(value + at, left, a, b);
  store2(hn::MulAdd(a, w, r), hn::MulAdd(b, w, s), result + at);
}

// Four keys at a time, whose values then stay in the first cache for the other rows: those of one head often lie a page
// apart, and only few of them fit there.
template <class C>
HWY_INLINE void add_values(const CacheBlock<C>& block, DecodeRows& rows, size_t first, size_t count,
                           size_t dim) {
  const size_t pair = pair_lanes();
  int64_t j = 0;
  for (; j + 4 <= block.count; j += 4)
    for (size_t r = first; r < first + count; ++r) {
      float* const result = rows.result + r * kDecodeWidth;
      const float* const weights = rows.weights[r] + j;
      size_t at = 0;
      for (; at + pair <= dim; at += pair)
        add_four<true>(block.values + j, weights, result, at, pair);
      if (at < dim) add_four<false>(block.values + j, weights, result, at, dim - at);
    }
  for (; j < block.count; ++j)
    for (size_t r = first; r < first + count; ++r) {
      float* const result = rows.result + r * kDecodeWidth;
      const float weight = rows.weights[r][j];
      size_t at = 0;
      for (; at + pair <= dim; at += pair) add_one<true>(block.values[j], weight, result, at, pair);
      if (at < dim) add_one<false>(block.values[j], weight, result, at, dim - at);
    }
}

// A row alone, without the keys of weight 0, whose values count for nothing whatever they are.
template <class C>
void add_weighted_values(CacheBlock<C> block, DecodeRows& rows, size_t row, size_t dim) {
  int64_t kept = 0;
  for (int64_t j = 0; j < block.count; ++j) {
    if (rows.weights[row][j] == 0) continue;
    rows.weights[row][kept] = rows.weights[row][j];
    block.values[kept++] = block.values[j];
  }
  block.count = kept;
  add_values(block, rows, row, 1, dim);
}

// Whole pairs, since in a part of one the elements are not the first.
HWY_INLINE void multiply_row(float* row, size_t dim, VF factor) {
  VF a, b;
  for (size_t i = 0; i < dim; i += pair_lanes()) {
    load2(row + i, a, b);
    store2(hn::Mul(a, factor), hn::Mul(b, factor), row + i);
  }
}

// Scores to weights, against a maximum that includes them; what was summed up before is scaled to it. Whether one is 0.
HWY_INLINE bool weigh(DecodeRows& rows, size_t row, int64_t count, size_t dim) {
  const DF d;
  float* const w = rows.weights[row];
  float top = rows.top[row];
  for (int64_t j = 0; j < count; ++j) top = w[j] > top ? w[j] : top;
  // With nothing but -inf so far, differences to 0 give weights of 0.
  const float reference = top == -std::numeric_limits<float>::infinity() ? 0.0f : top;
  if (top != rows.top[row]) {
    const VF factor = exp_minus(hn::Set(d, reference - rows.top[row]));
    multiply_row(rows.result + row * kDecodeWidth, dim, factor);
    rows.sum[row] *= hn::GetLane(factor);
    rows.top[row] = top;
  }
  bool some_zero = false;
  HWY_ALIGN float padded[kDecodeKeys + hn::MaxLanes(d)];
  for (int64_t j = 0; j < count; ++j) padded[j] = w[j];
  for (int64_t j = count; j < kDecodeKeys; ++j) padded[j] = -std::numeric_limits<float>::infinity();
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t j = 0; j < kDecodeKeys; j += lanes)
    store(exp_minus(hn::Sub(hn::Set(d, reference), load(d, padded + j))), d, padded + j);
  for (int64_t j = 0; j < count; ++j) {
    w[j] = padded[j];
    rows.sum[row] += w[j];
    some_zero = some_zero || w[j] == 0;
  }
  return some_zero;
}

template <class C>
HWY_INLINE void add_block(const CacheBlock<C>& block, const CacheBlock<C>& next, DecodeRows& rows,
                          size_t count, size_t dim,
                          const float (&added)[kDecodeRows][kDecodeKeys]) {
  for (int64_t j = 0; j < block.count; ++j) {
    // Rows of one head lie a page apart, where no prefetcher of the machine finds them.
    if (j < next.count) prefetch(next.keys[j], dim), prefetch(next.values[j], dim);
    float scores[kDecodeRows];
    if (count == 1)
      scores[0] = product(block.keys[j], rows.query, dim);
    else
      products4(block.keys[j], rows.query, kDecodeWidth, dim, scores);
    for (size_t r = 0; r < count; ++r) rows.weights[r][j] = scores[r] + added[r][j];
  }
  bool some_zero = false;
  for (size_t r = 0; r < count; ++r) some_zero |= weigh(rows, r, block.count, dim);
  if (some_zero) {
    for (size_t r = 0; r < count; ++r) add_weighted_values(block, rows, r, dim);
  } else {
    add_values(block, rows, 0, count, dim);
  }
}

template <class C>
HWY_INLINE CacheBlock<C> block_at(const Decode& job, int64_t batch, int64_t key_head, int64_t from,
                                  int64_t length) {
  CacheBlock<C> block;
  block.count = HWY_MAX(int64_t{0}, HWY_MIN(kDecodeKeys, length - from));
  for (int64_t j = 0; j < block.count; ++j) {
    block.keys[j] = reinterpret_cast<const C*>(job.at(job.key, batch, from + j, key_head));
    block.values[j] = reinterpret_cast<const C*>(job.at(job.value, batch, from + j, key_head));
  }
  return block;
}

HWY_INLINE void read_mask(const Decode& job, int64_t batch, int64_t head, int64_t from,
                          int64_t count, float* added) {
  const int64_t item = job.mask.c()->dtype.bits / 8;
  const char* const row =
      job.mask.data<char>() + (batch * job.mask.stride(0) + head * job.mask.stride(1)) * item;
  for (int64_t j = 0; j < count; ++j)
    added[j] = read_as_float(row + (from + j) * job.mask.stride(2) * item, job.mask.dtype());
}

// At most four heads from `head` on, which share a key head.
template <class T, class C>
void decode_heads(const Decode& job, int64_t batch, int64_t head, size_t count, int64_t key_head) {
  const auto dim = static_cast<size_t>(job.query.size(2));
  DecodeRows rows;
  std::fill_n(rows.query, kDecodeRows * kDecodeWidth, 0.0f);
  std::fill_n(rows.result, kDecodeRows * kDecodeWidth, 0.0f);
  for (size_t r = 0; r < count; ++r) {
    const int64_t h = head + static_cast<int64_t>(r);
    float* const q = rows.query + r * kDecodeWidth;
    prepare_row<C>(job.query.data<T>() + batch * job.query.stride(0) + h * job.query.stride(1), dim,
                   q, kDecodeWidth - pair_lanes());
    multiply_row(q, dim, hn::Set(DF(), job.scale));
    rows.top[r] = -std::numeric_limits<float>::infinity(), rows.sum[r] = 0;
  }
  const int64_t length = index_at(job.lengths, batch * job.lengths.stride(0));
  float added[kDecodeRows][kDecodeKeys] = {};
  CacheBlock<C> block = block_at<C>(job, batch, key_head, 0, length);
  for (int64_t from = 0; from < length; from += kDecodeKeys) {
    const CacheBlock<C> next = block_at<C>(job, batch, key_head, from + kDecodeKeys, length);
    for (size_t r = 0; job.mask && r < count; ++r)
      read_mask(job, batch, head + static_cast<int64_t>(r), from, block.count, added[r]);
    add_block(block, next, rows, count, dim, added);
    block = next;
  }
  for (size_t r = 0; r < count; ++r) {
    HWY_ALIGN float ordered[kDecodeWidth];
    VF a, b;
    for (size_t i = 0; i < dim; i += pair_lanes()) {
      load2(rows.result + r * kDecodeWidth + i, a, b);
      store2_like<C>(a, b, ordered + i);
    }
    char* const out =
        job.out.data<char>() +
        (batch * job.out.stride(0) + (head + static_cast<int64_t>(r)) * job.out.stride(1)) *
            static_cast<int64_t>(sizeof(T));
    for (size_t i = 0; i < dim; ++i)
      write_float(out + i * sizeof(T), job.out.dtype(),
                  rows.sum[r] == 0 ? 0.0f : ordered[i] / rows.sum[r]);
  }
}

template <class T>
struct DecodeAs {
  template <class C>
  static void of(const Decode& job, int64_t begin, int64_t end) {
    const int64_t heads = job.query.size(1), key_heads = job.key.size(2);
    const int64_t group = heads / key_heads, chunks = (group + kDecodeRows - 1) / kDecodeRows;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t chunk = i % chunks, g = i / chunks % key_heads, b = i / chunks / key_heads;
      const int64_t first = chunk * kDecodeRows;
      decode_heads<T, C>(job, b, g * group + first,
                         static_cast<size_t>(HWY_MIN(kDecodeRows, group - first)), g);
    }
  }
};

template <class T>
HWY_INLINE void decode_as(const Decode& job, int64_t begin, int64_t end) {
  switch (job.key.dtype()) {
    case YARD_F32: return DecodeAs<T>::template of<float>(job, begin, end);
    case YARD_F16: return DecodeAs<T>::template of<F16>(job, begin, end);
    case YARD_BF16: return DecodeAs<T>::template of<BF16>(job, begin, end);
    default: return;
  }
}

void decode_pieces(const Decode& job, int64_t begin, int64_t end) {
  switch (job.query.dtype()) {
    case YARD_F32: return decode_as<float>(job, begin, end);
    case YARD_F16: return decode_as<F16>(job, begin, end);
    case YARD_BF16: return decode_as<BF16>(job, begin, end);
    default: return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(decode_pieces);

int32_t run_decode(Call call, const Decode& job) {
  if (job.out.numel() == 0) return YARD_OK;
  const int64_t key_heads = job.key.size(2), group = job.query.size(1) / key_heads;
  const int64_t pieces = job.query.size(0) * key_heads * ((group + 3) / 4);
  int64_t longest = 0;
  for (int64_t b = 0; b < job.lengths.size(0); ++b)
    longest = std::max(longest, index_at(job.lengths, b * job.lengths.stride(0)));
  const int64_t bytes = longest * job.query.size(2) * 16;
  call.parallel_for(pieces, grain_of(bytes), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(decode_pieces)(job, begin, end);
  });
  return YARD_OK;
}

// The entries of the block table that the lengths reach are blocks; the error names the first that is none.
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

int32_t attention_decode(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                         Tensor lengths, Tensor mask, double scale) {
  if (const int32_t code = check_lengths(call, "attention.decode", lengths, key.size(1));
      code != YARD_OK)
    return code;
  return run_decode(call, {out, query, key, value, mask, lengths, scale_of(scale, query.size(2))});
}

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
  return run_decode(call, {out, query, key, value, Tensor(nullptr), lengths,
                           scale_of(scale, query.size(2)), block_table});
}

}  // namespace yard::simd
#endif
