// SPDX-License-Identifier: Apache-2.0
// Comparing tensors element by element.
#include "compare.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "elements.h"

namespace yard::tool {
namespace {

yard_tolerance_t tolerance(DType t, std::span<const yard_tolerance_t> stated) {
  for (const yard_tolerance_t& s : stated)
    if (s.dtype == static_cast<uint32_t>(t)) return s;
  switch (t) {
    case DType::f64: return {0, 0, 1e-12, 1e-12};
    case DType::f32: return {0, 0, 1e-5, 1e-5};
    case DType::f16: return {0, 0, 2e-3, 1e-3};
    case DType::bf16: return {0, 0, 1.6e-2, 8e-3};
    case DType::f8e4m3:
    case DType::f8e5m2: return {0, 0, 0.25, 0.0625};
    default: return {0, 0, 0, 0};
  }
}

struct Errors {
  double abs, rel;
};
Errors errors(double found, double expected) {
  if (found == expected || (std::isnan(found) && std::isnan(expected))) return {0, 0};
  const double infinity = std::numeric_limits<double>::infinity();
  if (!std::isfinite(found) || !std::isfinite(expected)) return {infinity, infinity};
  const double abs = std::fabs(found - expected);
  return {abs, expected != 0 ? abs / std::fabs(expected) : 0};
}

}  // namespace

Difference compare(std::span<const Written> found, std::span<const Written> expected,
                   std::span<const yard_tolerance_t> tolerances) {
  Difference d;
  for (size_t k = 0; k < found.size(); ++k) {
    const TensorView &f = *found[k].view, &e = *expected[k].view;
    const auto size = static_cast<int64_t>(element_size(f.dtype()));
    const yard_tolerance_t t = tolerance(f.dtype(), tolerances);
    std::vector<int64_t> index(static_cast<size_t>(f.rank()), 0);
    for (int64_t left = f.numel(); left > 0; --left) {
      int64_t offset = 0;
      for (size_t i = 0; i < index.size(); ++i) offset += index[i] * f.strides()[i];
      const char* a = static_cast<const char*>(f.data()) + offset * size;
      const char* b = static_cast<const char*>(e.data()) + offset * size;
      if (std::memcmp(a, b, static_cast<size_t>(size)) != 0) {
        d.equal_bits = false;
        const double x = load(f.dtype(), a), y = load(f.dtype(), b);
        const Errors error = errors(x, y);
        if (error.abs > t.atol + t.rtol * std::fabs(y)) d.within = false;
        if (error.abs > d.max_abs) {
          d.max_abs = error.abs, d.worst_found = x, d.worst_expected = y;
          d.worst = fmt::format("{}[{}]", found[k].name, fmt::join(index, ","));
        }
        d.max_rel = std::max(d.max_rel, error.rel);
      }
      for (size_t i = index.size(); i-- > 0;) {
        if (++index[i] < f.shape()[i]) break;
        index[i] = 0;
      }
    }
  }
  return d;
}

}  // namespace yard::tool
