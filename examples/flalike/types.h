// SPDX-License-Identifier: Apache-2.0
// What the functions are called with. Shared with plugins, which are refused if theirs is laid out otherwise.
#pragma once

#include <cstdint>

namespace flalike {

enum class DType : int32_t { kF32, kBF16 };
enum class Mode : int32_t { kChunk, kRecurrent };

// q, k and v of shape [rows, heads, head_dim], compact.
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
