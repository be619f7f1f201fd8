// SPDX-License-Identifier: Apache-2.0
// The schemas of the built-in ops, for tests of this folder.
#pragma once

#include <string_view>

#include "op/program.h"

namespace yard::op {

inline constexpr const char* kRmsNorm =
    "rms_norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight: T[hidden], eps: float = 1e-6) "
    "where out may_alias x";
inline constexpr const char* kAddRmsNorm =
    "add_rms_norm(out!: T[*rows, hidden], residual~: T[*rows, hidden], x: T[*rows, hidden], "
    "weight: T[hidden], eps: float = 1e-6) where out may_alias x";
inline constexpr const char* kSiluAndMul = "silu_and_mul(out!: T[*rows, d], x: T[*rows, 2*d])";
inline constexpr const char* kGeluAndMul =
    "gelu_and_mul(out!: T[*rows, d], x: T[*rows, 2*d], approximate: enum{none, tanh} = none)";
inline constexpr const char* kRotary =
    "rotary_embedding(query~: T[*tokens, heads, head_dim], key~?: T[*tokens, kv_heads, head_dim], "
    "positions?: P[*tokens], cos?: C[cache, half], sin?: C[cache, half], rotary_dim: int = 0, "
    "base: float = 10000.0, style: enum{half, interleaved} = half) where P in {i32, i64}, "
    "cos iff sin, positions or cos, cache == tokens unless positions, 2*half <= head_dim, "
    "rotary_dim <= head_dim, rotary_dim >= 0, rotary_dim % 2 == 0";

inline constexpr const char* kBuiltIn[] = {kRmsNorm, kAddRmsNorm, kSiluAndMul, kGeluAndMul,
                                           kRotary};

inline Program compiled(std::string_view text) { return Program::compile(text).value(); }

}  // namespace yard::op
