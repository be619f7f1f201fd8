// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>

namespace yard::openblas {
namespace {

// Constants of CBLAS.
constexpr int kRowMajor = 101, kNoTranspose = 111, kTranspose = 112;
// openblas_get_parallel() returns this if OpenBLAS uses the threads of OpenMP.
constexpr int kParallelOpenMP = 2;

template <class F>
F symbol(void* library, const char* name) noexcept {
  return reinterpret_cast<F>(::dlsym(library, name));
}

// Restricts this thread to one processor until destruction.
class OneProcessor {
 public:
  OneProcessor() noexcept {
    changed_ = sched_getaffinity(0, sizeof before_, &before_) == 0;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &before_)) {
        CPU_SET(cpu, &one);
        break;
      }
    changed_ = changed_ && sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~OneProcessor() {
    if (changed_) sched_setaffinity(0, sizeof before_, &before_);
  }
  OneProcessor(const OneProcessor&) = delete;
  OneProcessor& operator=(const OneProcessor&) = delete;

 private:
  cpu_set_t before_;
  bool changed_;
};

constexpr int32_t kStep = 16;  // pieces have a multiple of this many rows or columns

}  // namespace

const Library& Library::get() {
  static constinit Library library;
  // A fork may leave the guard of a static locked, but not this flag.
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] { library.open(); });
  return library;
}

void Library::open() {
  const OneProcessor alone;
  void* const library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  const auto parallel = symbol<int (*)()>(library, "openblas_get_parallel");
  sgemm_ = symbol<Sgemm>(library, "cblas_sgemm");
  thread_count_ = symbol<int (*)()>(library, "openblas_get_num_threads");
  if (parallel == nullptr || sgemm_ == nullptr || thread_count_ == nullptr) return;
  state_ = parallel() == kParallelOpenMP ? State::kOpenMP : State::kReady;
}

void Library::multiply(int32_t m, int32_t n, int32_t k, const Matrix& a, const Matrix& b,
                       float scale, float* to, int32_t leading) const noexcept {
  const auto transpose = [](const Matrix& x) { return x.column_major ? kTranspose : kNoTranspose; };
  sgemm_(kRowMajor, transpose(a), transpose(b), m, n, k, 1.0f, a.data, a.leading, b.data, b.leading,
         scale, to, leading);
}

void Library::multiply_shared(plugin::Call call, int32_t m, int32_t n, int32_t k, const Matrix& a,
                              const Matrix& b, float scale, float* to, int32_t leading) const {
  const double work = static_cast<double>(m) * n * k;
  if (work < 2 * kPerThread || has_threads()) return multiply(m, n, k, a, b, scale, to, leading);
  const bool by_column = n >= m;
  const int32_t side = by_column ? n : m, steps = (side + kStep - 1) / kStep;
  // Make at most one piece per thread, because every piece packs all of the other operand.
  const yard_host_t* host = call.c()->host;
  const int32_t threads =
      host != nullptr && host->concurrency != nullptr ? host->concurrency(host->self) : 1;
  const auto least = static_cast<int64_t>(kPerThread / (work / steps));
  const int64_t grain = std::max<int64_t>({1, least, (steps + threads - 1) / threads});
  call.parallel_for(steps, grain, [&](int64_t begin, int64_t end) {
    const auto at = static_cast<int32_t>(begin * kStep);
    const int32_t count = std::min(static_cast<int32_t>(end * kStep), side) - at;
    const auto from = [&](const Matrix& x, bool along) {  // `along`: `at` counts rows
      Matrix part = x;
      part.data += along != x.column_major ? int64_t{at} * x.leading : int64_t{at};
      return part;
    };
    if (by_column)
      multiply(m, count, k, a, from(b, false), scale, to + at, leading);
    else
      multiply(count, n, k, from(a, true), b, scale, to + int64_t{at} * leading, leading);
  });
}

}  // namespace yard::openblas
