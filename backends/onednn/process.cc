// SPDX-License-Identifier: Apache-2.0
// Forks and OpenMP threads.
#include "process.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>

// oneDNN brings the OpenMP library along; where its threads are of another kind, these are not there.
extern "C" {
__attribute__((weak)) int omp_get_max_threads(void);
__attribute__((weak)) void omp_set_num_threads(int count);
}

namespace yard::onednn {
namespace {

std::atomic<bool> g_forked{false};

}  // namespace

void watch_forks() {
  static constinit std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { g_forked.store(true, std::memory_order_relaxed); });
  });
}

bool forked() noexcept { return g_forked.load(std::memory_order_relaxed); }

ThreadCount::ThreadCount(const yard_host_t* host, int64_t most) noexcept {
  if (omp_get_max_threads == nullptr || omp_set_num_threads == nullptr) return;
  before_ = omp_get_max_threads();
  int64_t limit = std::min<int64_t>(most, before_);
  if (host != nullptr && host->concurrency != nullptr)
    limit = std::min<int64_t>(limit, host->concurrency(host->self));
  value_ = static_cast<int>(std::max<int64_t>(limit, 1));
  if (value_ != before_) omp_set_num_threads(value_);
}

ThreadCount::~ThreadCount() {
  if (value_ != before_) omp_set_num_threads(before_);
}

}  // namespace yard::onednn
