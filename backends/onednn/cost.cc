// SPDX-License-Identifier: Apache-2.0
#include "cost.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "primitives.h"
#include "process.h"

namespace yard::onednn {
namespace {

struct Rates {
  double
      ns_per_operation;  // a multiplication and an addition, by all threads; negative: no such product
  double ns_per_byte;  // of what is read and written, by all threads
};

// Finding the primitive, and starting OpenMP's threads.
constexpr double kFixedNs = 10000;
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

// On this thread alone: other threads of OpenMP would make a process that cannot be forked.
Rates measure(bool bf16) {
  constexpr int64_t kSize = 192;
  const ThreadCount one(nullptr, 1);
  Key key;
  key.kind = Kind::kProduct, key.bf16 = bf16, key.by_column = true, key.threads = 1;
  key.rows = key.width = key.columns = kSize;
  key.left_stride = key.right_stride = key.out_stride = kSize;
  std::vector<float> a(kSize * kSize, 0.5f), b = a, c = a;
  try {
    Primitive product(key);
    std::vector<char> scratchpad(product.scratchpad_bytes() + 64);
    Operands on{c.data(), a.data()};
    on.right = b.data();
    const double alone =
        best_ns([&] { product.execute(on, scratchpad.data()); }) / (kSize * kSize * kSize);
    const double copy = best_ns([&] {
      std::copy(a.begin(), a.end(), b.begin());
      asm volatile("" : : "r"(b.data()) : "memory");  // keeps the compiler from removing the loop
    });
    const double threads =
        1 + kThreadWorth * (std::max(1u, std::thread::hardware_concurrency()) - 1);
    return {alone / threads, copy / (8.0 * kSize * kSize)};
  } catch (const dnnl::error&) {
    return {-1, 0};
  }
}

const Rates& rates(bool bf16) {
  static constinit Rates measured[2] = {};
  static constinit std::once_flag once[2];  // which a fork cannot leave taken, as it can a static's
  std::call_once(once[bf16], [&] { measured[bf16] = measure(bf16); });
  return measured[bf16];
}

}  // namespace

double product_ns(bool bf16, double m, double n, double k) {
  const Rates& r = rates(bf16);
  if (r.ns_per_operation < 0) return -1;
  const double bytes = (bf16 ? 2 : 4) * (m * n + m * k + n * k);
  return kFixedNs + std::max(m * n * k * r.ns_per_operation, bytes * r.ns_per_byte);
}

}  // namespace yard::onednn
