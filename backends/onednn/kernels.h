// SPDX-License-Identifier: Apache-2.0
// Backend `onednn`: kernels around oneDNN's primitives, most of them for compact f32 tensors.
//
// oneDNN sums in f32 and promises nothing about NaN, so a primitive alone is sometimes wrong: a row
// of only -inf gives zeros, values of 1e30 normalize to zeros, and long sums drift. Contents cannot
// be verified before a call, so each kernel first looks at its rows (one pass of integer compares).
// It computes in double the rows that oneDNN would get wrong, and leaves the others to oneDNN.
#pragma once

#include <yard/plugin.hpp>

namespace yard::onednn {

using plugin::Call;
using plugin::Tensor;

int32_t softmax(Call call, Tensor out, Tensor x);
int32_t layer_norm(Call call, Tensor out, Tensor x, Tensor weight, Tensor bias, double eps);

// The weight has the dtype of x.
int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
// Runs for an instance that has loaded the weight. The state is a PackedWeight (packed.h).
int32_t linear_packed(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
int32_t matmul(Call call, Tensor out, Tensor a, Tensor b);

// These take no mask. Rows are dense, and no tensor overlaps itself.
int32_t attention_full(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                       double scale);
int32_t attention_causal(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                         double scale);
int64_t attention_workspace(Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                            double scale);

// The longest row of layer_norm. The primitive's f32 sums drift with the length of the row, and for
// longer rows they come near the op's tolerance.
inline constexpr int64_t kLongestNormRow = 32768;

// Returns the constant descriptor of this backend. Callable from any thread.
const yard_plugin_t* descriptor();

}  // namespace yard::onednn
