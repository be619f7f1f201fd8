// SPDX-License-Identifier: Apache-2.0
// `linear` of bf16 by products of pairs. The caller chooses the PairProducts.
#pragma once

#include "kernels.h"
#include "pairs.h"

namespace yard::simd {

int32_t linear_pairs_by(const PairProducts& products, Call call, Tensor out, Tensor x,
                        Tensor weight, Tensor bias);

}  // namespace yard::simd
