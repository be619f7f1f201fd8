// SPDX-License-Identifier: Apache-2.0
// The kernels of backend `openblas`.
#pragma once

#include <yard/plugin.hpp>

namespace yard::openblas {

using plugin::Call;
using plugin::Tensor;

const yard_plugin_t* descriptor();

int32_t matmul(Call call, Tensor out, Tensor a, Tensor b);
int64_t matmul_workspace(Tensor out, Tensor a, Tensor b);

// Weights are f32, bf16, or block-quantised and dequantised some rows at a time.
int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
int64_t linear_workspace(Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);

}  // namespace yard::openblas
