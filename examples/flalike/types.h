// SPDX-License-Identifier: Apache-2.0
// The arguments of the functions, shared with plugins. A plugin that lays them out differently is
// refused.
#pragma once

#include <cstdint>

namespace flalike {

enum class DType : int32_t { kF32, kBF16 };
enum class Mode : int32_t { kChunk, kRecurrent };

// q, k and v have the shape [rows, heads, head_dim] and are compact.
struct Attention {
  const float *q, *k, *v;
  int64_t rows, heads, head_dim;
  DType dtype;
};
struct Norm {
  const float* x;
  float* out;
  int64_t rows, width;
  DType dtype;
};

}  // namespace flalike
