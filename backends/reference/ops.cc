// SPDX-License-Identifier: Apache-2.0
// The built-in ops: schemas, summaries and tolerances. docs/reference/ops.md has the details.
#include <array>
#include <iterator>

#include "kernels.h"

namespace yard::reference {
namespace {

// Allows a kernel to compute in f32 and to round to the element type once more on its way: two
// units in the last place, and an absolute floor for terms that cancel.
constexpr yard_tolerance_t kRounded[] = {
    {YARD_F32, 0, 1e-5, 1e-5},
    {YARD_F16, 0, 2e-3, 1e-3},
    {YARD_BF16, 0, 1.6e-2, 8e-3},
};

// Probabilities shrink with the row's length, so nearly all of the tolerance is relative.
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

// Sums of products in f32. Long sums are off by 1e-5 of the norm of their terms, which the ops
// state as their magnitude.
constexpr yard_tolerance_t kProducts[] = {
    {YARD_F32, 0, 1e-5, 3e-5},
    {YARD_F16, 0, 2e-3, 1e-4},
    {YARD_BF16, 0, 1.6e-2, 1e-4},
};

// If weights have few bits, kernels may round activations to int8, in blocks of 32 and in steps of
// max|x| / 127. At one standard deviation, a result is then off by up to 0.9 % of the norm of its
// terms. Other products use kProducts.
constexpr auto kLinear = [] {
  constexpr uint32_t kFewBits[] = {YARD_I8, YARD_Q8_0, YARD_Q4_0, YARD_Q4_1, YARD_Q4_K, YARD_Q6_K};
  std::array<yard_tolerance_t, 3 * std::size(kFewBits) + std::size(kProducts)> all{};
  size_t n = 0;
  for (const uint32_t weight : kFewBits) {
    all[n++] = {YARD_F32, weight, 1e-5, 5e-2};
    all[n++] = {YARD_F16, weight, 2e-3, 5e-2};
    all[n++] = {YARD_BF16, weight, 1.6e-2, 5e-2};
  }
  for (const yard_tolerance_t& t : kProducts) all[n++] = t;
  return all;
}();

// Weights of 16-bit types may be rounded once. Magnitudes cover errors of scores.
constexpr yard_tolerance_t kAttention[] = {
    {YARD_F32, 0, 1e-5, 1e-5},
    {YARD_F16, 0, 2e-3, 1e-3},
    {YARD_BF16, 0, 1.6e-2, 8e-3},
};

// If x / scale lies between two integers, a kernel may round to either.
constexpr yard_tolerance_t kQuantized[] = {
    {YARD_F32, 0, 1e-6, 0},
    {YARD_I8, 0, 0, 1.0 / 127},
};

using plugin::OpDef;

void add_norms_and_activations(plugin::Plugin& plugin) {
  plugin.add(OpDef("rms_norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight: T[hidden], "
                   "eps: float = 1e-6) where T in {f32, f16, bf16}, out may_alias x, eps >= 0")
                 .summary("Divides each row by its root mean square and scales it by weight.")
                 .tolerances(kRounded));
  plugin.add(OpDef("add_rms_norm(out!: T[*rows, hidden], residual~: T[*rows, hidden], "
                   "x: T[*rows, hidden], weight: T[hidden], eps: float = 1e-6) "
                   "where T in {f32, f16, bf16}, out may_alias x, eps >= 0")
                 .summary("Adds x to residual in place, then gives the rms_norm of the sum.")
                 .tolerances(kRounded));
  plugin.add(
      OpDef("layer_norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight?: T[hidden], "
            "bias?: T[hidden], eps: float = 1e-5) where T in {f32, f16, bf16}, out may_alias x, "
            "eps >= 0")
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
  plugin.add(OpDef("add(out!: T[*rows, d], a: T[*rows, d], b: T[*rows, d]) "
                   "where T in {f32, f16, bf16}, out may_alias a, out may_alias b")
                 .summary("Adds two tensors.")
                 .tolerances(kRounded));
  plugin.add(OpDef("mul(out!: T[*rows, d], a: T[*rows, d], b: T[*rows, d]) "
                   "where T in {f32, f16, bf16}, out may_alias a, out may_alias b")
                 .summary("Multiplies two tensors, element by element.")
                 .tolerances(kRounded));
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

void add_products(plugin::Plugin& plugin) {
  plugin.add(OpDef("matmul(out!: T[*batch, m, n], a: T[*batch, m, k], b: T[*batch, k, n]) "
                   "where T in {f32, f16, bf16}")
                 .summary("Products of matrices.")
                 .tolerances(kProducts)
                 .magnitude<matmul_magnitude>());
  plugin.add(OpDef("linear(out!: T[*rows, n], x: T[*rows, k], weight: W[n, k], scale?: f32[n], "
                   "bias?: T[n]) where T in {f32, f16, bf16}, "
                   "W in {f32, f16, bf16, i8, q8_0, q4_0, q4_1, q4_k, q6_k}, scale iff W in {i8}")
                 .summary("Multiplies each row by the rows of weight, then scales and shifts it.")
                 .tolerances(kLinear)
                 .magnitude<linear_magnitude>());
  plugin.add(OpDef("embedding(out!: T[*rows, d], ids: I[*rows], table: W[vocab, d]) "
                   "where T in {f32, f16, bf16}, I in {i32, i64}, "
                   "W in {f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k}, ids in [0, vocab)")
                 .summary("Looks up rows of a table.")
                 .tolerances(kRounded));
  plugin.add(OpDef("quantize_int8(out!: i8[*rows, d], scale!: f32[*rows], x: T[*rows, d]) "
                   "where T in {f32, f16, bf16}")
                 .summary("Rounds each row to integers from -127 to 127 and gives their scale.")
                 .tolerances(kQuantized));
  plugin.add(OpDef("dequantize(out!: T[*rows, d], x: W[*rows, d], scale?: f32[*rows]) "
                   "where T in {f32, f16, bf16}, W in {i8, q8_0, q4_0, q4_1, q4_k, q6_k}, "
                   "scale iff W in {i8}")
                 .summary("The numbers that quantised rows stand for.")
                 .tolerances(kRounded));
}

#define YARD_FINITE_SCALE "scale > -3.4028235e38, scale < 3.4028235e38"
// The parameters of attention over whole sequences. `others` come before the scale.
#define YARD_ATTENTION(others)                                                            \
  "(out!: T[batch, seq, heads, dim], query: T[batch, seq, heads, dim], "                  \
  "key: T[batch, kv_seq, kv_heads, dim], value: T[batch, kv_seq, kv_heads, dim], " others \
  "scale: float = 0.0) where T in {f32, f16, bf16}, M in {f32, f16, bf16}, "              \
  "heads % kv_heads == 0, " YARD_FINITE_SCALE
#define YARD_MASK "mask?: M[batch, heads, seq, kv_seq], "

void add_attention(plugin::Plugin& plugin) {
  plugin.add(OpDef("attention.full" YARD_ATTENTION(YARD_MASK))
                 .summary("Attention of every query to every key.")
                 .tolerances(kAttention)
                 .magnitude<attention_full<true>>());
  plugin.add(OpDef("attention.causal" YARD_ATTENTION(YARD_MASK) ", kv_seq >= seq")
                 .summary("Attention of each query to the keys up to its own position.")
                 .tolerances(kAttention)
                 .magnitude<attention_causal<true>>());
  plugin.add(
      OpDef("attention.sliding_window" YARD_ATTENTION(
                YARD_MASK "sinks?: f32[heads], window: int, ") ", kv_seq >= seq, window >= 1")
          .summary("Attention of each query to the last keys up to its own position.")
          .tolerances(kAttention)
          .magnitude<attention_sliding_window<true>>());
  plugin.add(
      OpDef("attention.cross" YARD_ATTENTION(
                "lengths?: I[batch], " YARD_MASK) ", I in {i32, i64}, lengths in [0, kv_seq]")
          .summary("Attention of every query to the first keys of its batch.")
          .tolerances(kAttention)
          .magnitude<attention_cross<true>>());
  plugin.add(
      OpDef("attention.decode(out!: T[batch, heads, dim], query: T[batch, heads, dim], "
            "key: C[batch, capacity, kv_heads, dim], "
            "value: C[batch, capacity, kv_heads, dim], lengths: I[batch], "
            "mask?: M[batch, heads, capacity], scale: float = 0.0) "
            "where T in {f32, f16, bf16}, C in {f32, f16, bf16}, M in {f32, f16, bf16}, "
            "I in {i32, i64}, heads % kv_heads == 0, lengths in [0, capacity], " YARD_FINITE_SCALE)
          .summary("Attention of one query to a cache of keys and values.")
          .tolerances(kAttention)
          .magnitude<attention_decode<true>>());
  plugin.add(OpDef("attention.paged_decode(out!: T[batch, heads, dim], "
                   "query: T[batch, heads, dim], key: C[blocks, block, kv_heads, dim], "
                   "value: C[blocks, block, kv_heads, dim], block_table: I[batch, max_blocks], "
                   "lengths: I[batch], scale: float = 0.0) "
                   "where T in {f32, f16, bf16}, C in {f32, f16, bf16}, I in {i32, i64}, "
                   "heads % kv_heads == 0, block_table in [0, blocks), "
                   "lengths in [0, max_blocks*block], " YARD_FINITE_SCALE)
                 .summary("Attention of one query to a cache in blocks that a table lists.")
                 .tolerances(kAttention)
                 .magnitude<attention_paged_decode<true>>());
}

#undef YARD_ATTENTION
#undef YARD_FINITE_SCALE
#undef YARD_MASK

void add_sampling(plugin::Plugin& plugin) {
  plugin.add(OpDef("topk_softmax(weights!: f32[*rows, k], ids!: i32[*rows, k], "
                   "x: T[*rows, experts], renormalize: bool = false) "
                   "where T in {f32, f16, bf16}, k <= experts")
                 .summary("The largest probabilities of each row's softmax, and where they are.")
                 .tolerances(kProbability));
  plugin.add(OpDef("argmax(out!: I[*rows], x: T[*rows, d]) "
                   "where T in {f32, f16, bf16}, I in {i32, i64}, d >= 1")
                 .summary("The index of the largest element of each row."));
  plugin.add(OpDef("sample(out!: I[*rows], x: T[*rows, d], temperature: float = 1.0, "
                   "top_k: int = 0, top_p: float = 1.0, seed: int = 0) "
                   "where T in {f32, f16, bf16}, I in {i32, i64}, d >= 1, top_k >= 0")
                 .summary("An index of each row at random, by the softmax of its elements."));
}

}  // namespace

void add_ops(plugin::Plugin& plugin) {
  add_norms_and_activations(plugin);
  add_products(plugin);
  add_attention(plugin);
  add_sampling(plugin);
}

}  // namespace yard::reference
