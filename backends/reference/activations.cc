// SPDX-License-Identifier: Apache-2.0
// silu_and_mul and gelu_and_mul multiply an activation of a row's first half by the second half.
#include <cmath>
#include <numbers>

#include "kernels.h"
#include "numeric.h"
#include "rows.h"

namespace yard::reference {
namespace {

template <class Activation>
int32_t gate(Call call, Tensor out, Tensor x, const Activation& activation) {
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_row<T>(
        [&](Row<T> o, Row<T> v) {
          const int64_t d = o.size();
          for (int64_t i = 0; i < d; ++i) o.set(i, activation(v[i]) * v[d + i]);
        },
        out, x);
    return YARD_OK;
  });
}

double silu(double v) noexcept { return v / (1 + std::exp(-v)); }

// The textbook forms, 1 + erf(u) and 1 + tanh(u), cancel for negative u. These forms do not.
double gelu_erf(double v) noexcept { return 0.5 * v * std::erfc(-v / std::numbers::sqrt2); }

double gelu_tanh(double v) noexcept {
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  const double u = scale * (v + 0.044715 * v * v * v);
  return v / (1 + std::exp(-2 * u));
}

}  // namespace

int32_t silu_and_mul(Call call, Tensor out, Tensor x) { return gate(call, out, x, silu); }

int32_t gelu_and_mul(Call call, Tensor out, Tensor x, int64_t approximate) {
  return gate(call, out, x, approximate == 0 ? gelu_erf : gelu_tanh);
}

}  // namespace yard::reference
