// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <vector>

// OpenMP functions. They are null if oneDNN was built for another kind of threads.
extern "C" {
__attribute__((weak)) int omp_get_max_threads(void);
__attribute__((weak)) void omp_set_num_threads(int count);
}

namespace yard::onednn {
namespace {

std::atomic<bool> g_forked{false};

thread_local constinit int t_threads = 1;

}  // namespace

bool can_start(int count) noexcept {
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;  // holds all threads until the last has started
  const auto wait = [](void* of) -> void* {
    pthread_mutex_lock(static_cast<pthread_mutex_t*>(of));
    pthread_mutex_unlock(static_cast<pthread_mutex_t*>(of));
    return nullptr;
  };
  pthread_mutex_lock(&gate);
  std::vector<pthread_t> started;
  try {
    started.reserve(static_cast<size_t>(count));
  } catch (...) {
    count = 0;
  }
  for (pthread_t t; static_cast<int>(started.size()) < count; started.push_back(t))
    if (pthread_create(&t, nullptr, wait, &gate) != 0) break;
  pthread_mutex_unlock(&gate);
  for (const pthread_t t : started) pthread_join(t, nullptr);
  return count > 0 && static_cast<int>(started.size()) == count;
}

void watch_forks() {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] {
    pthread_atfork(nullptr, nullptr, [] { g_forked.store(true, std::memory_order_relaxed); });
  });
}

void stop_profiling() noexcept {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] {
    for (const char* const variable : {"ONEDNN_JIT_PROFILE", "DNNL_JIT_PROFILE"})
      if (std::getenv(variable) != nullptr) return;
    dnnl_set_jit_profiling_flags(DNNL_JIT_PROFILE_NONE);
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
  // OpenMP keeps threads for each caller, and ends the process if it cannot start one.
  if (value_ > t_threads) {
    if (can_start(value_ - t_threads))
      t_threads = value_;
    else
      value_ = t_threads;
  }
  if (value_ != before_) omp_set_num_threads(value_);
}

ThreadCount::~ThreadCount() {
  if (value_ != before_) omp_set_num_threads(before_);
}

}  // namespace yard::onednn
