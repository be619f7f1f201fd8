// SPDX-License-Identifier: Apache-2.0
// embedding and dequantize convert rows of a table of any format to rows of floats.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "expand.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"
#include "quant.h"
#include "scalars.h"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

template <bool kWhole, class W, class T>
HWY_INLINE void convert_step(const W* from, T* to, size_t count, VF scale) {
  HWY_ALIGN float ordered[2 * hn::MaxLanes(DF())];
  VF a, b;
  load2_part<kWhole>(from, count, a, b);
  if constexpr (!std::is_same_v<W, T>) {
    store2_like<W>(a, b, ordered);
    load2_like<T>(ordered, a, b);
  }
  // Rounding to bf16 could lose the bits of an f32 NaN.
  a = plain_nan(hn::Mul(a, scale)), b = plain_nan(hn::Mul(b, scale));
  store2_part<kWhole>(a, b, to, count);
}
template <class W, class T>
HWY_INLINE void convert(const W* from, T* to, size_t count, float scale) {
  const VF s = hn::Set(DF(), scale);
  const size_t pair = pair_lanes();
  size_t i = 0;
  for (; i + pair <= count; i += pair) convert_step<true>(from + i, to + i, pair, s);
  if (i < count) convert_step<false>(from + i, to + i, count - i, s);
}

HWY_INLINE void convert_bytes(const int8_t* from, float* to, size_t count) {
  const DF d;
  const hn::Rebind<int8_t, DF> bytes;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(
        hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<DF>(), hn::LoadU(bytes, from + i))), d,
        to + i);
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

template <class T>
HWY_INLINE void expand_row(const Expand& job, const char* from, T* to, float scale) {
  const auto width = static_cast<size_t>(job.width);
  if (job.from_dtype == job.dtype)
    return static_cast<void>(std::memcpy(to, from, width * sizeof(T)));
  switch (job.from_dtype) {
    case YARD_F32: return convert(reinterpret_cast<const float*>(from), to, width, 1.0f);
    case YARD_F16: return convert(reinterpret_cast<const F16*>(from), to, width, 1.0f);
    case YARD_BF16: return convert(reinterpret_cast<const BF16*>(from), to, width, 1.0f);
    default: break;
  }
  for (int64_t at = 0; at < job.width; at += kPlain) {
    HWY_ALIGN float values[kPlain];
    const int64_t count = HWY_MIN(kPlain, job.width - at);
    if (job.from_dtype == YARD_I8)
      convert_bytes(reinterpret_cast<const int8_t*>(from) + at, values, static_cast<size_t>(count));
    else
      dequantize_row(job.format, reinterpret_cast<const uint8_t*>(from), at, count, values);
    convert(values, to + at, static_cast<size_t>(count), scale);
  }
}

struct ExpandRows {
  template <class T>
  static void of(const Expand& job, int64_t begin, int64_t end) {
    auto row = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, row.next()) {
      const char* from = row.template at<char>(1);
      if (job.table != nullptr) {
        const int64_t id = job.wide_ids ? read<int64_t>(from) : read<int32_t>(from);
        from = job.table + id * job.table_stride;
      }
      const char* const scale = row.template at<char>(2);
      expand_row(job, from, row.template at<T>(0), scale != nullptr ? read<float>(scale) : 1.0f);
    }
  }
};

void expand_rows(const Expand& job, int64_t begin, int64_t end) {
  by_type<ExpandRows>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {

HWY_EXPORT(expand_rows);

int32_t expand(Call call, const Expand& job) {
  call.parallel_for(job.walk.rows(), grain_of(job.width * 8), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(expand_rows)(job, begin, end);
  });
  return YARD_OK;
}

// The dimensions of ids and scales are the dimensions of `out` without the last.
Expand job_of(Tensor out, Tensor from, Tensor scale, Tensor table) {
  Expand job{{{out, from, scale}, 1}};
  job.width = out.size(-1), job.dtype = out.dtype();
  const Tensor elements = table ? table : from;
  job.from_dtype = elements.dtype();
  if (const std::optional<Format> format = format_of(elements)) job.format = *format;
  return job;
}

}  // namespace

int32_t embedding(Call call, Tensor out, Tensor ids, Tensor table) {
  Expand job = job_of(out, ids, Tensor(nullptr), table);
  job.table = table.data<char>(), job.table_stride = stride_bytes(table, 0);
  job.wide_ids = ids.dtype() == YARD_I64;
  if (job.walk.rows() == 0) return YARD_OK;
  auto row = job.walk.from(0);
  for (int64_t r = 0; r < job.walk.rows(); ++r, row.next()) {
    const char* const at = row.at<char>(1);
    const int64_t id = job.wide_ids ? read<int64_t>(at) : read<int32_t>(at);
    if (id < 0 || id >= table.size(0))
      return call.fail(
          YARD_CALLER,
          "embedding: invalid id: expected 0 <= id < vocab, which is %lld, got %lld in row %lld",
          static_cast<long long>(table.size(0)), static_cast<long long>(id),
          static_cast<long long>(r));
  }
  if (out.numel() == 0) return YARD_OK;
  return expand(call, job);
}

int32_t dequantize(Call call, Tensor out, Tensor x, Tensor scale) {
  if (out.numel() == 0) return YARD_OK;
  return expand(call, job_of(out, x, scale, Tensor(nullptr)));
}

}  // namespace yard::simd
#endif
