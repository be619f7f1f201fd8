// SPDX-License-Identifier: Apache-2.0
// Runs tests on threads that std::thread does not offer.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <functional>

namespace yard::testing {

// Runs f on a thread with a stack of `bytes`, or of the default size if 0.
inline void on_stack_of(size_t bytes, const std::function<void()>& f) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  if (bytes != 0) {
    ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  }
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* body) -> void* {
                  (*static_cast<const std::function<void()>*>(body))();
                  return nullptr;
                },
                const_cast<std::function<void()>*>(&f)),
            0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}
// The thread may end through pthread_exit.
inline void on_thread(const std::function<void()>& f) { on_stack_of(0, f); }

}  // namespace yard::testing
