// SPDX-License-Identifier: Apache-2.0
// OpenBLAS, opened when it is first needed.
//
// It starts a thread for each processor that the thread which opens it may use, ends the process if it cannot, and waits for
// them in every fork() and exit(). So it is opened by a thread with one processor, and the host's threads share products.
// Where the program has opened it before, it has threads of its own and shares them itself.
#pragma once

#include <yard/plugin.hpp>

#include <cstdint>

namespace yard::openblas {

// A matrix in memory, row-major or column-major.
struct Matrix {
  const float* data;
  bool column_major;
  int32_t leading;  // distance of rows, or of columns
};

class Library {
 public:
  // Multiplications of a product that are worth another thread.
  static constexpr double kPerThread = 1 << 18;

  enum class State { kReady, kMissing, kOpenMP };
  // Opens it at the first call.
  static const Library& get();
  State state() const noexcept { return state_; }
  // Whether it has threads of its own. The library is ready.
  bool has_threads() const noexcept { return thread_count_() > 1; }

  // to[m, n] = a[m, k] * b[k, n] + scale * to, row-major, on this thread. The library is ready.
  void multiply(int32_t m, int32_t n, int32_t k, const Matrix& a, const Matrix& b, float scale,
                float* to, int32_t leading) const noexcept;
  // The same on all threads.
  void multiply_shared(plugin::Call call, int32_t m, int32_t n, int32_t k, const Matrix& a,
                       const Matrix& b, float scale, float* to, int32_t leading) const;

 private:
  // cblas_sgemm of CBLAS.
  using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                         float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                         float* c, int ldc);
  void open();

  Sgemm sgemm_ = nullptr;
  int (*thread_count_)() = nullptr;
  State state_ = State::kMissing;
};

}  // namespace yard::openblas
