// SPDX-License-Identifier: Apache-2.0
#include "base/testing_allocations.h"

#include <yard/abi.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace yard::base {
namespace {

thread_local constinit bool t_armed = false, t_failed = false, t_all_later = false;
thread_local constinit uint64_t t_before = 0;
// These concern all threads but one.
constinit std::atomic<bool> g_armed{false}, g_failed{false};
constinit std::atomic<bool> g_all_later{false};
constinit std::atomic<int64_t> g_before{0};
thread_local constinit bool t_spared = false;

bool other_fails() noexcept {
  if (!g_armed.load(std::memory_order_relaxed) || t_spared) return false;
  const int64_t left = g_before.fetch_sub(1);
  if (left > 0 || (left < 0 && !g_all_later)) return false;
  errno = ENOMEM;
  g_failed = true;
  return true;
}

// Returns whether this allocation must fail.
bool fails() noexcept {
  if (!t_armed) return other_fails();
  if (t_before > 0) return --t_before, false;
  if (t_failed && !t_all_later) return false;
  errno = ENOMEM;  // pthread_create() aborts without it
  return t_failed = true;
}

}  // namespace

FailingAllocations::FailingAllocations(uint64_t before, Which which, Where where) noexcept {
  if (where == kOtherThreads) {
    g_before = static_cast<int64_t>(before), g_all_later = which == kAllLater, g_failed = false;
    t_spared = true;
    g_armed = true;
    return;
  }
  t_before = before, t_all_later = which == kAllLater, t_failed = false;
  t_armed = true;
}

bool FailingAllocations::end() noexcept {
  if (std::exchange(t_spared, false)) {
    g_armed = false;
    return g_failed;
  }
  t_armed = false;
  return t_failed;
}

}  // namespace yard::base

using yard::base::fails;

#if defined(YARD_UNDER_ASAN) || defined(YARD_UNDER_TSAN)

// A sanitizer owns malloc, so only C++ allocations fail.
namespace {

void* take(size_t n) {
  void* const memory = fails() ? nullptr : std::malloc(n);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* take(size_t n, std::align_val_t a) {
  const auto to = static_cast<size_t>(a);
  void* const memory = fails() ? nullptr : std::aligned_alloc(to, (n + to - 1) / to * to);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t n) { return take(n); }
void* operator new[](size_t n) { return take(n); }
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(n);
}
void* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(n);
}
void* operator new(size_t n, std::align_val_t a) { return take(n, a); }
void* operator new[](size_t n, std::align_val_t a) { return take(n, a); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }

#else

// All allocations fail, in C and C++, because this malloc is found before the C library's.
extern "C" {

void* __libc_malloc(size_t) noexcept;
void* __libc_calloc(size_t, size_t) noexcept;
void* __libc_realloc(void*, size_t) noexcept;
void* __libc_memalign(size_t, size_t) noexcept;

void* malloc(size_t n) noexcept { return fails() ? nullptr : __libc_malloc(n); }
void* calloc(size_t n, size_t m) noexcept { return fails() ? nullptr : __libc_calloc(n, m); }
void* realloc(void* p, size_t n) noexcept { return fails() ? nullptr : __libc_realloc(p, n); }
void* memalign(size_t a, size_t n) noexcept { return fails() ? nullptr : __libc_memalign(a, n); }
void* aligned_alloc(size_t a, size_t n) noexcept { return memalign(a, n); }
int posix_memalign(void** p, size_t a, size_t n) noexcept {
  void* const memory = memalign(a, n);
  if (memory == nullptr) return ENOMEM;
  *p = memory;
  return 0;
}

}  // extern "C"

#endif
