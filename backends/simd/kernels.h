// SPDX-License-Identifier: Apache-2.0
// The kernels `default.simd`: the built-in ops over Google Highway, on the machine's widest
// vectors. All arithmetic is in f32, whatever the element type.
//
// The host has checked a call against the op's schema and this backend's limits: the last dimension
// of every tensor is dense, other strides are free, and data need not be aligned. Kernels check
// again whatever depends on scalars before they write anything. They share rows among the host's
// threads and do not allocate; a call's workspace has the bytes that the function beside its kernel
// returns. A row gives the same bits on every thread and in every split.
#pragma once

#include <yard/plugin.hpp>

namespace yard::simd {

using plugin::Call;
using plugin::Tensor;

int32_t rms_norm(Call call, Tensor out, Tensor x, Tensor weight, double eps);
int32_t add_rms_norm(Call call, Tensor out, Tensor residual, Tensor x, Tensor weight, double eps);
int32_t layer_norm(Call call, Tensor out, Tensor x, Tensor weight, Tensor bias, double eps);
int32_t silu_and_mul(Call call, Tensor out, Tensor x);
int32_t gelu_and_mul(Call call, Tensor out, Tensor x, int64_t approximate);
int32_t softmax(Call call, Tensor out, Tensor x);
int32_t rotary_embedding(Call call, Tensor query, Tensor key, Tensor positions, Tensor cos,
                         Tensor sin, int64_t rotary_dim, double base, int64_t style);
int32_t add(Call call, Tensor out, Tensor a, Tensor b);
int32_t mul(Call call, Tensor out, Tensor a, Tensor b);
int32_t argmax(Call call, Tensor out, Tensor x);
int32_t topk_softmax(Call call, Tensor weights, Tensor ids, Tensor x, bool renormalize);
int32_t sample(Call call, Tensor out, Tensor x, double temperature, int64_t top_k, double top_p,
               int64_t seed);
int64_t sample_workspace(Tensor out, Tensor x, double temperature, int64_t top_k, double top_p,
                         int64_t seed);
int32_t matmul(Call call, Tensor out, Tensor a, Tensor b);
int32_t quantize_int8(Call call, Tensor out, Tensor scale, Tensor x);
int32_t embedding(Call call, Tensor out, Tensor ids, Tensor table);
int32_t dequantize(Call call, Tensor out, Tensor x, Tensor scale);
int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
int64_t linear_workspace(Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
// Takes bf16 x and weights, and uses pairs.h on machines that support it.
int32_t linear_pairs(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
int64_t linear_pairs_workspace(Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
// Takes weights with few bits, for an instance that has loaded the weight. The state is a
// PackedWeight (packed_weight.h).
int32_t linear_packed(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
int64_t linear_packed_workspace(Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
// If kPairs, takes bf16 with heads of even lengths, and uses pairs.h on machines that support it.
// Only these kernels need the workspaces.
template <bool kPairs = false>
int32_t attention_full(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                       double scale);
template <bool kPairs = false>
int32_t attention_causal(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                         double scale);
template <bool kPairs = false>
int32_t attention_sliding_window(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                                 Tensor mask, Tensor sinks, int64_t window, double scale);
template <bool kPairs = false>
int32_t attention_cross(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                        Tensor lengths, Tensor mask, double scale);
int64_t attention_workspace(Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                            double scale);
int64_t attention_window_workspace(Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                                   Tensor sinks, int64_t window, double scale);
int64_t attention_cross_workspace(Tensor out, Tensor query, Tensor key, Tensor value,
                                  Tensor lengths, Tensor mask, double scale);
int32_t attention_decode(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                         Tensor lengths, Tensor mask, double scale);
int32_t attention_paged_decode(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                               Tensor block_table, Tensor lengths, double scale);
int64_t attention_decode_workspace(Tensor out, Tensor query, Tensor key, Tensor value,
                                   Tensor lengths, Tensor mask, double scale);
int64_t attention_paged_decode_workspace(Tensor out, Tensor query, Tensor key, Tensor value,
                                         Tensor block_table, Tensor lengths, double scale);

// The constant descriptor of this backend. Callable from any thread.
const yard_plugin_t* descriptor();

}  // namespace yard::simd
