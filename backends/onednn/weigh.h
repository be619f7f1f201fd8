// SPDX-License-Identifier: Apache-2.0
// The rows of attention between oneDNN's products: scores to weights, and results to outputs. For the widest vectors of
// the processor, found once.
#pragma once

#include <cstdint>

namespace yard::onednn {

// Turns a row of scores, times `scale`, into weights against the largest so far: `seen` of them, and zeros up to `count`.
// `top` and `sum` are those of the blocks before; the result so far is scaled to the new `top`. Weights are f32 or bf16.
void weigh_row(bool bf16, float* scores, void* weights, int64_t seen, int64_t count, float scale,
               float& top, float& sum, float* result, int64_t dim) noexcept;

// result / sum, or zeros if the sum is 0, as f32 or bf16.
void finish_row(bool bf16, const float* result, float sum, int64_t dim, void* out) noexcept;

// Whether rows of f32 or bf16, `stride` elements apart, have neither NaN nor infinities.
bool all_finite(bool bf16, const void* rows, int64_t count, int64_t dim, int64_t stride) noexcept;

}  // namespace yard::onednn
