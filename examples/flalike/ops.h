// SPDX-License-Identifier: Apache-2.0
// The public header of a small operator library. Backends may take over the functions of its groups
// `kda` and `norm`.
#pragma once

#include <yard/function.h>
#include <yard/options.h>

#include "types.h"

namespace flalike {

// These functions define the results, and run when no backend does.
void attention_by_the_book(const Attention& a, float* out, Mode mode);
void attention_grad_by_the_book(const Attention& a, const float* d_out, float* d_v);
float rms_norm_by_the_book(const Norm& n, float eps);

// [declare]
// Both functions only write their results, so that after a failure another backend may start over.
inline const yard::Function<void(const Attention&, float*, Mode)> attention{
    "kda", "attention", attention_by_the_book, {.repeatable = true}};
inline const yard::Function<void(const Attention&, const float*, float*)> attention_grad{
    "kda", "attention_grad", attention_grad_by_the_book, {.repeatable = true}};

// A shorter way to declare one. Returns the largest scale.
YARD_DISPATCHED(rms_norm, "norm")(const Norm& n, float eps) {
  return rms_norm_by_the_book(n, eps);
};
// [/declare]

// Arranges that the backends of `kda` are registered when they are first needed.
void use_backends();

}  // namespace flalike
