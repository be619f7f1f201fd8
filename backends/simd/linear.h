// SPDX-License-Identifier: Apache-2.0
// Shared by the kinds of `linear`: the arguments of a call, and stores of results.
#pragma once

#include "kernels.h"
#include "quant.h"
#include "scalars.h"

namespace yard::simd {

// Computes out = x weight^T, times `scale` and plus `bias`. Both have one value per row of weights.
struct Linear {
  RowWalk<2> walk;  // out, x
  Tensor weight, scale, bias;
  int64_t n, k;
  uint32_t dtype;  // of out, x and bias

  Linear(Tensor out, Tensor x, Tensor w, Tensor s, Tensor b) noexcept
      : walk({out, x}, 1),
        weight(w),
        scale(s),
        bias(b),
        n(w.size(0)),
        k(w.size(1)),
        dtype(x.dtype()) {}

  // Writes results [begin, end) of a row. `stride` is the distance of results in `values`.
  void store(char* out, int64_t begin, int64_t end, const float* values,
             int64_t stride = 1) const noexcept {
    const int64_t item = dtype == YARD_F32 ? 4 : 2;
    if (stride == 1 && dtype == YARD_F32 && !scale && !bias) {
      std::memcpy(out + begin * item, values, static_cast<size_t>(end - begin) * sizeof(float));
      return;
    }
    for (int64_t i = begin; i < end; ++i, values += stride) {
      float v = *values;
      if (scale) v *= read<float>(scale.data<char>() + i * 4);
      if (bias) v += read_as_float(bias.data<char>() + i * item, dtype);
      write_float(out + i * item, dtype, v);
    }
  }
};

// A call whose weights are floats.
struct FloatLinear {
  const Linear& linear;
  int64_t rows;
  const char* weight;
  int64_t weight_stride;  // in bytes
  float* x;               // rows of `width` activations as f32
  int64_t width;
  uint32_t dtype;  // of `weight`
};

// `packed` has the panels of the weight (see pack_panel()), or is null.
int32_t linear_quantized(Call call, const Linear& job, Format format,
                         const uint8_t* packed = nullptr);
int64_t linear_quantized_workspace(int64_t rows, int64_t k, bool packed = false);

}  // namespace yard::simd
