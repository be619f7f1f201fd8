// SPDX-License-Identifier: Apache-2.0
#include "cost.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "library.h"
#include "rows.h"

namespace yard::openblas {
namespace {

struct Rates {
  double ns_per_operation;  // of a large product, by all threads; a multiplication and an addition
  double ns_per_byte;       // of a matrix that is read once, by all threads
  double ns_per_converted;  // element, by all threads
};

// Sharing out one product among threads.
constexpr double kFixedNs = 5000;
// How much of another core a further thread is worth.
constexpr double kThreadWorth = 0.85;

// The best of a few runs: what disturbs a measurement only makes it longer.
template <class F>
double best_ns(const F& f) {
  using Clock = std::chrono::steady_clock;
  double best = 1e12;
  for (int run = 0; run < 3; ++run) {
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return std::max(best, 1.0);
}

Rates measure() {
  constexpr int32_t kSize = 192, kLong = 4096;
  std::vector<float> a(size_t{kSize} * kLong, 0.5f), b(kLong, 0.5f), c(size_t{kSize} * kSize);
  const Library& blas = Library::get();
  const Matrix square{a.data(), false, kSize}, wide{a.data(), true, kLong};
  const double product =
      best_ns([&] { blas.multiply(kSize, kSize, kSize, square, square, 0, c.data(), kSize); });
  const double vector = best_ns([&] {
    blas.multiply(1, kSize, kLong, {b.data(), false, kLong}, wide, 0, c.data(), kSize);
  });
  std::vector<uint16_t> half(size_t{kSize} * kSize, 0x3f00);
  const double convert = best_ns([&] {
    to_float(half.data(), c.data(), static_cast<int64_t>(half.size()));
    asm volatile("" : : "r"(c.data()) : "memory");  // keeps the compiler from removing the loop
  });
  const double threads = 1 + kThreadWorth * (std::max(1u, std::thread::hardware_concurrency()) - 1);
  return {product / (double{kSize} * kSize * kSize) / threads,
          vector / (4.0 * kSize * kLong) / threads,
          // An assumption: blocks take four times as long as bf16.
          4 * convert / static_cast<double>(half.size()) / threads};
}

// Not a function-local static, for which a forked child may wait for ever; std::call_once starts again there.
const Rates& rates() {
  static constinit Rates measured{};
  static constinit std::once_flag once;
  std::call_once(once, [] { measured = measure(); });
  return measured;
}

}  // namespace

double product_ns(double m, double n, double k) {
  const Rates& r = rates();
  const double bytes = 4 * (m * n + m * k + n * k);
  return kFixedNs + std::max(m * n * k * r.ns_per_operation, bytes * r.ns_per_byte);
}

double convert_ns(double elements) { return elements * rates().ns_per_converted; }

}  // namespace yard::openblas
