// SPDX-License-Identifier: Apache-2.0
// rms_norm, add_rms_norm and layer_norm. A kernel reads a whole row before it writes the row's
// first output, so an output may alias an input.
#include <cmath>

#include "kernels.h"
#include "numeric.h"
#include "rows.h"

namespace yard::reference {
namespace {

template <class T>
double root_mean_square(const Row<T>& x, double eps) noexcept {
  double sum = 0;
  for (int64_t i = 0; i < x.size(); ++i) sum += x[i] * x[i];
  return std::sqrt(sum / static_cast<double>(x.size()) + eps);
}

template <class T>
void normalize(const Row<T>& out, const Row<T>& x, const Row<T>& weight, double eps) noexcept {
  const double rms = root_mean_square(x, eps);
  for (int64_t i = 0; i < x.size(); ++i) out.set(i, x[i] / rms * weight[i]);
}

}  // namespace

int32_t rms_norm(Call call, Tensor out, Tensor x, Tensor weight, double eps) {
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    const Row<T> w(weight, 0);
    for_each_row<T>([&](Row<T> o, Row<T> v) { normalize(o, v, w, eps); }, out, x);
    return YARD_OK;
  });
}

int32_t add_rms_norm(Call call, Tensor out, Tensor residual, Tensor x, Tensor weight, double eps) {
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    const Row<T> w(weight, 0);
    for_each_row<T>(
        [&](Row<T> o, Row<T> r, Row<T> v) {
          for (int64_t i = 0; i < v.size(); ++i) r.set(i, r[i] + v[i]);
          // Normalizes the stored sum, as a later reader of the residual sees it.
          normalize(o, r, w, eps);
        },
        out, residual, x);
    return YARD_OK;
  });
}

int32_t layer_norm(Call call, Tensor out, Tensor x, Tensor weight, Tensor bias, double eps) {
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_row<T>(
        [&](Row<T> o, Row<T> v) {
          const auto count = static_cast<double>(v.size());
          double mean = 0, variance = 0;
          for (int64_t i = 0; i < v.size(); ++i) mean += v[i];
          mean /= count;
          for (int64_t i = 0; i < v.size(); ++i) variance += (v[i] - mean) * (v[i] - mean);
          const double deviation = std::sqrt(variance / count + eps);
          for (int64_t i = 0; i < v.size(); ++i) {
            double y = (v[i] - mean) / deviation;
            if (weight) y *= Row<T>(weight, 0)[i];
            if (bias) y += Row<T>(bias, 0)[i];
            o.set(i, y);
          }
        },
        out, x);
    return YARD_OK;
  });
}

}  // namespace yard::reference
