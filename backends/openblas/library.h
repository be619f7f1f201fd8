// SPDX-License-Identifier: Apache-2.0
// OpenBLAS, opened when it is first needed.
//
// OpenBLAS starts one thread per processor that the opening thread may use, ends the process if it
// cannot, and waits for these threads in every fork() and exit(). So a thread restricted to one
// processor opens it, and the host's threads share the work of products. If the program has opened
// OpenBLAS before, OpenBLAS has threads and shares the work itself.
#pragma once

#include <yard/plugin.hpp>

#include <cstdint>

namespace yard::openblas {

struct Matrix {
  const float* data;
  bool column_major;
  int32_t leading;  // from one row (or column) to the next, in elements
};

class Library {
 public:
  // The number of multiplications that justifies another thread.
  static constexpr double kPerThread = 1 << 18;

  enum class State { kReady, kMissing, kOpenMP };
  // Opens the library at the first call.
  static const Library& get();
  State state() const noexcept { return state_; }
  // Returns whether OpenBLAS has threads besides the caller. Requires state() == kReady.
  bool has_threads() const noexcept { return thread_count_() > 1; }

  // Computes to[m, n] = a[m, k] * b[k, n] + scale * to on this thread. `to` is row-major. Requires
  // state() == kReady.
  void multiply(int32_t m, int32_t n, int32_t k, const Matrix& a, const Matrix& b, float scale,
                float* to, int32_t leading) const noexcept;
  // Like multiply(), but uses all threads of the host or of OpenBLAS.
  void multiply_shared(plugin::Call call, int32_t m, int32_t n, int32_t k, const Matrix& a,
                       const Matrix& b, float scale, float* to, int32_t leading) const;

 private:
  using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k,
                         float alpha, const float* a, int lda, const float* b, int ldb, float beta,
                         float* c, int ldc);
  void open();

  Sgemm sgemm_ = nullptr;
  int (*thread_count_)() = nullptr;
  State state_ = State::kMissing;
};

}  // namespace yard::openblas
