// SPDX-License-Identifier: Apache-2.0
// argmax finds the largest element of each block of a row, then its place in the first such block.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "argmax.cc"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <cstring>
#include <limits>
#include <type_traits>

#include "jobs.h"
#include "kernels.h"
#include "lanes.inc"
#include "scalars.h"

#include "largest.inc"  // after lanes.inc

HWY_BEFORE_NAMESPACE();
namespace yard::simd {
namespace HWY_NAMESPACE {

struct ArgmaxRows {
  template <class T>
  static void of(const Argmax& job, int64_t begin, int64_t end) {
    auto at = job.walk.from(begin);
    for (int64_t r = begin; r < end; ++r, at.next()) {
      const int64_t index =
          largest_of_row(at.template at<T>(1), static_cast<size_t>(job.width)).index;
      write_index(at.template at<char>(0), job.wide, index);
    }
  }
};

void argmax_rows(const Argmax& job, int64_t begin, int64_t end) {
  by_type<ArgmaxRows>(job, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace yard::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace yard::simd {
namespace {
HWY_EXPORT(argmax_rows);
}  // namespace

int32_t argmax(Call call, Tensor out, Tensor x) {
  if (out.numel() == 0) return YARD_OK;
  const int64_t width = x.size(-1);
  if (width == 0)
    return call.fail(YARD_CALLER, "argmax: invalid x: expected rows of at least 1 element, got 0");
  const Argmax job{{{out, x}, 0}, width, x.dtype(), out.dtype() == YARD_I64};
  call.parallel_for(job.walk.rows(), grain_of(width * 8), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(argmax_rows)(job, begin, end);
  });
  return YARD_OK;
}

}  // namespace yard::simd
#endif
