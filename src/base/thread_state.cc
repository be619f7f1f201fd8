// SPDX-License-Identifier: Apache-2.0
#include "base/reclaimer.h"

#include <pthread.h>
#include <yard/bound.h>

#include <algorithm>

namespace yard::detail {
thread_local constinit uintptr_t t_stack_limit = UINTPTR_MAX;
}

namespace yard::base {
namespace {

constexpr size_t kReserve = 256 << 10;
thread_local constinit uintptr_t t_stack_end = 0;

void find_limit() noexcept {
  pthread_attr_t attributes;
  detail::t_stack_limit = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* end = nullptr;
  size_t size = 0, guard = 0;
  if (pthread_attr_getstack(&attributes, &end, &size) == 0 &&
      pthread_attr_getguardsize(&attributes, &guard) == 0) {
    t_stack_end = reinterpret_cast<uintptr_t>(end);
    detail::t_stack_limit = t_stack_end + guard + std::min(kReserve, size / 4);
  }
  pthread_attr_destroy(&attributes);
}

}  // namespace

bool stack_is_low() noexcept {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (detail::t_stack_limit == UINTPTR_MAX) find_limit();
  return here < detail::t_stack_limit && here >= t_stack_end;
}

}  // namespace yard::base
