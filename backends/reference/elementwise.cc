// SPDX-License-Identifier: Apache-2.0
// add and mul, element by element. An output may alias an input.
#include "kernels.h"
#include "numeric.h"
#include "rows.h"

namespace yard::reference {
namespace {

template <class Combine>
int32_t elementwise(Call call, Tensor out, Tensor a, Tensor b, const Combine& combine) {
  return with_type(call, a.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_row<T>(
        [&](Row<T> o, Row<T> x, Row<T> y) {
          for (int64_t i = 0; i < o.size(); ++i) o.set(i, combine(x[i], y[i]));
        },
        out, a, b);
    return YARD_OK;
  });
}

}  // namespace

int32_t add(Call call, Tensor out, Tensor a, Tensor b) {
  return elementwise(call, out, a, b, [](double x, double y) { return x + y; });
}

int32_t mul(Call call, Tensor out, Tensor a, Tensor b) {
  return elementwise(call, out, a, b, [](double x, double y) { return x * y; });
}

}  // namespace yard::reference
