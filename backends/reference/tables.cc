// SPDX-License-Identifier: Apache-2.0
// embedding, quantize_int8 and dequantize look up, pack or unpack rows.
#include <algorithm>
#include <cmath>

#include "kernels.h"
#include "numeric.h"
#include "rows.h"
#include "weights.h"

namespace yard::reference {
namespace {

// Checks that every id has a row in the table. The error names the first that has none.
int32_t check_ids(Call call, Tensor ids, int64_t vocab) noexcept {
  int64_t row = 0;
  int32_t code = YARD_OK;
  for_each_index<1>(leading(ids, 0), {ids}, [&](const auto& offsets) {
    const int64_t id = index_at(ids, offsets[0]);
    if (code == YARD_OK && (id < 0 || id >= vocab))
      code = call.fail(
          YARD_CALLER,
          "embedding: invalid id: expected 0 <= id < vocab, which is %lld, got %lld in "
          "row %lld",
          static_cast<long long>(vocab), static_cast<long long>(id), static_cast<long long>(row));
    ++row;
  });
  return code;
}

template <class T>
void write(const Row<T>& out, const WeightRow& from, double scale) {
  from.for_each_piece([&](int64_t first, auto piece) {
    for (size_t i = 0; i < piece.size(); ++i)
      out.set(first + static_cast<int64_t>(i), piece[i] * scale);
  });
}

int32_t decline(Call call, Tensor x) {
  return call.fail(YARD_DECLINED, "no reference for rows of dtype number %u", unsigned{x.dtype()});
}

}  // namespace

int32_t embedding(Call call, Tensor out, Tensor ids, Tensor table) {
  if (!WeightRow::reads(table.dtype())) return decline(call, table);
  if (const int32_t code = check_ids(call, ids, table.size(0)); code != YARD_OK) return code;
  return with_type(call, out.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_index<2>(leading(out, 1), {out, ids}, [&](const auto& offsets) {
      const int64_t id = index_at(ids, offsets[1]);
      write(Row<T>(out, offsets[0]), WeightRow(table, id * table.stride(0)), 1);
    });
    return YARD_OK;
  });
}

int32_t quantize_int8(Call call, Tensor out, Tensor scale, Tensor x) {
  return with_type(call, x.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_index<3>(leading(x, 1), {out, scale, x}, [&](const auto& offsets) {
      const Row<int8_t> q(out, offsets[0]);
      const Row<T> v(x, offsets[2]);
      double largest = 0;
      for (int64_t i = 0; i < v.size() && !std::isnan(largest); ++i)
        largest = std::isnan(v[i]) ? v[i] : std::max(largest, std::fabs(v[i]));
      store<float>(scale, offsets[1], largest / 127);
      // Uses the stored scale, because dequantize multiplies with it.
      const double step = load<float>(scale, offsets[1]);
      const bool usable = std::isfinite(step) && step != 0;
      for (int64_t i = 0; i < v.size(); ++i)
        q.set(i, usable ? std::clamp(std::nearbyint(v[i] / step), -127.0, 127.0) : 0);
    });
    return YARD_OK;
  });
}

int32_t dequantize(Call call, Tensor out, Tensor x, Tensor scale) {
  if (!WeightRow::reads(x.dtype())) return decline(call, x);
  return with_type(call, out.dtype(), [&]<class T>(std::type_identity<T>) {
    for_each_index<3>(leading(out, 1), {out, x, scale}, [&](const auto& offsets) {
      write(Row<T>(out, offsets[0]), WeightRow(x, offsets[1]),
            scale ? load<float>(scale, offsets[2]) : 1);
    });
    return YARD_OK;
  });
}

}  // namespace yard::reference
