// SPDX-License-Identifier: Apache-2.0
// The built-in ops: one schema each, what it means in a line, and how far a right kernel may be
// from the reference. docs/reference/ops.md has the details.
#include "kernels.h"

namespace yard::reference {
namespace {

// Room for a kernel that computes in f32 and rounds to the element type once more on its way: two
// units in the last place, and an absolute floor where terms cancel.
constexpr yard_tolerance_t kRounded[] = {
    {YARD_F32, 0, 1e-5, 1e-5},
    {YARD_F16, 0, 2e-3, 1e-3},
    {YARD_BF16, 0, 1.6e-2, 8e-3},
};

// Probabilities get small with the row's length: nearly all of the room is relative.
constexpr yard_tolerance_t kProbability[] = {
    {YARD_F32, 0, 1e-5, 1e-8},
    {YARD_F16, 0, 2e-3, 2e-7},
    {YARD_BF16, 0, 1.6e-2, 1e-8},
};

// An angle computed in f32 is off by its own size times 6e-8.
constexpr yard_tolerance_t kAngle[] = {
    {YARD_F32, 0, 1e-5, 1e-4},
    {YARD_F16, 0, 2e-3, 2e-3},
    {YARD_BF16, 0, 1.6e-2, 1.6e-2},
};

}  // namespace

void add_ops(plugin::Plugin& plugin) {
  using plugin::OpDef;
  plugin.add(OpDef("rms_norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight: T[hidden], "
                   "eps: float = 1e-6) where T in {f32, f16, bf16}, out may_alias x")
                 .summary("Divides each row by its root mean square and scales it by weight.")
                 .tolerances(kRounded));
  plugin.add(OpDef("add_rms_norm(out!: T[*rows, hidden], residual~: T[*rows, hidden], "
                   "x: T[*rows, hidden], weight: T[hidden], eps: float = 1e-6) "
                   "where T in {f32, f16, bf16}, out may_alias x")
                 .summary("Adds x to residual in place, then gives the rms_norm of the sum.")
                 .tolerances(kRounded));
  plugin.add(
      OpDef("layer_norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight?: T[hidden], "
            "bias?: T[hidden], eps: float = 1e-5) where T in {f32, f16, bf16}, out may_alias x")
          .summary("Brings each row to mean 0 and variance 1, then scales and shifts it.")
          .tolerances(kRounded));
  plugin.add(OpDef("silu_and_mul(out!: T[*rows, d], x: T[*rows, 2*d]) where T in {f32, f16, bf16}")
                 .summary("SiLU of the first half of each row times its second half.")
                 .tolerances(kRounded));
  plugin.add(OpDef("gelu_and_mul(out!: T[*rows, d], x: T[*rows, 2*d], "
                   "approximate: enum{none, tanh} = none) where T in {f32, f16, bf16}")
                 .summary("GELU of the first half of each row times its second half.")
                 .tolerances(kRounded));
  plugin.add(OpDef("softmax(out!: T[*rows, d], x: T[*rows, d]) where T in {f32, f16, bf16}, "
                   "out may_alias x")
                 .summary("Softmax over the last dimension.")
                 .tolerances(kProbability));
  plugin.add(
      OpDef("rotary_embedding(query~: T[*tokens, heads, head_dim], "
            "key~?: T[*tokens, kv_heads, head_dim], positions?: P[*tokens], "
            "cos?: C[cache, half], sin?: C[cache, half], rotary_dim: int = 0, "
            "base: float = 10000.0, style: enum{half, interleaved} = half) "
            "where T in {f32, f16, bf16}, C in {f32, f16, bf16}, P in {i32, i64}, cos iff sin, "
            "positions or cos, cache == tokens unless positions, 2*half <= head_dim, "
            "rotary_dim <= head_dim, rotary_dim >= 0, rotary_dim % 2 == 0")
          .summary("Rotates pairs of dimensions of query and key by position, in place.")
          .tolerances(kAngle));
}

}  // namespace yard::reference
