// SPDX-License-Identifier: Apache-2.0
// Elementwise ops, table lookups, quantised rows and choices, in the ways that people who know
// PyTorch would write them.
#include <cmath>
#include <memory>

#include "torch_ways.h"

namespace yard::bench {
namespace {

struct Rows {
  at::Tensor x, y, out, scale, ids;
};
using SharedRows = std::shared_ptr<Rows>;

std::vector<Way> elementwise(const SharedRows& t, bool add) {
  if (add)
    return {{"a + b", [t] { t->out = t->x + t->y; }},
            {"add into an output that is used again", [t] { at::add_out(t->out, t->x, t->y); }}};
  return {{"a * b", [t] { t->out = t->x * t->y; }},
          {"mul into an output that is used again", [t] { at::mul_out(t->out, t->x, t->y); }}};
}

std::vector<Way> embedding(const SharedRows& t, int64_t rows, int64_t hidden, at::ScalarType type) {
  t->x = at::randn({kVocabulary, hidden}, type);
  t->ids = at::randint(kVocabulary, {rows}, at::kLong);
  return {{"embedding", [t] { t->out = at::embedding(t->x, t->ids); }},
          {"index_select into an output that is used again",
           [t] { at::index_select_out(t->out, t->x, 0, t->ids); }}};
}

at::Tensor rounded(const at::Tensor& x, const at::Tensor& scale) {
  return x.div(scale).round_().clamp_(-127, 127).to(at::kChar);
}

std::vector<Way> quantize(const SharedRows& t, int64_t rows, at::ScalarType type) {
  const auto by = [t](auto largest) {
    return [t, largest] {
      t->scale = largest(t->x).div_(127);
      t->out = rounded(t->x, t->scale);
    };
  };
  std::vector<Way> ways = {{"abs().amax(), then round(x / scale)",
                            by([](const at::Tensor& x) { return x.abs().amax(-1, true); })},
                           {"the largest by aminmax()", by([](const at::Tensor& x) {
                              const auto [least, most] = at::aminmax(x, -1, true);
                              return at::maximum(least.neg(), most);
                            })},
                           {"the largest by a norm", by([](const at::Tensor& x) {
                              return at::norm(x, INFINITY, -1, true);
                            })}};
  if (type != at::kFloat) return ways;
  const at::Tensor zeros = at::zeros({rows}, at::kLong);
  ways.push_back({"abs().amax(), then quantize_per_channel", [t, zeros] {
                    t->scale = t->x.abs().amax(-1).div_(127);
                    t->out = at::quantize_per_channel(t->x, t->scale, zeros, 0, at::kQInt8);
                  }});
  return ways;
}

std::vector<Way> dequantize(const SharedRows& t, at::ScalarType type) {
  t->x = at::randint(-127, 128, t->x.sizes(), at::kChar);
  const at::Tensor scale = t->scale.unsqueeze(-1), same = scale.to(type);
  return {{"x.to(dtype) * scale", [t, type, scale] { t->out = t->x.to(type).mul_(scale); }},
          {"x * scale into an output that is used again",
           [t, same] { at::mul_out(t->out, t->x, same); }}};
}

std::vector<Way> topk(const SharedRows& t, int64_t rows, at::ScalarType type) {
  t->x = at::randn({rows, kExperts}, type);
  return {{"topk(softmax(x))",
           [t] { std::tie(t->out, t->ids) = at::topk(at::softmax(t->x, -1), kTopExperts); }},
          {"exp(topk(x) - logsumexp(x))", [t] {
             std::tie(t->out, t->ids) = at::topk(t->x, kTopExperts);
             t->out.sub_(at::logsumexp(t->x, -1, true)).exp_();
           }}};
}

}  // namespace

std::vector<Way> torch_table_ways(const KernelCase& c, at::ScalarType type) {
  auto t = std::make_shared<Rows>();
  if (c.op == "embedding") return embedding(t, c.rows, c.hidden, type);
  if (c.op == "topk_softmax") return topk(t, c.rows, type);
  t->x = at::randn({c.rows, c.hidden}, type), t->out = at::empty_like(t->x);
  if (c.op == "quantize_int8") return quantize(t, c.rows, type);
  t->scale = at::rand({c.rows});
  if (c.op == "dequantize") return dequantize(t, type);
  if (c.op == "argmax")
    return {{"argmax", [t] { t->ids = at::argmax(t->x, -1); }},
            {"max", [t] { std::tie(t->y, t->ids) = at::max(t->x, -1); }}};
  t->y = at::randn({c.rows, c.hidden}, type);
  if (c.op == "add" || c.op == "mul") return elementwise(t, c.op == "add");
  return {};
}

}  // namespace yard::bench
