// SPDX-License-Identifier: Apache-2.0
// f32 weights take one product. Other weights take one product per panel of weight rows.
#include <algorithm>
#include <limits>

#include "kernels.h"
#include "library.h"
#include "rows.h"

namespace yard::openblas {
namespace {

// Bytes of a panel in f32. Large enough that dividing its product among threads pays.
constexpr int64_t kPanelBytes = int64_t{8} << 20;
constexpr int64_t kRowsPerPiece = 16;

struct Job {
  int64_t rows, n, k;
  bool converts_x, converts_weight, converts_out;
  int64_t panel;  // rows of the weight per panel

  Job(Tensor out, Tensor x, Tensor weight)
      : rows(x.rows()),
        n(out.size(-1)),
        k(x.size(-1)),
        converts_x(!is_matrix(x)),
        converts_weight(weight.dtype() != YARD_F32),
        converts_out(!is_matrix(out)),
        panel(converts_weight ? std::clamp<int64_t>(kPanelBytes / 4 / std::max<int64_t>(k, 1), 1, n)
                              : n) {}

  // Counted in floats.
  int64_t x_room() const { return converts_x ? rows * k : 0; }
  int64_t weight_room() const { return converts_weight ? panel * k : 0; }
  int64_t out_room() const { return converts_out ? rows * panel : 0; }

  static int32_t leading(Tensor t) {
    return static_cast<int32_t>(t.rank() > 1 && t.size(-2) > 1 ? t.stride(-2)
                                                               : std::max<int64_t>(t.size(-1), 1));
  }
  // Whether the tensor is f32 and its rows are at equal distances.
  static bool is_matrix(Tensor t) {
    return t.dtype() == YARD_F32 && (t.rank() <= 2 || t.is_compact()) &&
           (t.rank() < 2 || t.stride(-2) <= std::numeric_limits<int32_t>::max());
  }
};

// Reads rows [begin, begin + count) of the weight as f32.
int32_t read_weight(Call call, Tensor weight, int64_t begin, int64_t count, float* to) {
  const int64_t k = weight.size(-1);
  if (weight.dtype() == YARD_BF16) {
    call.parallel_for(count, kRowsPerPiece, [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r) read_row(weight, begin + r, to + r * k);
    });
    return YARD_OK;
  }
  // The host chooses the best kernel of the op that converts the weight.
  const int64_t shape[] = {count, k};
  yard_tensor_t from = *weight.c(), f32 = *weight.c();
  from.data = weight.row<char>(begin), from.byte_offset = 0, from.shape = shape;
  f32.data = to, f32.byte_offset = 0, f32.dtype = {2, 32, 1}, f32.shape = shape;
  f32.strides = nullptr;
  yard_value_t args[3] = {};
  args[0].tag = args[1].tag = YARD_TAG_TENSOR;
  args[0].u.tensor = &f32, args[1].u.tensor = &from;
  const yard_host_t* host = call.c()->host;
  return host->call_op(host->self, call.c(), "dequantize", args, 3);
}

void start_with_bias(Call call, Tensor bias, int64_t at, int64_t rows, int64_t n, float* to,
                     int64_t leading) {
  call.parallel_for(rows, kRowsPerPiece, [&](int64_t b, int64_t e) {
    for (int64_t r = b; r < e; ++r) {
      float* const row = to + r * leading;
      for (int64_t i = 0; i < n; ++i) {
        if (bias.dtype() == YARD_BF16)
          to_float(&bias.at<const uint16_t>(at + i), row + i, 1);
        else
          row[i] = bias.at<const float>(at + i);
      }
    }
  });
}

}  // namespace

int64_t linear_workspace(Tensor out, Tensor x, Tensor weight, Tensor, Tensor) {
  const Job job(out, x, weight);
  return 4 * (job.x_room() + job.weight_room() + job.out_room());
}

int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor, Tensor bias) {
  const Job job(out, x, weight);
  if (out.numel() == 0) return YARD_OK;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (std::max({job.rows, job.n, job.k}) > kMost)
    return call.fail(YARD_DECLINED, "a dimension is above 2^31 - 1");
  float* room = call.workspace<float>().data();
  const auto take = [&](int64_t floats) { return std::exchange(room, room + floats); };
  float *const x_room = take(job.x_room()), *const panel = take(job.weight_room()),
               *const out_room = take(job.out_room());

  if (job.converts_x)
    call.parallel_for(job.rows, kRowsPerPiece, [&](int64_t b, int64_t e) {
      for (int64_t r = b; r < e; ++r) read_row(x, r, x_room + r * job.k);
    });
  const auto i32 = [](int64_t v) { return static_cast<int32_t>(v); };
  const Matrix a{job.converts_x ? x_room : x.data<const float>(), false,
                 job.converts_x ? std::max(i32(job.k), 1) : Job::leading(x)};
  for (int64_t at = 0; at < job.n; at += job.panel) {
    const int64_t n = std::min(job.panel, job.n - at);
    Matrix b{panel, true, std::max(i32(job.k), 1)};
    if (!job.converts_weight)
      b.data = weight.data<const float>(), b.leading = Job::leading(weight);
    else if (const int32_t code = read_weight(call, weight, at, n, panel); code != YARD_OK)
      return code;
    float* const to = job.converts_out ? out_room : out.data<float>() + at;
    const int32_t leading = job.converts_out ? i32(n) : Job::leading(out);
    if (bias) start_with_bias(call, bias, at, job.rows, n, to, leading);
    Library::get().multiply_shared(call, i32(job.rows), i32(n), i32(job.k), a, b,
                                   bias ? 1.0f : 0.0f, to, leading);
    if (!job.converts_out) continue;
    call.parallel_for(job.rows, kRowsPerPiece, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) write_row(out, r, at, to + r * n, n);
    });
  }
  return YARD_OK;
}

}  // namespace yard::openblas
