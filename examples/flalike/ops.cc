// SPDX-License-Identifier: Apache-2.0
#include "ops.h"

#include <cmath>

namespace flalike {

void attention_by_the_book(const Attention& a, float* out, Mode) {
  for (int64_t i = 0; i < a.rows * a.heads; ++i) {
    const int64_t at = i * a.head_dim;
    double dot = 0;
    for (int64_t d = 0; d < a.head_dim; ++d) dot += double(a.q[at + d]) * a.k[at + d];
    for (int64_t d = 0; d < a.head_dim; ++d) out[at + d] = float(dot * a.v[at + d]);
  }
}

void attention_grad_by_the_book(const Attention& a, const float* d_out, float* d_v) {
  for (int64_t i = 0; i < a.rows * a.heads; ++i) {
    const int64_t at = i * a.head_dim;
    double dot = 0;
    for (int64_t d = 0; d < a.head_dim; ++d) dot += double(a.q[at + d]) * a.k[at + d];
    for (int64_t d = 0; d < a.head_dim; ++d) d_v[at + d] = float(dot * d_out[at + d]);
  }
}

float rms_norm_by_the_book(const Norm& n, float eps) {
  float largest = 0;
  for (int64_t r = 0; r < n.rows; ++r) {
    const float* x = n.x + r * n.width;
    double sum = 0;
    for (int64_t i = 0; i < n.width; ++i) sum += double(x[i]) * x[i];
    const auto scale = float(1 / std::sqrt(sum / double(n.width) + eps));
    for (int64_t i = 0; i < n.width; ++i) n.out[r * n.width + i] = scale * x[i];
    largest = std::fmax(largest, scale);
  }
  return largest;
}

}  // namespace flalike
