// SPDX-License-Identifier: Apache-2.0
// Computes linear and attention in PyTorch, on tensors in the order that is fastest there: heads
// before tokens.
#include <cmath>
#include <limits>
#include <memory>

#include "torch_ways.h"

namespace yard::bench {
namespace {

struct Heads {
  at::Tensor query, key, value, mask, out;
  double scale = 1 / std::sqrt(static_cast<double>(kHeadDim));
};
using SharedHeads = std::shared_ptr<Heads>;

// The fused call has different names in different versions of PyTorch.
#if __has_include(<ATen/ops/scaled_dot_product_attention.h>)
at::Tensor fused(const Heads& t, bool causal) {
  return at::scaled_dot_product_attention(t.query, t.key, t.value, {}, 0.0, causal);
}
#elif __has_include(<ATen/ops/_scaled_dot_product_attention.h>)
at::Tensor fused(const Heads& t, bool causal) {
  return std::get<0>(
      at::_scaled_dot_product_attention(t.query, t.key, t.value, {}, 0.0, false, causal));
}
#else
#error "this PyTorch has no scaled_dot_product_attention"
#endif

at::Tensor scores(const Heads& t) {
  return at::matmul(t.query, t.key.transpose(-2, -1)).mul_(t.scale);
}

std::vector<Way> causal(const SharedHeads& t, int64_t tokens, int64_t heads, at::ScalarType type) {
  for (at::Tensor* x : {&t->query, &t->key, &t->value})
    *x = at::randn({1, heads, tokens, kHeadDim}, type);
  t->mask = at::full({tokens, tokens}, -std::numeric_limits<float>::infinity(), type).triu(1);
  return {{"scaled_dot_product_attention", [t] { t->out = fused(*t, true); }},
          {"matmul(softmax(matmul(q, k) + mask), v)",
           [t] { t->out = at::matmul(at::softmax(scores(*t).add_(t->mask), -1), t->value); }}};
}

// The query heads that share a head of keys are rows of one product.
std::vector<Way> decode(const SharedHeads& t, int64_t batch, int64_t heads, at::ScalarType type) {
  const int64_t key_heads = heads / 4;
  t->query = at::randn({batch, key_heads, 4, kHeadDim}, type);
  t->key = at::randn({batch, key_heads, kCacheKeys, kHeadDim}, type);
  t->value = at::randn({batch, key_heads, kCacheKeys, kHeadDim}, type);
  return {{"scaled_dot_product_attention", [t] { t->out = fused(*t, false); }},
          {"matmul(softmax(matmul(q, k)), v)",
           [t] { t->out = at::matmul(at::softmax(scores(*t), -1), t->value); }}};
}

}  // namespace

std::vector<Way> torch_product_ways(const KernelCase& c, at::ScalarType type) {
  auto t = std::make_shared<Heads>();
  if (c.op == "attention.causal") return causal(t, c.rows, c.hidden / kHeadDim, type);
  if (c.op == "attention.decode") return decode(t, c.rows, c.hidden / kHeadDim, type);
  if (c.op != "linear") return {};
  t->query = at::randn({c.rows, c.hidden}, type), t->key = at::randn({c.hidden, c.hidden}, type);
  return {{"linear", [t] { t->out = at::linear(t->query, t->key); }}};
}

}  // namespace yard::bench
