// SPDX-License-Identifier: Apache-2.0
// Comparing tensors element by element: see yard/call_spec.h.
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

// What overflows is at least this: the first number that does not fit.
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
        index_(static_cast<size_t>(f_.rank()), 0),
        d_(to) {}

  void run() {
    if (f_.numel() == 0) return;
    const size_t rank = index_.size();
    const int64_t width = rank > 0 ? f_.shape()[rank - 1] : 1;
    for (int64_t rows = f_.numel() / width; rows > 0; --rows) {
      row(width);
      for (size_t i = rank > 0 ? rank - 1 : 0; i-- > 0;) {
        if (++index_[i] < f_.shape()[i]) break;
        index_[i] = 0;
      }
    }
  }

 private:
  void row(int64_t width) {
    int64_t from = 0;
    for (size_t i = 0; i + 1 < index_.size(); ++i) from += index_[i] * f_.strides()[i];
    const int64_t step = index_.empty() ? 0 : f_.strides()[index_.size() - 1];
    const auto at = [&](const TensorView& v, int64_t i) {
      return static_cast<const char*>(v.data()) + (from + i * step) * size_;
    };
    double magnitude = -1;  // not known yet
    for (int64_t i = 0; i < width; ++i) {
      if (std::memcmp(at(f_, i), at(e_, i), static_cast<size_t>(size_)) == 0) continue;
      d_.equal_bits = false;
      if (magnitude < 0) {
        magnitude = 1;
        for (int64_t k = 0; k < width; ++k)
          if (const double v = std::fabs(tune::load(type_, at(e_, k))); std::isfinite(v))
            magnitude = std::max(magnitude, v);
      }
      element(i, tune::load(type_, at(f_, i)), tune::load(type_, at(e_, i)), magnitude);
    }
  }

  void element(int64_t column, double found, double expected, double magnitude) {
    const Errors error = errors(found, expected);
    d_.max_abs = std::max(d_.max_abs, error.abs);
    d_.max_rel = std::max(d_.max_rel, error.rel);
    double abs = error.abs, reference = std::fabs(expected);
    // One side of the edge of what fits: as far apart as if there were one more number behind it.
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
    if (!index_.empty()) index_.back() = column;
    d_.worst = fmt::format("{}[{}]", name_, fmt::join(index_, ","));
    if (!index_.empty()) index_.back() = 0;
  }

  const std::string& name_;
  const TensorView &f_, &e_;
  const yard_tolerance_t t_;
  const DType type_;
  const int64_t size_;
  std::vector<int64_t> index_;
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
