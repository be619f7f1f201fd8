// SPDX-License-Identifier: Apache-2.0
// softmax runs oneDNN's primitive, then corrects rows with NaN and rows whose sum has drifted.
#include <algorithm>
#include <limits>

#include "kernels.h"
#include "primitives.h"
#include "process.h"
#include "rows.h"

namespace yard::onednn {

int32_t softmax(Call call, Tensor out, Tensor x) {
  if (forked()) return call.fail(YARD_DECLINED, "oneDNN's threads do not exist in a forked child");
  if (x.numel() == 0) return YARD_OK;
  const int64_t width = x.size(-1), rows = x.numel() / width;
  float *to = out.data<float>(), *from = x.data<float>();
  const auto is_nan = [&](int64_t r) { return softmax_is_nan(range_of(from + r * width, width)); };

  // The numbers of these rows are stored before the primitive runs, because `out` may be `x`.
  const int64_t count = count_rows(call, rows, width, is_nan);
  const std::span<int64_t> nan_rows =
      count > 0 ? scratch<int64_t>(call, count) : std::span<int64_t>();
  if (static_cast<int64_t>(nan_rows.size()) != count)
    return call.fail(YARD_TRANSIENT, "no memory for a list of %lld rows",
                     static_cast<long long>(count));
  for (int64_t r = 0, at = 0; at < count; ++r)
    if (is_nan(r)) nan_rows[static_cast<size_t>(at++)] = r;

  Key key;
  key.kind = Kind::kSoftmax, key.rows = rows, key.width = width;
  if (const int32_t code = run_primitive(call, key, {to, from}); code != YARD_OK) return code;
  call.parallel_for(rows, rows_per_piece(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) settle_sum(to + r * width, width);
  });
  for (int64_t r : nan_rows)
    std::fill_n(to + r * width, width, std::numeric_limits<float>::quiet_NaN());
  return YARD_OK;
}

}  // namespace yard::onednn
