// SPDX-License-Identifier: Apache-2.0
// rotary_embedding turns pairs of dimensions of query and key, in place, by an angle that grows
// with the position. The angle comes from tables (by position or by token), or from the position
// and a base.
#include <cmath>

#include "kernels.h"
#include "numeric.h"
#include "rows.h"

namespace yard::reference {
namespace {

// Returns how many dimensions of a head are rotated, or a negative number after a failure. The
// schema limits rotary_dim too, but bound calls change scalars without a check, and this one
// decides which memory is touched.
int64_t rotated_dims(Call call, Tensor query, Tensor cos, int64_t rotary_dim) noexcept {
  const auto refuse = [&](const char* format, auto... figures) {
    return -int64_t{call.fail(YARD_CALLER, format, figures...)};
  };
  const auto wide = [](int64_t v) { return static_cast<long long>(v); };
  const int64_t head_dim = query.size(-1);
  if (rotary_dim < 0 || rotary_dim > head_dim || rotary_dim % 2 != 0)
    return refuse(
        "rotary_embedding: rotary_dim is %lld; it must be even and between 0 and head_dim, %lld",
        wide(rotary_dim), wide(head_dim));
  if (cos) {
    const int64_t covered = 2 * cos.size(-1);
    if (rotary_dim != 0 && rotary_dim != covered)
      return refuse("rotary_embedding: rotary_dim is %lld, but cos and sin cover %lld dimensions",
                    wide(rotary_dim), wide(covered));
    return covered;
  }
  if (rotary_dim != 0) return rotary_dim;
  if (head_dim % 2 != 0)
    return refuse(
        "rotary_embedding: head_dim is %lld, which is odd; give rotary_dim or cos and sin",
        wide(head_dim));
  return head_dim;
}

// Checks that every position has a row in the tables. The error names the first that has none.
int32_t check_positions(Call call, Tensor positions, Tensor cos) noexcept {
  const int64_t rows = cos.size(0);
  int64_t token = 0;
  int32_t code = YARD_OK;
  for_each_index<1>(leading(positions, 0), {positions}, [&](const auto& offsets) {
    const int64_t position = index_at(positions, offsets[0]);
    if (code == YARD_OK && (position < 0 || position >= rows))
      code = call.fail(
          YARD_CALLER,
          "rotary_embedding: token %lld has position %lld, but cos and sin have %lld rows",
          static_cast<long long>(token), static_cast<long long>(position),
          static_cast<long long>(rows));
    ++token;
  });
  return code;
}

// Returns an element of cos or sin, which may have other dtypes than query and key.
double table_at(Tensor table, int64_t row, int64_t column) noexcept {
  return float_at(table, row * table.stride(0) + column * table.stride(1));
}

struct Pair {
  int64_t first, second;  // dimensions of a head
  double cos, sin;
};

template <class T>
void rotate(Tensor heads, int64_t token_offset, const Pair& pair) noexcept {
  for (int64_t h = 0; h < heads.size(-2); ++h) {
    const Row<T> head(heads, token_offset + h * heads.stride(-2));
    const double a = head[pair.first], b = head[pair.second];
    head.set(pair.first, a * pair.cos - b * pair.sin);
    head.set(pair.second, b * pair.cos + a * pair.sin);
  }
}

}  // namespace

int32_t rotary_embedding(Call call, Tensor query, Tensor key, Tensor positions, Tensor cos,
                         Tensor sin, int64_t rotary_dim, double base, int64_t style) {
  if (!(base > 0))
    return call.fail(YARD_CALLER, "rotary_embedding: base is %g, not positive", base);
  const int64_t dims = rotated_dims(call, query, cos, rotary_dim);
  if (dims < 0) return static_cast<int32_t>(-dims);
  if (positions && cos)
    if (const int32_t code = check_positions(call, positions, cos); code != YARD_OK) return code;

  return with_type(call, query.dtype(), [&]<class T>(std::type_identity<T>) {
    int64_t token = 0;
    for_each_index<3>(leading(query, 2), {query, key, positions}, [&](const auto& offsets) {
      const int64_t position = positions ? index_at(positions, offsets[2]) : token;
      for (int64_t i = 0; i < dims / 2; ++i) {
        Pair pair = style == 0 ? Pair{i, i + dims / 2, 1, 0} : Pair{2 * i, 2 * i + 1, 1, 0};
        if (cos) {
          pair.cos = table_at(cos, position, i);
          pair.sin = table_at(sin, position, i);
        } else {
          const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dims);
          const double angle = static_cast<double>(position) * std::pow(base, exponent);
          pair.cos = std::cos(angle);
          pair.sin = std::sin(angle);
        }
        rotate<T>(query, offsets[0], pair);
        if (key) rotate<T>(key, offsets[1], pair);
      }
      ++token;
    });
    return YARD_OK;
  });
}

}  // namespace yard::reference
