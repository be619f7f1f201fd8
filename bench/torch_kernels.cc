// SPDX-License-Identifier: Apache-2.0
// Computes each op in the few ways that people who know PyTorch would choose: as models do, with
// reused outputs, and in place. The bench takes the fastest. Gradients are off. All computation
// stays in the dtype of the tensors, which is faster than the conversion to f32 that some models
// use.
#include "torch_kernels.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <memory>

#include "torch_ways.h"

namespace yard::bench {
namespace {

constexpr double kEps = 1e-6;

struct Tensors {
  at::Tensor x, out, residual, weight, bias;
};

at::Tensor inverse_rms(const at::Tensor& x) { return x.mul(x).mean(-1, true).add_(kEps).rsqrt_(); }

std::vector<Way> rms_norm(const std::shared_ptr<Tensors>& t) {
  return {{"x * rsqrt(mean(x^2) + eps) * w",
           [t] { t->out = t->x * at::rsqrt(t->x.pow(2).mean(-1, true) + kEps) * t->weight; }},
          {"the same into an output that is used again",
           [t] {
             at::mul_out(t->out, t->x, inverse_rms(t->x));
             t->out.mul_(t->weight);
           }},
          {"by the norm of each row", [t] {
             const auto h = static_cast<double>(t->x.size(-1));
             const at::Tensor n = at::norm(t->x, 2, -1, true);
             at::mul_out(t->out, t->x, n.mul_(n).div_(h).add_(kEps).rsqrt_());
             t->out.mul_(t->weight);
           }}};
}

std::vector<Way> add_rms_norm(const std::shared_ptr<Tensors>& t) {
  auto sum = std::make_shared<Tensors>(*t);
  sum->x = t->residual;
  std::vector<Way> ways = rms_norm(sum);
  for (Way& w : ways)
    w.run = [t, norm = std::move(w.run)] {
      t->residual.add_(t->x);
      norm();
    };
  return ways;
}

std::vector<Way> layer_norm(const std::shared_ptr<Tensors>& t) {
  return {{"layer_norm",
           [t] { t->out = at::layer_norm(t->x, {t->x.size(-1)}, t->weight, t->bias, 1e-5); }}};
}

std::vector<Way> softmax(const std::shared_ptr<Tensors>& t) {
  return {{"softmax", [t] { t->out = at::softmax(t->x, -1); }},
          {"softmax into an output that is used again",
           [t] { at::_softmax_out(t->out, t->x, -1, false); }}};
}

// Multiplies an activation of the first half of x by the second half. x is [rows, 2 * hidden].
template <class Activation>
std::vector<Way> gated(const std::shared_ptr<Tensors>& t, Activation activation) {
  const auto halves = std::make_shared<std::vector<at::Tensor>>(t->x.chunk(2, -1));
  return {{"activation(a) * b",
           [t, halves, activation] { t->out = activation((*halves)[0]) * (*halves)[1]; }},
          {"activation(a).mul_(b)",
           [t, halves, activation] { t->out = activation((*halves)[0]).mul_((*halves)[1]); }},
          {"the same into an output that is used again", [t, halves, activation] {
             at::mul_out(t->out, activation((*halves)[0]), (*halves)[1]);
           }}};
}

struct Rotary {
  at::Tensor query, key, positions, cos, sin, wide_cos, wide_sin;
};

void rotate_with_copies(const at::Tensor& x, const at::Tensor& c, const at::Tensor& s) {
  const std::vector<at::Tensor> half = x.chunk(2, -1);
  const at::Tensor first = half[0] * c - half[1] * s, second = half[1] * c + half[0] * s;
  half[0].copy_(first), half[1].copy_(second);
}

void rotate_in_place(const at::Tensor& x, const at::Tensor& c, const at::Tensor& s) {
  const std::vector<at::Tensor> half = x.chunk(2, -1);
  const at::Tensor first = half[0].clone();
  half[0].mul_(c).addcmul_(half[1], s, -1);
  half[1].mul_(c).addcmul_(first, s);
}

// Rotates as most models do, with tables that hold each angle twice.
at::Tensor rotate_half(const at::Tensor& x, const at::Tensor& c, const at::Tensor& s) {
  const std::vector<at::Tensor> half = x.chunk(2, -1);
  return x * c + at::cat({-half[1], half[0]}, -1) * s;
}

std::vector<Way> rotary(at::ScalarType type, int64_t rows, int64_t hidden) {
  const int64_t dim = std::min<int64_t>(128, hidden), heads = std::max<int64_t>(hidden / dim, 1);
  auto r = std::make_shared<Rotary>();
  r->query = at::randn({rows, heads, dim}, type);
  r->key = at::randn({rows, std::max<int64_t>(heads / 4, 1), dim}, type);
  r->positions = at::randint(rows, {rows}, at::kLong);
  const at::Tensor angles = at::rand({rows, dim / 2});
  r->cos = angles.cos().to(type), r->sin = angles.sin().to(type);
  r->wide_cos = at::cat({r->cos, r->cos}, -1), r->wide_sin = at::cat({r->sin, r->sin}, -1);
  const auto both = [r](auto rotate) {
    return [r, rotate] {
      const at::Tensor c = r->cos.index_select(0, r->positions).unsqueeze(1);
      const at::Tensor s = r->sin.index_select(0, r->positions).unsqueeze(1);
      rotate(r->query, c, s), rotate(r->key, c, s);
    };
  };
  return {{"halves, copied back", both(rotate_with_copies)},
          {"halves in place", both(rotate_in_place)},
          {"x * cos + rotate_half(x) * sin", [r] {
             const at::Tensor c = r->wide_cos.index_select(0, r->positions).unsqueeze(1);
             const at::Tensor s = r->wide_sin.index_select(0, r->positions).unsqueeze(1);
             r->query = rotate_half(r->query, c, s), r->key = rotate_half(r->key, c, s);
           }}};
}

}  // namespace

std::vector<Way> torch_row_ways(const KernelCase& c, at::ScalarType type) {
  const int64_t rows = c.rows, hidden = c.hidden;
  if (c.op == "rotary_embedding") return rotary(type, rows, hidden);
  const bool is_gated = c.op.ends_with("_and_mul");
  auto t = std::make_shared<Tensors>();
  t->x = at::randn({rows, is_gated ? 2 * hidden : hidden}, type);
  t->out = at::empty({rows, hidden}, type);
  t->weight = at::randn({hidden}, type), t->bias = at::randn({hidden}, type);
  if (c.op == "rms_norm") return rms_norm(t);
  if (c.op == "layer_norm") return layer_norm(t);
  if (c.op == "softmax") return softmax(t);
  if (c.op == "silu_and_mul") return gated(t, [](const at::Tensor& a) { return at::silu(a); });
  if (c.op == "gelu_and_mul") return gated(t, [](const at::Tensor& a) { return at::gelu(a); });
  if (c.op != "add_rms_norm") return {};
  t->residual = at::randn({rows, hidden}, type);
  return add_rms_norm(t);
}

std::vector<Way> torch_ways(const KernelCase& c) {
  static const c10::InferenceMode* const inference = new c10::InferenceMode;
  (void)inference;
  const at::ScalarType type = c.dtype == "bf16" ? at::kBFloat16 : at::kFloat;
  std::vector<Way> ways = torch_product_ways(c, type);
  if (ways.empty()) ways = torch_table_ways(c, type);
  if (ways.empty()) ways = torch_row_ways(c, type);
  // Some versions of PyTorch lack a call for a dtype.
  std::erase_if(ways, [](const Way& w) {
    try {
      w.run();
      return false;
    } catch (const c10::Error&) {
      return true;
    }
  });
  return ways;
}

}  // namespace yard::bench
