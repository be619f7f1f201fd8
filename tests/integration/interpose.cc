// SPDX-License-Identifier: Apache-2.0
#include "interpose.h"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <cstdarg>
#include <cstddef>

namespace yard::testing {
namespace {
thread_local constinit Counts t_counts;
thread_local constinit bool t_counting = false;
}  // namespace

void begin_counting() noexcept {
  t_counts = {};
  t_counting = true;
}
Counts end_counting() noexcept {
  t_counting = false;
  return t_counts;
}

namespace {
void note(uint64_t Counts::*what) noexcept {
  if (t_counting) ++(t_counts.*what);
}
// Returns the next definition of a function, which is the C library's.
template <class F>
F* next(F*& known, const char* name) noexcept {
  if (known == nullptr) known = reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
  return known;
}
}  // namespace

}  // namespace yard::testing

using yard::testing::Counts;
using yard::testing::next;
using yard::testing::note;

extern "C" {

void* __libc_malloc(size_t) noexcept;
void* __libc_calloc(size_t, size_t) noexcept;
void* __libc_realloc(void*, size_t) noexcept;
void* __libc_memalign(size_t, size_t) noexcept;
void __libc_free(void*) noexcept;

void* malloc(size_t n) noexcept { return note(&Counts::allocations), __libc_malloc(n); }
void* calloc(size_t n, size_t m) noexcept {
  return note(&Counts::allocations), __libc_calloc(n, m);
}
void* realloc(void* p, size_t n) noexcept {
  return note(&Counts::allocations), __libc_realloc(p, n);
}
void* memalign(size_t a, size_t n) noexcept {
  return note(&Counts::allocations), __libc_memalign(a, n);
}
void* aligned_alloc(size_t a, size_t n) noexcept { return memalign(a, n); }
int posix_memalign(void** p, size_t a, size_t n) noexcept {
  *p = memalign(a, n);
  return *p != nullptr ? 0 : 12;
}
void free(void* p) noexcept { note(&Counts::frees), __libc_free(p); }

#define YARD_INTERPOSE(result, name, parameters, arguments, counter) \
  result name parameters noexcept {                                  \
    static result(*known) parameters = nullptr;                      \
    note(&Counts::counter);                                          \
    return next(known, #name) arguments;                             \
  }

YARD_INTERPOSE(int, pthread_mutex_lock, (pthread_mutex_t * m), (m), locks)
YARD_INTERPOSE(int, pthread_mutex_trylock, (pthread_mutex_t * m), (m), locks)
YARD_INTERPOSE(int, pthread_mutex_unlock, (pthread_mutex_t * m), (m), locks)
YARD_INTERPOSE(int, pthread_rwlock_rdlock, (pthread_rwlock_t * l), (l), locks)
YARD_INTERPOSE(int, pthread_rwlock_wrlock, (pthread_rwlock_t * l), (l), locks)
YARD_INTERPOSE(int, pthread_rwlock_tryrdlock, (pthread_rwlock_t * l), (l), locks)
YARD_INTERPOSE(int, pthread_rwlock_trywrlock, (pthread_rwlock_t * l), (l), locks)
YARD_INTERPOSE(int, pthread_rwlock_unlock, (pthread_rwlock_t * l), (l), locks)
YARD_INTERPOSE(int, pthread_spin_lock, (pthread_spinlock_t * l), (l), locks)
YARD_INTERPOSE(int, pthread_spin_trylock, (pthread_spinlock_t * l), (l), locks)
YARD_INTERPOSE(int, pthread_cond_signal, (pthread_cond_t * c), (c), locks)
YARD_INTERPOSE(int, pthread_cond_broadcast, (pthread_cond_t * c), (c), locks)
YARD_INTERPOSE(int, clock_gettime, (clockid_t c, struct timespec* t), (c, t), clocks)
YARD_INTERPOSE(char*, getenv, (const char* n), (n), environment)
YARD_INTERPOSE(char*, secure_getenv, (const char* n), (n), environment)

#undef YARD_INTERPOSE

long syscall(long number, ...) noexcept {
  static long (*known)(long, ...) = nullptr;
  note(&Counts::syscalls);
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& v : a) v = va_arg(list, long);
  va_end(list);
  return next(known, "syscall")(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
