// SPDX-License-Identifier: Apache-2.0
// Arguments and the schemas of the built-in ops, for tests.
#pragma once

#include <yard/tensor.h>

#include <deque>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "op/bind.h"
#include "op/facts.h"
#include "op/program.h"

namespace yard::op {

// Returns a tensor with its facts, as the checks of this folder expect. It lives until the thread
// ends.
inline const yard_tensor_t& with_facts(const yard_tensor_t& t) {
  static thread_local std::deque<yard_tensor_t> kept;
  kept.push_back(t);
  kept.back().facts = facts_of(&t);
  return kept.back();
}
inline const yard_tensor_t& with_facts(const TensorView& v) { return with_facts(v.c()); }

// Makes tensors and keeps them. Each has separate memory unless an address is given.
class Values {
 public:
  yard_value_t tensor(DType dtype, std::vector<int64_t> shape, std::vector<int64_t> strides = {},
                      Device device = {}) {
    return at(memory_.emplace_back(1 << 16).data() + 64, dtype, shape, strides, device);
  }
  yard_value_t at(void* data, DType dtype, std::vector<int64_t> shape,
                  std::vector<int64_t> strides = {}, Device device = {}) {
    return of(with_facts(views_.emplace_back(data, dtype, std::span<const int64_t>(shape),
                                             std::span<const int64_t>(strides), device)));
  }
  yard_value_t of(const yard_tensor_t& t) {
    yard_value_t v{};
    v.tag = YARD_TAG_TENSOR;
    v.u.tensor = &t;
    return v;
  }
  yard_value_t f32(std::vector<int64_t> shape) { return tensor(DType::f32, std::move(shape)); }
  yard_value_t list(std::initializer_list<yard_value_t> tensors) {
    auto& kept = lists_.emplace_back();
    for (const yard_value_t& t : tensors) kept.push_back(t.u.tensor);
    yard_value_t v{};
    v.tag = YARD_TAG_LIST;
    v.count = static_cast<uint32_t>(kept.size());
    v.u.list = kept.data();
    return v;
  }

 private:
  std::deque<std::vector<char>> memory_;
  std::deque<TensorView> views_;
  std::deque<std::vector<const yard_tensor_t*>> lists_;
};

inline yard_value_t none() { return {}; }
inline yard_value_t integer(int64_t i) { return scalar(i); }
inline yard_value_t number(double f) { return scalar(f); }
inline yard_value_t boolean(bool b) { return scalar(b); }
inline yard_value_t text(std::string_view s) { return scalar(s); }

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

inline constexpr const char* kDecode =
    "attention.decode(out!: T[batch, heads, dim], query: T[batch, heads, dim], "
    "key: C[batch, capacity, kv_heads, dim], value: C[batch, capacity, kv_heads, dim], "
    "lengths: I[batch], mask?: M[batch, heads, capacity], scale: float = 0.0) "
    "where T in {f32, f16, bf16}, C in {f32, f16, bf16}, M in {f32, f16, bf16}, I in {i32, i64}, "
    "heads % kv_heads == 0, lengths in [0, capacity]";
inline constexpr const char* kLinear =
    "linear(out!: T[*rows, n], x: T[*rows, k], weight: W[n, k], scale?: f32[n], bias?: T[n]) "
    "where T in {f32, f16, bf16}, W in {f32, bf16, i8}, scale iff W in {i8}";
inline constexpr const char* kTopK =
    "topk_softmax(weights!: f32[*rows, k], ids!: I[*rows, k], x: T[*rows, experts]) "
    "where T in {f32, f16, bf16}, I in {i32, i64}, k <= experts";

inline constexpr const char* kBuiltIn[] = {kRmsNorm, kAddRmsNorm, kSiluAndMul, kGeluAndMul,
                                           kRotary,  kDecode,     kLinear,     kTopK};

inline Program compiled(std::string_view text) { return Program::compile(text).value(); }

}  // namespace yard::op
