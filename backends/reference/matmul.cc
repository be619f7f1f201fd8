// SPDX-License-Identifier: Apache-2.0
// matmul and linear: each element is one sum in double, over k in ascending order.
#include "kernels.h"
#include "numeric.h"
#include "rows.h"
#include "weights.h"

namespace yard::reference {

int32_t matmul(Call call, Tensor out, Tensor a, Tensor b) {
  return with_type(call, a.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_index<3>(leading(out, 2), {out, a, b}, [&](const auto& offsets) {
      for (int64_t i = 0; i < out.size(-2); ++i) {
        const Row<T> o(out, offsets[0] + i * out.stride(-2));
        const Row<T> row(a, offsets[1] + i * a.stride(-2));
        for (int64_t j = 0; j < o.size(); ++j) {
          const Row<T> column(b, offsets[2] + j * b.stride(-1), -2);
          double sum = 0;
          for (int64_t k = 0; k < row.size(); ++k) sum += row[k] * column[k];
          o.set(j, sum);
        }
      }
    });
    return YARD_OK;
  });
}

int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor scale, Tensor bias) {
  if (!WeightRow::reads(weight.dtype()))
    return call.fail(YARD_DECLINED, "no reference for weights of dtype number %u",
                     unsigned{weight.dtype()});
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_row<T>(
        [&](Row<T> o, Row<T> v) {
          for (int64_t n = 0; n < o.size(); ++n) {
            double sum = 0;
            WeightRow(weight, n * weight.stride(0)).for_each_piece([&](int64_t first, auto piece) {
              for (size_t k = 0; k < piece.size(); ++k)
                sum += v[first + static_cast<int64_t>(k)] * piece[k];
            });
            if (scale) sum *= Row<float>(scale, 0)[n];
            if (bias) sum += Row<T>(bias, 0)[n];
            o.set(n, sum);
          }
        },
        out, x);
    return YARD_OK;
  });
}

}  // namespace yard::reference
