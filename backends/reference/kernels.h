// SPDX-License-Identifier: Apache-2.0
// The reference kernels: for each built-in op, the plainest code that states its meaning.
//
// The host has checked a call against the op's schema before a kernel runs. Each kernel checks what
// the schema cannot express, and the scalars that bound calls change freely, before it writes
// anything. Kernels are scalar loops on one thread, do not allocate, and sum in double.
#pragma once

#include <yard/plugin.hpp>

namespace yard::reference {

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
int32_t matmul(Call call, Tensor out, Tensor a, Tensor b);
int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
int32_t matmul_magnitude(Call call, Tensor out, Tensor a, Tensor b);
int32_t linear_magnitude(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias);
int32_t embedding(Call call, Tensor out, Tensor ids, Tensor table);
int32_t quantize_int8(Call call, Tensor out, Tensor scale, Tensor x);
int32_t dequantize(Call call, Tensor out, Tensor x, Tensor scale);

// If kMagnitude is true, computes the op's magnitude (yard_op_t::magnitude) instead of its result.
template <bool kMagnitude>
int32_t attention_full(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                       double scale);
template <bool kMagnitude>
int32_t attention_causal(Call call, Tensor out, Tensor query, Tensor key, Tensor value, Tensor mask,
                         double scale);
template <bool kMagnitude>
int32_t attention_sliding_window(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                                 Tensor mask, Tensor sinks, int64_t window, double scale);
template <bool kMagnitude>
int32_t attention_cross(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                        Tensor lengths, Tensor mask, double scale);
template <bool kMagnitude>
int32_t attention_decode(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                         Tensor lengths, Tensor mask, double scale);
template <bool kMagnitude>
int32_t attention_paged_decode(Call call, Tensor out, Tensor query, Tensor key, Tensor value,
                               Tensor block_table, Tensor lengths, double scale);

int32_t argmax(Call call, Tensor out, Tensor x);
int32_t topk_softmax(Call call, Tensor weights, Tensor ids, Tensor x, bool renormalize);
int32_t sample(Call call, Tensor out, Tensor x, double temperature, int64_t top_k, double top_p,
               int64_t seed);

void add_ops(plugin::Plugin& plugin);

// Returns the constant descriptor of this backend. Callable from any thread.
const yard_plugin_t* descriptor();

}  // namespace yard::reference
