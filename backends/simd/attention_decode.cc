// SPDX-License-Identifier: Apache-2.0
// attention.decode and .paged_decode. The query heads that share a key head pass over its keys and
// values once, block by block, with an online softmax. A few key heads take turns block by block:
// rows of one head often lie a page apart, and each page is then looked up once for all of these
// heads. If batches and heads are too few for all threads, parts of a long cache are computed
// separately and merged.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention_decode.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>

#include "attention.h"
#include "jobs.h"
#include "lanes.inc"
#include "math.inc"

#include "dots.inc"  // after lanes.inc

#include "decode_blocks.inc"  // after dots.inc

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

template <class C>
HWY_INLINE CacheBlock<C> block_at(const Decode& job, int64_t batch, int64_t key_head, int64_t from,
                                  int64_t length) {
  CacheBlock<C> block;
  block.count = HWY_MAX(int64_t{0}, HWY_MIN(kDecodeKeys, length - from));
  const int64_t page = job.key.size(1), key_step = job.key.stride(1), step = job.value.stride(1);
  for (int64_t j = 0; j < block.count;) {
    const int64_t end =
        job.table ? HWY_MIN(block.count, j + page - (from + j) % page) : block.count;
    auto* key = reinterpret_cast<const C*>(job.at(job.key, batch, from + j, key_head));
    auto* value = reinterpret_cast<const C*>(job.at(job.value, batch, from + j, key_head));
    for (; j < end; ++j, key += key_step, value += step)
      block.keys[j] = key, block.values[j] = value;
  }
  for (int64_t j = block.count; j % 4 != 0; ++j) block.keys[j] = block.keys[j - 1];
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

// Unit u of a batch: at most four query heads that share a key head.
struct DecodeUnit {
  int64_t head, key_head;
  size_t count;

  DecodeUnit(const Decode& job, int64_t u) {
    const int64_t group = job.query.size(1) / job.key.size(2);
    const int64_t chunks = (group + kDecodeRows - 1) / kDecodeRows,
                  first = u % chunks * kDecodeRows;
    key_head = u / chunks, head = key_head * group + first;
    count = static_cast<size_t>(HWY_MIN(kDecodeRows, group - first));
  }
};

template <class T, class C>
HWY_NOINLINE void begin_rows(const Decode& job, int64_t batch, const DecodeUnit& unit,
                             DecodeRows& rows) {
  const auto dim = static_cast<size_t>(job.query.size(2));
  std::fill_n(rows.result, unit.count * kDecodeWidth, 0.0f);
  for (size_t r = 0; r < unit.count; ++r) {
    const int64_t h = unit.head + static_cast<int64_t>(r);
    float* const q = rows.query + r * kDecodeWidth;
    prepare_row<C>(job.query.data<T>() + batch * job.query.stride(0) + h * job.query.stride(1), dim,
                   q, kDecodeWidth - pair_lanes());
    multiply_row(q, dim, hn::Set(DF(), job.scale));
    rows.top[r] = -std::numeric_limits<float>::infinity(), rows.sum[r] = 0;
  }
}

template <class T, class C>
HWY_NOINLINE void write_rows(const Decode& job, int64_t batch, const DecodeUnit& unit,
                             const DecodeRows& rows) {
  const auto dim = static_cast<size_t>(job.query.size(2));
  const size_t pair = pair_lanes();
  for (size_t r = 0; r < unit.count; ++r) {
    HWY_ALIGN float ordered[kDecodeWidth];
    VF a, b;
    // Without keys, results are 0.
    const VF sum = hn::Set(DF(), rows.sum[r] == 0 ? 1.0f : rows.sum[r]);
    for (size_t i = 0; i < dim; i += pair) {
      load2(rows.result + r * kDecodeWidth + i, a, b);
      store2_like<C>(plain_nan(hn::Div(a, sum)), plain_nan(hn::Div(b, sum)), ordered + i);
    }
    const int64_t h = unit.head + static_cast<int64_t>(r);
    T* const out = job.out.data<T>() + batch * job.out.stride(0) + h * job.out.stride(1);
    for (size_t i = 0; i < dim; i += pair) {
      load2_like<T>(ordered + i, a, b);
      if (i + pair <= dim)
        store2_part<true>(a, b, out + i, pair);
      else
        store2_part<false>(a, b, out + i, dim - i);
    }
  }
}

HWY_INLINE void save_rows(const Decode& job, float* to, size_t count, const DecodeRows& rows) {
  const auto width = static_cast<size_t>(job.split.width);
  for (size_t r = 0; r < count; ++r, to += width + 2) {
    std::memcpy(to, rows.result + r * kDecodeWidth, width * sizeof(float));
    to[width] = rows.top[r], to[width + 1] = rows.sum[r];
  }
}

// Adds a part of a row to the parts before it, with both scaled to the larger maximum. A part whose
// factor is 0 is left out, because its values may be infinite.
HWY_NOINLINE void merge_row(const Decode& job, const float* part, size_t row, DecodeRows& rows) {
  const DF d;
  const auto width = static_cast<size_t>(job.split.width),
             dim = static_cast<size_t>(job.query.size(2));
  const float top = part[width], sum = part[width + 1];
  if (sum == 0) return;  // the part has seen no key
  const float most = HWY_MAX(top, rows.top[row]);
  const VF ours = exp_minus(hn::Set(d, most - rows.top[row])),
           theirs = exp_minus(hn::Set(d, most - top));
  float* const to = rows.result + row * kDecodeWidth;
  // Before the first part the maximum is -inf, and the result is zeros.
  if (hn::GetLane(ours) == 0)
    std::fill_n(to, kDecodeWidth, 0.0f);
  else
    multiply_row(to, dim, ours);
  rows.top[row] = most;
  rows.sum[row] = rows.sum[row] * hn::GetLane(ours) + sum * hn::GetLane(theirs);
  if (hn::GetLane(theirs) == 0) return;
  VF a, b, x, y;
  for (size_t i = 0; i < dim; i += pair_lanes()) {  // whole pairs, as in multiply_row()
    load2(to + i, a, b), load2(part + i, x, y);
    store2(hn::MulAdd(x, theirs, a), hn::MulAdd(y, theirs, b), to + i);
  }
}

template <class T>
struct DecodeAs {
  template <class C>
  static HWY_NOINLINE void piece(const Decode& job, int64_t batch, int64_t first, size_t count,
                                 int64_t part) {
    const auto dim = static_cast<size_t>(job.query.size(2));
    DecodeRows rows[Decode::kTogether];
    const int64_t begin = part * job.split.keys;
    const int64_t end =
        HWY_MIN(index_at(job.lengths, batch * job.lengths.stride(0)), begin + job.split.keys);
    // As many units as there are, and some that are not used.
    const DecodeUnit units[] = {{job, first}, {job, first + 1}, {job, first + 2}, {job, first + 3}};
    static_assert(std::size(units) == Decode::kTogether);
    const auto block_of = [&](size_t u, int64_t from) HWY_ATTR {
      return block_at<C>(job, batch, units[u].key_head, from, end);
    };
    CacheBlock<C> block = block_of(0, begin);
    for (int64_t j = 0; j < block.count; ++j)
      prefetch(block.keys[j], dim), prefetch(block.values[j], dim);
    for (size_t u = 0; u < count; ++u) begin_rows<T, C>(job, batch, units[u], rows[u]);
    float added[kDecodeRows][kDecodeKeys];
    for (int64_t from = begin; from < end; from += kDecodeKeys)
      for (size_t u = 0; u < count; ++u) {
        const CacheBlock<C> next =
            u + 1 < count ? block_of(u + 1, from) : block_of(0, from + kDecodeKeys);
        for (size_t r = 0; job.mask && r < units[u].count; ++r)
          read_mask(job, batch, units[u].head + static_cast<int64_t>(r), from, block.count,
                    added[r]);
        add_block(block, next, rows[u], units[u].count, dim, job.mask ? added : nullptr);
        block = next;
      }
    for (size_t u = 0; u < count; ++u) {
      if (job.split.parts == 1)
        write_rows<T, C>(job, batch, units[u], rows[u]);
      else
        save_rows(job, job.partial(batch, first + static_cast<int64_t>(u), part), units[u].count,
                  rows[u]);
    }
  }

  template <class C>
  static void of(const Decode& job, int64_t begin, int64_t end) {
    const int64_t units = job.split.units, parts = job.split.parts, groups = job.split.groups();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i % parts, group = i / parts % groups, batch = i / parts / groups;
      const int64_t first = group * job.split.together;
      piece<C>(job, batch, first, static_cast<size_t>(HWY_MIN(job.split.together, units - first)),
               part);
    }
  }

  template <class C>
  static void merge(const Decode& job, int64_t begin, int64_t end) {
    DecodeRows rows;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / job.split.units, u = i % job.split.units;
      const DecodeUnit unit(job, u);
      std::fill_n(rows.result, kDecodeRows * kDecodeWidth, 0.0f);
      for (size_t r = 0; r < unit.count; ++r) {
        rows.top[r] = -std::numeric_limits<float>::infinity(), rows.sum[r] = 0;
        for (int64_t part = 0; part < job.split.parts; ++part)
          merge_row(job,
                    job.partial(batch, u, part) + static_cast<int64_t>(r) * (job.split.width + 2),
                    r, rows);
      }
      write_rows<T, C>(job, batch, unit, rows);
    }
  }
};

struct DecodePieces {
  template <class T, class C>
  static void of(const Decode& job, int64_t begin, int64_t end) {
    DecodeAs<T>::template of<C>(job, begin, end);
  }
};
struct DecodeMerge {
  template <class T, class C>
  static void of(const Decode& job, int64_t begin, int64_t end) {
    DecodeAs<T>::template merge<C>(job, begin, end);
  }
};

template <class Step, class T>
HWY_INLINE void by_cache_type(const Decode& job, int64_t begin, int64_t end) {
  switch (job.key.dtype()) {
    case YARD_F32: return Step::template of<T, float>(job, begin, end);
    case YARD_F16: return Step::template of<T, F16>(job, begin, end);
    case YARD_BF16: return Step::template of<T, BF16>(job, begin, end);
    default: return;
  }
}
template <class Step>
HWY_INLINE void by_types(const Decode& job, int64_t begin, int64_t end) {
  switch (job.query.dtype()) {
    case YARD_F32: return by_cache_type<Step, float>(job, begin, end);
    case YARD_F16: return by_cache_type<Step, F16>(job, begin, end);
    case YARD_BF16: return by_cache_type<Step, BF16>(job, begin, end);
    default: return;
  }
}

void decode_pieces(const Decode& job, int64_t begin, int64_t end) {
  by_types<DecodePieces>(job, begin, end);
}
void decode_merge(const Decode& job, int64_t begin, int64_t end) {
  by_types<DecodeMerge>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(decode_pieces);
HWY_EXPORT(decode_merge);

int32_t run_decode(Call call, Decode job) {
  if (job.out.numel() == 0) return YARD_OK;
  const int64_t batches = job.query.size(0);
  int64_t longest = 0;
  for (int64_t b = 0; b < job.lengths.size(0); ++b)
    longest = std::max(longest, index_at(job.lengths, b * job.lengths.stride(0)));
  job.split = DecodeSplit(job.query, job.key, longest);
  job.partials = call.workspace<float>().data();
  // Threads wait for far memory, so pieces justify a thread sooner than their bytes suggest.
  const int64_t bytes = job.split.together * job.split.keys * job.query.size(2) * 64;
  call.parallel_for(batches * job.split.groups() * job.split.parts, grain_of(bytes),
                    [&](int64_t begin, int64_t end) {
                      HWY_DYNAMIC_DISPATCH(decode_pieces)(job, begin, end);
                    });
  if (job.split.parts == 1) return YARD_OK;
  call.parallel_for(batches * job.split.units, grain_of(job.split.parts * job.split.width * 16),
                    [&](int64_t begin, int64_t end) {
                      HWY_DYNAMIC_DISPATCH(decode_merge)(job, begin, end);
                    });
  return YARD_OK;
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

int64_t attention_decode_workspace(Tensor, Tensor query, Tensor key, Tensor, Tensor, Tensor,
                                   double) {
  return DecodeSplit(query, key, key.size(1)).most_bytes(query.size(0), key.size(1));
}
int64_t attention_paged_decode_workspace(Tensor, Tensor query, Tensor key, Tensor, Tensor table,
                                         Tensor, double) {
  const int64_t capacity = table.size(1) * key.size(1);
  return DecodeSplit(query, key, capacity).most_bytes(query.size(0), capacity);
}

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
