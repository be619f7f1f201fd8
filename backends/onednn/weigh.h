// SPDX-License-Identifier: Apache-2.0
// Processes the rows of attention between oneDNN's products: turns scores into weights, and results
// into outputs. Uses the widest vectors of the processor, which are found out once.
#pragma once

#include <cstdint>

namespace yard::onednn {

// Turns `seen` scores, times `scale`, into weights relative to the largest score so far, and writes
// zeros up to `count`. Weights are f32 or bf16. `top` and `sum` come from the blocks before;
// `result` and `sum` are scaled to the new `top`.
void weigh_row(bool bf16, float* scores, void* weights, int64_t seen, int64_t count, float scale,
               float& top, float& sum, float* result, int64_t dim) noexcept;

// Writes result / sum, or zeros if the sum is 0, as f32 or bf16.
void finish_row(bool bf16, const float* result, float sum, int64_t dim, void* out) noexcept;

// Returns whether rows of f32 or bf16, `stride` elements apart, contain only finite values.
bool all_finite(bool bf16, const void* rows, int64_t count, int64_t dim, int64_t stride) noexcept;

}  // namespace yard::onednn
