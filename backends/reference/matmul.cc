// SPDX-License-Identifier: Apache-2.0
// matmul and linear, and their magnitudes. Sums are in double, over k in ascending order.
#include <cmath>

#include "kernels.h"
#include "numeric.h"
#include "rows.h"
#include "weights.h"

namespace yard::reference {
namespace {

class Sum {
 public:
  void add(double term) noexcept { sum_ += term; }
  void scale(double by) noexcept { sum_ *= by; }
  double value() const noexcept { return sum_; }

 private:
  double sum_ = 0;
};

// The magnitude of a sum is the norm of its terms, because random rounding errors grow with the
// norm, plus a hundredth of the sum of their absolute values, because f32 errors reach 1e-7 of that
// sum when large partial sums cancel. That is a hundredth of the 1e-5 allowed for the norm.
class Magnitude {
 public:
  void add(double term) noexcept { squares_ += term * term, sum_ += std::fabs(term); }
  void scale(double by) noexcept { squares_ *= by * by, sum_ *= std::fabs(by); }
  double value() const noexcept { return std::sqrt(squares_) + sum_ / 100; }

 private:
  double squares_ = 0, sum_ = 0;
};

template <class Result>
int32_t matmul_as(Call call, Tensor out, Tensor a, Tensor b) {
  return with_type(call, a.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_index<3>(leading(out, 2), {out, a, b}, [&](const auto& offsets) {
      for (int64_t i = 0; i < out.size(-2); ++i) {
        const Row<T> o(out, offsets[0] + i * out.stride(-2));
        const Row<T> row(a, offsets[1] + i * a.stride(-2));
        for (int64_t j = 0; j < o.size(); ++j) {
          const Row<T> column(b, offsets[2] + j * b.stride(-1), -2);
          Result sum;
          for (int64_t k = 0; k < row.size(); ++k) sum.add(row[k] * column[k]);
          o.set(j, sum.value());
        }
      }
    });
    return YARD_OK;
  });
}

template <class Result>
int32_t linear_as(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias) {
  if (!WeightRow::reads(weight.dtype()))
    return call.fail(YARD_DECLINED, "no reference for weights of dtype number %u",
                     unsigned{weight.dtype()});
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_row<T>(
        [&](Row<T> o, Row<T> v) {
          for (int64_t n = 0; n < o.size(); ++n) {
            Result sum;
            WeightRow(weight, n * weight.stride(0)).for_each_piece([&](int64_t first, auto piece) {
              for (size_t k = 0; k < piece.size(); ++k)
                sum.add(v[first + static_cast<int64_t>(k)] * piece[k]);
            });
            if (scale) sum.scale(Row<float>(scale, 0)[n]);
            if (bias) sum.add(Row<T>(bias, 0)[n]);
            o.set(n, sum.value());
          }
        },
        out, x);
    return YARD_OK;
  });
}

}  // namespace

int32_t matmul(Call call, Tensor out, Tensor a, Tensor b) {
  return matmul_as<Sum>(call, out, a, b);
}
int32_t matmul_magnitude(Call call, Tensor out, Tensor a, Tensor b) {
  return matmul_as<Magnitude>(call, out, a, b);
}

int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias) {
  return linear_as<Sum>(call, out, x, weight, scale, bias);
}
int32_t linear_magnitude(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale,
                         Tensor bias) {
  return linear_as<Magnitude>(call, out, x, weight, scale, bias);
}

}  // namespace yard::reference
