// SPDX-License-Identifier: Apache-2.0
// Backend `onednn`: kernels around oneDNN's primitives, most of them for compact f32 tensors.
//
// oneDNN sums in f32 and says nothing of NaN, so a primitive alone is not always right: a row of nothing
// but -inf gives zeros, values of 1e30 normalize to zeros, long sums drift. Contents cannot be verified
// before a call, so each kernel looks at its rows first (one pass of integer compares) and computes those
// that oneDNN would get wrong itself, in double. All other rows are oneDNN's.
#pragma once

#include <yard/plugin.hpp>

namespace yard::onednn {

using plugin::Call;
using plugin::Tensor;

int32_t softmax(Call call, Tensor out, Tensor x);
int32_t layer_norm(Call call, Tensor out, Tensor x, Tensor weight, Tensor bias, double eps);

// Weights of the dtype of x.
int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
// Of an instance that has loaded the weight; its state is a PackedWeight (packed.h).
int32_t linear_packed(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
int32_t matmul(Call call, Tensor out, Tensor a, Tensor b);

// Without a mask. Rows are dense, and nothing overlaps itself.
int32_t attention_full(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                       double scale);
int32_t attention_causal(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                         double scale);
int64_t attention_workspace(Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                            double scale);

// Longest row of layer_norm: the primitive's sums in f32 drift with it, and past this length they come
// near the op's tolerance.
inline constexpr int64_t kLongestNormRow = 32768;

// The descriptor of this backend; constant, callable from any thread.
const yard_plugin_t* descriptor();

}  // namespace yard::onednn
