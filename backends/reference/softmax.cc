// SPDX-License-Identifier: Apache-2.0
// softmax over the last dimension. Exponentials are computed twice, so that nothing is allocated
// and the output may alias the input.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels.h"
#include "numeric.h"
#include "rows.h"

namespace yard::reference {

int32_t softmax(Call call, Tensor out, Tensor x) {
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_row<T>(
        [](Row<T> o, Row<T> v) {
          // If a row has a NaN or +inf, or only -inf, one of the differences below is NaN. The sum
          // then makes the whole row NaN, as in the formula and in PyTorch.
          double largest = -std::numeric_limits<double>::infinity();
          for (int64_t i = 0; i < v.size(); ++i) largest = std::max(largest, v[i]);
          double sum = 0;
          for (int64_t i = 0; i < v.size(); ++i) sum += std::exp(v[i] - largest);
          for (int64_t i = 0; i < v.size(); ++i) o.set(i, std::exp(v[i] - largest) / sum);
        },
        out, x);
    return YARD_OK;
  });
}

}  // namespace yard::reference
