// SPDX-License-Identifier: Apache-2.0
// matmul in f32: one product for each matrix of the batch.
#include <algorithm>
#include <limits>
#include <optional>

#include "kernels.h"
#include "library.h"

namespace yard::openblas {
namespace {

constexpr int64_t kMostSize = std::numeric_limits<int32_t>::max();

// How OpenBLAS can read the last two dimensions of a tensor, or nullopt if neither has stride 1.
std::optional<Matrix> matrix_of(Tensor t) {
  const int64_t rows = t.size(-2), columns = t.size(-1);
  const int64_t by_row = rows > 1 ? t.stride(-2) : std::max<int64_t>(columns, 1);
  const int64_t by_column = columns > 1 ? t.stride(-1) : std::max<int64_t>(rows, 1);
  const auto fits = [](int64_t leading, int64_t other) {
    return leading >= std::max<int64_t>(other, 1) && leading <= kMostSize;
  };
  if ((columns <= 1 || t.stride(-1) == 1) && fits(by_row, columns))
    return Matrix{nullptr, false, static_cast<int32_t>(by_row)};
  if ((rows <= 1 || t.stride(-2) == 1) && fits(by_column, rows))
    return Matrix{nullptr, true, static_cast<int32_t>(by_column)};
  return std::nullopt;
}

float* matrix_at(Tensor t, int64_t i) {
  int64_t offset = 0;
  for (int axis = t.rank() - 3; axis >= 0; i /= t.size(axis--))
    offset += i % t.size(axis) * t.stride(axis);
  return t.data<float>() + offset;
}

// Whether all rows or all columns of a matrix are equal. Sums of such products can cancel so far
// that f32 loses their digits.
bool repeats(Tensor t) {
  return (t.size(-2) > 1 && t.stride(-2) == 0) || (t.size(-1) > 1 && t.stride(-1) == 0);
}

int64_t copy_room(Tensor t) { return matrix_of(t) ? 0 : t.size(-2) * t.size(-1); }

// An operand of the product. Each matrix is copied if OpenBLAS cannot read it in place.
class Operand {
 public:
  Operand(Tensor t, float* room) : t_(t), matrix_(matrix_of(t)), room_(room) {}

  Matrix at(int64_t i) const {
    if (matrix_) return {matrix_at(t_, i), matrix_->column_major, matrix_->leading};
    const float* const from = matrix_at(t_, i);
    const int64_t rows = t_.size(-2), columns = t_.size(-1);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        room_[r * columns + c] = from[r * t_.stride(-2) + c * t_.stride(-1)];
    return {room_, false, static_cast<int32_t>(columns)};
  }

 private:
  Tensor t_;
  std::optional<Matrix> matrix_;
  float* room_;
};

}  // namespace

int64_t matmul_workspace(Tensor out, Tensor a, Tensor b) {
  return 4 * (copy_room(out) + copy_room(a) + copy_room(b));
}

int32_t matmul(Call call, Tensor out, Tensor a, Tensor b) {
  if (out.numel() == 0) return YARD_OK;
  const int64_t m = out.size(-2), n = out.size(-1), k = a.size(-1);
  if (std::max({m, n, k}) > kMostSize)
    return call.fail(YARD_DECLINED, "a dimension is above 2^31 - 1");
  if (repeats(a) || repeats(b)) return call.fail(YARD_DECLINED, "a matrix has stride 0");
  float* const room = call.workspace<float>().data();
  const Operand left(a, room), right(b, room + copy_room(a));
  float* const result = room + copy_room(a) + copy_room(b);
  const std::optional<Matrix> to = matrix_of(out);
  const auto i32 = [](int64_t v) { return static_cast<int32_t>(v); };
  for (int64_t i = 0; i < out.numel() / (m * n); ++i) {
    Matrix x = left.at(i), y = right.at(i);
    float* const at = matrix_at(out, i);
    if (to && to->column_major) {  // computes the transposed product in row-major order
      x.column_major = !x.column_major, y.column_major = !y.column_major;
      Library::get().multiply_shared(call, i32(n), i32(m), i32(k), y, x, 0, at, to->leading);
      continue;
    }
    Library::get().multiply_shared(call, i32(m), i32(n), i32(k), x, y, 0, to ? at : result,
                                   to ? to->leading : i32(n));
    if (to) continue;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < n; ++c)
        at[r * out.stride(-2) + c * out.stride(-1)] = result[r * n + c];
  }
  return YARD_OK;
}

}  // namespace yard::openblas
