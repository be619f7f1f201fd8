// SPDX-License-Identifier: Apache-2.0
// matmul copies panels of columns of `b` as f32 in the order in which they are multiplied, and
// multiplies many rows of `a` by each panel. A result is the f32 sum of f32 sums over kDepth
// products each, in ascending order, so it does not depend on the rows and columns beside it. If
// results of a row approach the limit of f16, its smaller results may be small beside their terms,
// so the row is computed again in double.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "matmul.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"
#include "scalars.h"

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

// Columns and most rows of a panel, which holds all rows of a pair of vectors, then the next pair.
constexpr size_t kColumns = Matmul::kColumns, kDepth = 128;
constexpr size_t kTileRows = 6;

template <class T>
HWY_INLINE void pack_columns(const char* b, int64_t row_bytes, int64_t step, size_t depth,
                             size_t columns, float* panel) {
  const size_t pair = pair_lanes();
  VF v, w;
  for (size_t k = 0; k < depth; ++k, b += row_bytes) {
    const T* from = reinterpret_cast<const T*>(b);
    T gathered[kColumns];
    if (step != static_cast<int64_t>(sizeof(T))) {
      for (size_t c = 0; c < columns; ++c)
        gathered[c] = read<T>(b + static_cast<int64_t>(c) * step);
      from = gathered;
    }
    size_t c = 0;
    for (; c + pair <= columns; c += pair) {
      load2(from + c, v, w);
      store2(v, w, panel + c * kDepth + k * pair);
    }
    if (c < columns) {
      load2_part<false>(from + c, columns - c, v, w);
      store2(v, w, panel + c * kDepth + k * pair);
    }
  }
}

// Copies a part of a row of `a` as f32, in order.
template <class T>
HWY_INLINE void pack_row(const char* a, int64_t step, size_t depth, float* out) {
  size_t k = 0;
  if (step == static_cast<int64_t>(sizeof(T))) {
    const T* const from = reinterpret_cast<const T*>(a);
    VF v, w;
    for (; k + pair_lanes() <= depth; k += pair_lanes()) {
      load2(from + k, v, w);
      store2_like<T>(v, w, out + k);
    }
  }
  for (; k < depth; ++k) out[k] = widen(read<T>(a + static_cast<int64_t>(k) * step));
}

HWY_INLINE void add_to(VF v, VF w, float* sums) {
  VF a, b;
  load2(sums, a, b);
  store2(hn::Add(a, v), hn::Add(b, w), sums);
}

// Multiplies a pair of vectors of a panel by kRows rows of `a`. Sums are kColumns apart.
template <size_t kRows>
HWY_INLINE void multiply_tile(const char* a, int64_t a_bytes, const float* panel, size_t depth,
                              float* sums) {
  const DF d;
  const size_t pair = pair_lanes();
  // Each row has its own variables, because vectors of unknown size cannot be in an array.
#define YARD_EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5)
#define YARD_BEGIN(i)                                                             \
  const char* const a##i = a + static_cast<int64_t>(i < kRows ? i : 0) * a_bytes; \
  VF s##i = hn::Zero(d), t##i = s##i;
#define YARD_ADD(i)                                                 \
  if constexpr (i < kRows) {                                        \
    const VF x = hn::Set(d, read<float>(a##i + k * sizeof(float))); \
    s##i = hn::MulAdd(x, v, s##i), t##i = hn::MulAdd(x, w, t##i);   \
  }
#define YARD_END(i) \
  if constexpr (i < kRows) add_to(s##i, t##i, sums + i * kColumns);
  YARD_EACH_ROW(YARD_BEGIN)
  for (size_t k = 0; k < depth; ++k, panel += pair) {
    VF v, w;
    load2(panel, v, w);
    YARD_EACH_ROW(YARD_ADD)
  }
  YARD_EACH_ROW(YARD_END)
#undef YARD_EACH_ROW
#undef YARD_BEGIN
#undef YARD_ADD
#undef YARD_END
}

HWY_INLINE void multiply_rows(size_t rows, const char* a, int64_t a_bytes, const float* panel,
                              size_t depth, float* sums) {
  switch (rows) {
    case 1: return multiply_tile<1>(a, a_bytes, panel, depth, sums);
    case 2: return multiply_tile<2>(a, a_bytes, panel, depth, sums);
    case 3: return multiply_tile<3>(a, a_bytes, panel, depth, sums);
    case 4: return multiply_tile<4>(a, a_bytes, panel, depth, sums);
    case 5: return multiply_tile<5>(a, a_bytes, panel, depth, sums);
    default: return multiply_tile<kTileRows>(a, a_bytes, panel, depth, sums);
  }
}

struct MatmulBlocks {
  // Adds the products of `depth` columns of rows of `a` with a panel.
  template <class T>
  static void add_panel(const Matmul& job, const char* a, size_t rows, const float* panel,
                        size_t depth, size_t columns, float* sums) {
    HWY_ALIGN float packed[kTileRows * kDepth];
    const bool as_it_is = std::is_same_v<T, float> && job.a_step == sizeof(float);
    for (size_t r = 0; r < rows; r += kTileRows) {
      const size_t count = HWY_MIN(kTileRows, rows - r);
      const char* const from = a + static_cast<int64_t>(r) * job.a_row;
      if (!as_it_is)
        for (size_t i = 0; i < count; ++i)
          pack_row<T>(from + static_cast<int64_t>(i) * job.a_row, job.a_step, depth,
                      packed + i * kDepth);
      const char* const tile = as_it_is ? from : reinterpret_cast<const char*>(packed);
      const int64_t bytes = as_it_is ? job.a_row : static_cast<int64_t>(kDepth * sizeof(float));
      for (size_t c = 0; c < columns; c += pair_lanes())
        multiply_rows(count, tile, bytes, panel + c * kDepth, depth, sums + r * kColumns + c);
    }
  }

  // Sums a row again in double, for columns from `b` on.
  template <class T>
  static void sum_again(const Matmul& job, const char* a, const char* b, size_t columns,
                        float* sums) {
    for (size_t c = 0; c < columns; ++c) {
      const char* const column = b + static_cast<int64_t>(c) * job.b_step;
      double sum = 0;
      for (int64_t k = 0; k < job.k; ++k)
        sum += static_cast<double>(widen(read<T>(a + k * job.a_step))) *
               static_cast<double>(widen(read<T>(column + k * job.b_row)));
      sums[c] = static_cast<float>(sum);
    }
  }

  template <class T>
  static void write_row(const Matmul& job, const char* a, const char* b, size_t columns,
                        float* sums, T* out) {
    if constexpr (std::is_same_v<T, F16>) {
      float most = 0;
      for (size_t c = 0; c < columns; ++c) most = HWY_MAX(most, std::abs(sums[c]));
      if (most > 16384.0f) sum_again<T>(job, a, b, columns, sums);
    }
    const size_t pair = pair_lanes();
    VF v, w;
    size_t c = 0;
    for (; c + pair <= columns; c += pair) {
      load2(sums + c, v, w);
      store2(v, w, out + c);
    }
    if (c < columns) {
      load2(sums + c, v, w);
      store2_part<false>(v, w, out + c, columns - c);
    }
  }

  // Writes rows [first, first + rows) from a column on. If k is 0, there may be no data.
  template <class T, class Matrices>
  static void write_rows(const Matmul& job, const Matrices& matrices, int64_t first, int64_t rows,
                         int64_t column, size_t columns, float* sums, int64_t stride) {
    const char *a = matrices.template at<char>(1), *b = matrices.template at<char>(2);
    char* out = matrices.template at<char>(0) + first * job.out_row +
                column * static_cast<int64_t>(sizeof(T));
    if (job.k > 0) a += first * job.a_row, b += column * job.b_step;
    for (int64_t r = 0; r < rows; ++r, out += job.out_row, sums += stride) {
      write_row(job, a, b, columns, sums, reinterpret_cast<T*>(out));
      if (job.k > 0) a += job.a_row;
    }
  }

  // Adds the products of kSteps columns of all rows of `a` with kSteps rows of `b`, in order.
  template <class T, size_t kSteps>
  static HWY_INLINE void add_rows(const Matmul& job, const char* a, const char* b, size_t columns,
                                  float* sums) {
    constexpr size_t kWide = Matmul::kWide;
    const DF d;
    const auto rows = static_cast<size_t>(job.m);
    float x[Matmul::kFewRows][kSteps];
    const T* from[kSteps];
    for (size_t i = 0; i < kSteps; ++i) {
      from[i] = reinterpret_cast<const T*>(b + static_cast<int64_t>(i) * job.b_row);
      for (size_t r = 0; r < rows; ++r)
        x[r][i] = widen(read<T>(a + static_cast<int64_t>(r) * job.a_row +
                                static_cast<int64_t>(i) * job.a_step));
    }
    const auto add_pair = [&](size_t c, auto whole, size_t count) HWY_ATTR {
      constexpr bool kWhole = decltype(whole)::value;
      VF v0, w0, v1, w1, v2, w2, v3, w3;
      load2_part<kWhole>(from[0] + c, count, v0, w0);
      load2_part<kWhole>(from[kSteps > 1 ? 1 : 0] + c, count, v1, w1);
      load2_part<kWhole>(from[kSteps > 1 ? 2 : 0] + c, count, v2, w2);
      load2_part<kWhole>(from[kSteps > 1 ? 3 : 0] + c, count, v3, w3);
      for (size_t r = 0; r < rows; ++r) {
        VF s, t;
        load2(sums + r * kWide + c, s, t);
        const auto add = [&](float factor, VF v, VF w) HWY_ATTR {
          s = hn::MulAdd(hn::Set(d, factor), v, s), t = hn::MulAdd(hn::Set(d, factor), w, t);
        };
        add(x[r][0], v0, w0);
        if constexpr (kSteps > 1) add(x[r][1], v1, w1), add(x[r][2], v2, w2), add(x[r][3], v3, w3);
        store2(s, t, sums + r * kWide + c);
      }
    };
    const size_t pair = pair_lanes();
    size_t c = 0;
    for (; c + pair <= columns; c += pair) add_pair(c, std::true_type(), pair);
    if (c < columns) add_pair(c, std::false_type(), columns - c);
  }

  template <class T>
  static void few_rows(const Matmul& job, int64_t begin, int64_t end) {
    constexpr int64_t kSteps = 4;
    constexpr int64_t kWide = Matmul::kWide;
    HWY_ALIGN float sums[Matmul::kFewRows * kWide], totals[Matmul::kFewRows * kWide];
    for (int64_t i = begin; i < end; ++i) {
      const auto matrices = job.walk.from(i / job.panels);
      const int64_t column = i % job.panels * kWide;
      const auto columns = static_cast<size_t>(HWY_MIN(kWide, job.n - column));
      std::fill_n(totals, job.m * kWide, 0.0f);
      for (int64_t k = 0; k < job.k;) {
        std::fill_n(sums, job.m * kWide, 0.0f);
        for (const int64_t end_of_part = HWY_MIN(job.k, k + int64_t{kDepth}); k < end_of_part;) {
          const char* const a = matrices.template at<char>(1) + k * job.a_step;
          const char* const b = matrices.template at<char>(2) + k * job.b_row + column * job.b_step;
          if (k + kSteps <= end_of_part)
            add_rows<T, kSteps>(job, a, b, columns, sums), k += kSteps;
          else
            add_rows<T, 1>(job, a, b, columns, sums), ++k;
        }
        for (int64_t r = 0; r < job.m; ++r)
          for (size_t c = 0; c < columns; c += pair_lanes()) {
            VF v, w;
            load2(sums + r * kWide + static_cast<int64_t>(c), v, w);
            add_to(v, w, totals + r * kWide + static_cast<int64_t>(c));
          }
      }
      write_rows<T>(job, matrices, 0, job.m, column, columns, totals, kWide);
    }
  }

  template <class T>
  static void of(const Matmul& job, int64_t begin, int64_t end) {
    if (job.has_few_rows()) return few_rows<T>(job, begin, end);
    HWY_ALIGN float panel[kDepth * kColumns];
    HWY_ALIGN float sums[Matmul::kRows * kColumns];
    for (int64_t i = begin; i < end; ++i) {
      const auto matrices = job.walk.from(i / (job.panels * job.parts));
      const int64_t column = i % job.panels * Matmul::kColumns;
      const int64_t first = i / job.panels % job.parts * Matmul::kRows;
      const auto columns = static_cast<size_t>(HWY_MIN(Matmul::kColumns, job.n - column));
      const auto rows = static_cast<size_t>(HWY_MIN(Matmul::kRows, job.m - first));
      std::fill_n(sums, rows * kColumns, 0.0f);
      for (int64_t k = 0; k < job.k; k += static_cast<int64_t>(kDepth)) {
        const size_t depth = HWY_MIN(kDepth, static_cast<size_t>(job.k - k));
        pack_columns<T>(matrices.template at<char>(2) + k * job.b_row + column * job.b_step,
                        job.b_row, job.b_step, depth, columns, panel);
        add_panel<T>(job, matrices.template at<char>(1) + first * job.a_row + k * job.a_step, rows,
                     panel, depth, columns, sums);
      }
      write_rows<T>(job, matrices, first, static_cast<int64_t>(rows), column, columns, sums,
                    Matmul::kColumns);
    }
  }
};

void matmul_blocks(const Matmul& job, int64_t begin, int64_t end) {
  by_type<MatmulBlocks>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {
HWY_EXPORT(matmul_blocks);
}  // namespace

int32_t matmul(Call call, Tensor out, Tensor a, Tensor b) {
  if (out.numel() == 0) return YARD_OK;
  const int64_t m = out.size(-2), n = out.size(-1), k = a.size(-1);
  Matmul job{{{out, a, b}, 2},
             m,
             n,
             k,
             stride_bytes(out, -2),
             stride_bytes(a, -2),
             stride_bytes(a, -1),
             stride_bytes(b, -2),
             stride_bytes(b, -1),
             0,
             0,
             out.dtype()};
  const int64_t width = job.has_few_rows() ? Matmul::kWide : Matmul::kColumns;
  job.panels = (n + width - 1) / width;
  job.parts = (m + Matmul::kRows - 1) / Matmul::kRows;
  const int64_t bytes = std::min(n, width) * k * (std::min(m, Matmul::kRows) + 1) * 4;
  call.parallel_for(job.walk.rows() * job.panels * job.parts, grain_of(bytes),
                    [&](int64_t begin, int64_t end) {
                      HWY_DYNAMIC_DISPATCH(matmul_blocks)(job, begin, end);
                    });
  return YARD_OK;
}

}  // namespace yard::simd
#endif
