// SPDX-License-Identifier: Apache-2.0
#include "cost.h"

#include <yard/plugin.hpp>

#include <algorithm>
#include <vector>

#include "library.h"
#include "rows.h"

namespace yard::openblas {
namespace {

using plugin::ProductTimes;

// The time to divide one product among threads.
constexpr double kFixedNs = 5000;

struct Rates {
  ProductTimes product;  // on one thread, or on all if OpenBLAS has threads
  bool own_threads;
  double ns_per_converted;  // time per element on one thread
};

Rates measure() {
  // The width is typical, because the distance of rows decides how well caches work. There are
  // enough columns to pay for OpenBLAS's threads, if it has some, and for its packing.
  constexpr int32_t kColumns = 256, kWidth = 2048, kMostRows = ProductTimes::kRows[2];
  const Library& blas = Library::get();
  Rates to{};
  to.own_threads = blas.has_threads();
  std::vector<float> a(size_t{kMostRows} * kWidth, 0.5f), b(size_t{kColumns} * kWidth, 0.5f),
      c(size_t{kMostRows} * kColumns);
  const Matrix left{a.data(), false, kWidth}, right{b.data(), true, kWidth};
  for (size_t i = 0; i < std::size(to.product.ns); ++i)
    to.product.ns[i] = plugin::best_ns([&] {
                         blas.multiply(ProductTimes::kRows[i], kColumns, kWidth, left, right, 0,
                                       c.data(), kColumns);
                       }) /
                       (double{kWidth} * kColumns);
  std::vector<uint16_t> half(b.size() / 8, 0x3f00);
  const double convert = plugin::best_ns([&] {
    to_float(half.data(), b.data(), static_cast<int64_t>(half.size()));
    asm volatile("" : : "r"(b.data()) : "memory");  // keeps the compiler from removing the loop
  });
  // Blocks are assumed to take four times as long as bf16.
  to.ns_per_converted = 4 * convert / static_cast<double>(half.size());
  return to;
}

}  // namespace

double product_ns(double m, double n, double k) {
  const Rates& r = plugin::measured_once<measure>();
  const double alone = std::max(m, n) * k * r.product.at(std::min(m, n));
  const double pieces = r.own_threads ? 1 : m * n * k / Library::kPerThread;
  return kFixedNs + alone / plugin::speed_of_threads(pieces);
}

double convert_ns(double elements) {
  // Threads share the rows of the weight in panels.
  const double pieces = elements * 4 / (1 << 18);
  return elements * plugin::measured_once<measure>().ns_per_converted /
         plugin::speed_of_threads(pieces);
}

}  // namespace yard::openblas
