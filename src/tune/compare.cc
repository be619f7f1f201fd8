// SPDX-License-Identifier: Apache-2.0
// compare() of yard/call_spec.h: tensors element by element.
#include <fmt/format.h>
#include <yard/call_spec.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tune/elements.h"

namespace yard {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

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

// The first power of two beyond the type's range, which stands for an overflow.
double beyond(DType t) {
  switch (t) {
    case DType::f16:
    case DType::f8e5m2: return 0x1p16;
    case DType::f32:
    case DType::bf16: return 0x1p128;
    default: return kInfinity;
  }
}

struct Errors {
  double abs = 0, rel = 0;
};
Errors errors(double found, double expected) {
  if (found == expected || (std::isnan(found) && std::isnan(expected))) return {};
  if (!std::isfinite(found) || !std::isfinite(expected)) return {kInfinity, kInfinity};
  const double abs = std::fabs(found - expected);
  return {abs, expected != 0 ? abs / std::fabs(expected) : 0};
}

// One pair of tensors, row by row.
class Comparison {
 public:
  Comparison(const WrittenTensor& found, const WrittenTensor& expected, yard_tolerance_t tolerance,
             Difference& to)
      : name_(found.name),
        f_(*found.view),
        e_(*expected.view),
        t_(tolerance),
        type_(f_.dtype()),
        size_(static_cast<int64_t>(tune::element_size(type_))),
        d_(to) {}

  void run() {
    tune::for_each_row(f_, [&](const std::vector<int64_t>& index, int64_t offset, int64_t width) {
      row(index, offset, width);
      return true;
    });
  }

 private:
  void row(const std::vector<int64_t>& index, int64_t from, int64_t width) {
    const int64_t step = index.empty() ? 0 : f_.strides()[index.size() - 1];
    const auto at = [&](const TensorView& v, int64_t i) {
      return static_cast<const char*>(v.data()) + (from + i * step) * size_;
    };
    double magnitude = -1;  // of the row, computed at its first difference
    for (int64_t i = 0; i < width; ++i) {
      if (std::memcmp(at(f_, i), at(e_, i), static_cast<size_t>(size_)) == 0) continue;
      d_.equal_bits = false;
      if (magnitude < 0) {
        magnitude = 1;
        for (int64_t k = 0; k < width; ++k)
          if (const double v = std::fabs(tune::load(type_, at(e_, k))); std::isfinite(v))
            magnitude = std::max(magnitude, v);
      }
      element(index, i, tune::load(type_, at(f_, i)), tune::load(type_, at(e_, i)), magnitude);
    }
  }

  void element(const std::vector<int64_t>& row, int64_t column, double found, double expected,
               double magnitude) {
    const Errors error = errors(found, expected);
    d_.max_abs = std::max(d_.max_abs, error.abs);
    d_.max_rel = std::max(d_.max_rel, error.rel);
    double abs = error.abs, reference = std::fabs(expected);
    // Exactly one of the two overflowed: infinity counts as the next number beyond the range.
    if (std::isinf(abs) && !std::isnan(found) && !std::isnan(expected)) {
      const auto near = [&](double v) {
        return std::isinf(v) ? std::copysign(beyond(type_), v) : v;
      };
      abs = std::fabs(near(found) - near(expected));
      reference = std::fabs(near(expected));
    }
    if (!(abs > 0)) return;
    const double allowed = t_.rtol * reference + t_.atol * magnitude;
    const double ratio = std::isinf(abs) || allowed == 0 ? kInfinity : abs / allowed;
    if (ratio > 1) d_.within = false;
    if (ratio <= d_.ratio) return;
    d_.ratio = ratio, d_.worst_found = found, d_.worst_expected = expected;
    std::vector<int64_t> index = row;
    if (!index.empty()) index.back() = column;
    d_.worst = fmt::format("{}[{}]", name_, fmt::join(index, ","));
  }

  const std::string& name_;
  const TensorView &f_, &e_;
  const yard_tolerance_t t_;
  const DType type_;
  const int64_t size_;
  Difference& d_;
};

}  // namespace

Difference compare(std::span<const WrittenTensor> found, std::span<const WrittenTensor> expected,
                   std::span<const yard_tolerance_t> tolerances) {
  Difference d;
  for (size_t k = 0; k < found.size(); ++k)
    Comparison(found[k], expected[k], tolerance(found[k].view->dtype(), tolerances), d).run();
  return d;
}

}  // namespace yard
