// SPDX-License-Identifier: Apache-2.0
// layer_norm uses oneDNN's primitive, and computes in double the rows that f32 sums do not suit.
#include <algorithm>
#include <utility>

#include "kernels.h"
#include "primitives.h"
#include "process.h"
#include "rows.h"

namespace yard::onednn {
namespace {

struct Norm {
  float *out, *x;
  float *weight, *bias;  // may be null
  int64_t rows, width;
  double eps;

  bool unsuited(int64_t r) const { return !suits_layer_norm(range_of(x + r * width, width), eps); }
  // Whether the operands that all rows share can be used in f32.
  bool shared_parts_suit() const {
    return (eps == 0 || (eps >= 1e-30 && eps <= 1e30)) &&
           (weight == nullptr || suits_scaling(range_of(weight, width))) &&
           (bias == nullptr || suits_scaling(range_of(bias, width)));
  }
  void own_row(int64_t r, const float* from) const {
    layer_norm_row(out + r * width, from, weight, bias, width, eps);
  }
};

// A row that oneDNN must not compute. `x` is its input, or a copy of it in calls in place.
struct Kept {
  int64_t row;
  const float* x;
};

// Finds the unsuited rows, and copies them if the output will overwrite them. Returns false if
// memory runs out.
bool keep_rows(Call call, const Norm& n, int64_t count, std::span<Kept>& kept) {
  if (count == 0) return true;
  kept = scratch<Kept>(call, count);
  const bool in_place = n.out == n.x;
  const std::span<float> copies =
      in_place ? scratch<float>(call, count * n.width) : std::span<float>();
  if (kept.empty() || (in_place && copies.empty())) return false;
  float* next = copies.data();
  size_t at = 0;
  for (int64_t r = 0; at < kept.size(); ++r) {
    if (!n.unsuited(r)) continue;
    const float* row = n.x + r * n.width;
    if (in_place) {
      std::copy_n(row, n.width, next);
      row = std::exchange(next, next + n.width);
    }
    kept[at++] = {r, row};
  }
  return true;
}

}  // namespace

int32_t layer_norm(Call call, Tensor out, Tensor x, Tensor weight, Tensor bias, double eps) {
  if (forked()) return call.fail(YARD_DECLINED, "oneDNN's threads do not exist in a forked child");
  if (x.numel() == 0) return YARD_OK;
  const int64_t width = x.size(-1);
  const Norm n{out.data<float>(),
               x.data<float>(),
               weight ? weight.data<float>() : nullptr,
               bias ? bias.data<float>() : nullptr,
               x.numel() / width,
               width,
               eps};
  const bool suits = n.shared_parts_suit();
  const int64_t unsuited =
      suits ? count_rows(call, n.rows, width, [&](int64_t r) { return n.unsuited(r); }) : n.rows;
  if (unsuited == n.rows) {
    call.parallel_for(n.rows, rows_per_piece(width), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) n.own_row(r, n.x + r * width);
    });
    return YARD_OK;
  }

  std::span<Kept> kept;
  if (!keep_rows(call, n, unsuited, kept))
    return call.fail(YARD_TRANSIENT, "no memory for %lld rows", static_cast<long long>(unsuited));
  Key key;
  key.kind = Kind::kLayerNorm, key.rows = n.rows, key.width = width;
  key.scale = n.weight != nullptr, key.shift = n.bias != nullptr, key.eps = static_cast<float>(eps);
  const int32_t code = run_primitive(call, key, {n.out, n.x, n.weight, n.bias});
  if (code != YARD_OK) return code;
  for (const Kept& k : kept) n.own_row(k.row, k.x);
  return YARD_OK;
}

}  // namespace yard::onednn
