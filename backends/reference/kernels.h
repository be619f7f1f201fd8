// SPDX-License-Identifier: Apache-2.0
// The reference kernels: for each built-in op the plainest code that states its meaning.
//
// The host has checked a call against the op's schema before a kernel sees it; what a schema cannot
// say, and what depends on scalars that bound calls change freely, is checked here, before anything
// is written. Scalar loops, one thread, no allocation; sums are kept in double.
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

// Declares the built-in ops: schema, summary, tolerances.
void add_ops(plugin::Plugin& plugin);

// The descriptor of this backend; constant, callable from any thread.
const yard_plugin_t* descriptor();

}  // namespace yard::reference
