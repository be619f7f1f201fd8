// SPDX-License-Identifier: Apache-2.0
// Makes the allocator of the address sanitizer, and its list of threads, survive a fork. For tests
// that fork while other threads allocate, begin and end.
//
// The C library takes its allocator's locks around fork, so that a child finds them free. The
// sanitizer's allocator does so only from LLVM 17 on. With older versions and GCC, a child may wait
// for ever in its next allocation, if the fork interrupted an allocation of another thread. Here
// every allocation passes a door that fork shuts, so a fork comes between two allocations. Fork
// also takes the lock of the list of threads, which the search for leaks needs.
//
// The sanitizer does all the rest, but cannot tell any more whether memory came from new or from
// malloc. This file is compiled without the sanitizer, which allocates before it is ready.
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>

#include <cstddef>
#include <cstdint>
#include <new>

extern "C" {
void* __interceptor_malloc(size_t);
void* __interceptor_calloc(size_t, size_t);
void* __interceptor_realloc(void*, size_t);
void* __interceptor_memalign(size_t, size_t);
int __interceptor_posix_memalign(void**, size_t, size_t);
void __interceptor_free(void*);
void __lsan_disable(void);
void __lsan_enable(void);
}
namespace __lsan {  // their names up to LLVM 16
[[gnu::weak]] void LockThreadRegistry();
[[gnu::weak]] void UnlockThreadRegistry();
}  // namespace __lsan

namespace {

// Not std::atomic, because the linker may take the copy of an inline function from a file that is
// compiled with the sanitizer.
int g_inside = 0;
int g_shut = 0;
thread_local bool t_forking = false;  // its fork handlers may allocate, other threads may not

bool is_shut() { return __atomic_load_n(&g_shut, __ATOMIC_SEQ_CST) != 0; }
void leave() { __atomic_fetch_sub(&g_inside, 1, __ATOMIC_SEQ_CST); }

class Door {
 public:
  Door() noexcept {
    if (t_forking) return;
    for (;; leave()) {
      while (is_shut()) sched_yield();
      __atomic_fetch_add(&g_inside, 1, __ATOMIC_SEQ_CST);
      if (!is_shut()) break;
    }
    passed_ = true;
  }
  ~Door() {
    if (passed_) leave();
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

 private:
  bool passed_ = false;
};

// Two threads may fork, but only one at a time.
void before_fork() {
  while (__atomic_exchange_n(&g_shut, 1, __ATOMIC_SEQ_CST) != 0) sched_yield();
  t_forking = true;
  while (__atomic_load_n(&g_inside, __ATOMIC_SEQ_CST) != 0) sched_yield();
  if (__lsan::LockThreadRegistry != nullptr) __lsan::LockThreadRegistry();
}
void in_parent() {
  if (__lsan::UnlockThreadRegistry != nullptr) __lsan::UnlockThreadRegistry();
  t_forking = false;
  __atomic_store_n(&g_shut, 0, __ATOMIC_SEQ_CST);
}
void in_child() {
  __atomic_store_n(&g_inside, 0, __ATOMIC_SEQ_CST);  // the parent's threads are gone
  in_parent();
}

[[gnu::constructor]] void watch() { pthread_atfork(before_fork, in_parent, in_child); }

// The search for leaks ignores memory of the dynamic linker, which it recognises by the caller of
// the allocator. The caller is this file now.
class Caller {
 public:
  explicit Caller(const void* address) noexcept : is_linker_(linker_holds(address)) {
    if (is_linker_) __lsan_disable();
  }
  ~Caller() {
    if (is_linker_) __lsan_enable();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

 private:
  static bool linker_holds(const void* address) noexcept {
    static const uintptr_t begin = getauxval(AT_BASE);
    static const uintptr_t size = size_of_linker(begin);
    return reinterpret_cast<uintptr_t>(address) - begin < size;
  }
  static uintptr_t size_of_linker(uintptr_t begin) noexcept {
    if (begin == 0) return 0;  // linked statically
    const auto* file = reinterpret_cast<const ElfW(Ehdr)*>(begin);
    const auto* parts = reinterpret_cast<const ElfW(Phdr)*>(begin + file->e_phoff);
    uintptr_t size = 0;
    for (int i = 0; i < file->e_phnum; ++i)
      if (parts[i].p_type == PT_LOAD && parts[i].p_vaddr + parts[i].p_memsz > size)
        size = parts[i].p_vaddr + parts[i].p_memsz;
    return size;
  }
  const bool is_linker_;
};

void* aligned(size_t size, size_t alignment) noexcept {
  const Door door;
  return __interceptor_memalign(alignment, size);
}

}  // namespace

extern "C" {
void* malloc(size_t size) noexcept {
  const Door door;
  const Caller caller(__builtin_return_address(0));
  return __interceptor_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  const Door door;
  const Caller caller(__builtin_return_address(0));
  return __interceptor_calloc(count, size);
}
void* realloc(void* memory, size_t size) noexcept {
  const Door door;
  const Caller caller(__builtin_return_address(0));
  return __interceptor_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) noexcept { return aligned(size, alignment); }
void* aligned_alloc(size_t alignment, size_t size) noexcept { return aligned(size, alignment); }
int posix_memalign(void** to, size_t alignment, size_t size) noexcept {
  const Door door;
  return __interceptor_posix_memalign(to, alignment, size);
}
void free(void* memory) noexcept {
  const Door door;
  __interceptor_free(memory);
}
}

namespace {

void* must(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
size_t of(std::align_val_t a) { return static_cast<size_t>(a); }

}  // namespace

void* operator new(size_t n) { return must(malloc(n)); }
void* operator new[](size_t n) { return must(malloc(n)); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return malloc(n); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return malloc(n); }
void* operator new(size_t n, std::align_val_t a) { return must(aligned(n, of(a))); }
void* operator new[](size_t n, std::align_val_t a) { return must(aligned(n, of(a))); }
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return aligned(n, of(a));
}
void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return aligned(n, of(a));
}
void operator delete(void* p) noexcept { free(p); }
void operator delete[](void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
void operator delete[](void* p, size_t) noexcept { free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { free(p); }
void operator delete(void* p, std::align_val_t) noexcept { free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { free(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { free(p); }
