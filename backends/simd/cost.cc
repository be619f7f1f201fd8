// SPDX-License-Identifier: Apache-2.0
// Measuring the machine, and what follows for a call.
#include "cost.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels.h"
#include "rows.h"

namespace yard::simd {
namespace {

// Dispatch, checks and the first cache misses of any call.
constexpr double kFixedNs = 60;
// What one element of silu_and_mul takes, on which operations are measured.
constexpr double kSiluOperations = 20;

// The best of a few runs: what disturbs a measurement only makes it longer.
template <class F>
double best_ns(const F& f) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  for (int run = 0; run < 4; ++run) {
    const auto start = Clock::now();
    f();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count());
  }
  return std::max(best, 1.0);
}

Rates measure() {
  constexpr size_t kBytes = size_t{1} << 18;  // more than a first-level cache
  std::vector<char> from(kBytes, 1), to(kBytes);
  const double copy = best_ns([&] {
    std::memcpy(to.data(), from.data(), kBytes);
    asm volatile("" : : "r"(to.data()) : "memory");  // keeps the compiler from removing the loop
  });

  constexpr int64_t kWidth = 2048;
  std::vector<float> x(2 * kWidth, 0.5f), y(kWidth);
  const int64_t in_shape[] = {2 * kWidth}, out_shape[] = {kWidth};
  const auto tensor = [](std::vector<float>& data, const int64_t* shape) {
    yard_tensor_t t{};
    t.data = data.data(), t.device = {1, 0}, t.ndim = 1, t.dtype = {2, 32, 1}, t.shape = shape;
    return t;
  };
  const yard_tensor_t in = tensor(x, in_shape), out = tensor(y, out_shape);
  yard_call_t call{};
  call.size = sizeof call;
  const double silu = best_ns([&] { silu_and_mul(Call(&call), Tensor(&out), Tensor(&in)); });

  return {copy / (2.0 * kBytes), silu / (kWidth * kSiluOperations),
          static_cast<double>(std::max(1u, std::thread::hardware_concurrency()))};
}

}  // namespace

// Not a function-local static, for which a forked child may wait for ever; std::call_once starts again there.
const Rates& rates() {
  static constinit Rates measured{};
  static constinit std::once_flag once;
  std::call_once(once, [] { measured = measure(); });
  return measured;
}

double estimate(const Rates& rates, const Work& work, double elements) {
  const double each =
      std::max(work.bytes * rates.ns_per_byte, work.operations * rates.ns_per_operation);
  const double alone = std::max(elements, 0.0) * each;
  const double piece = 2.0 * static_cast<double>(kPieceBytes) * rates.ns_per_byte;
  return kFixedNs + std::min(alone, piece) + std::max(alone - piece, 0.0) / rates.threads;
}

}  // namespace yard::simd
