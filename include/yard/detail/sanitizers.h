// SPDX-License-Identifier: Apache-2.0
// Which sanitizer this is compiled for, whichever compiler does it: g++ defines these names, clang has features.
// For tests, which do less under one, and for fences, which the thread sanitizer does not know.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define YARD_UNDER_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define YARD_UNDER_TSAN 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define YARD_UNDER_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define YARD_UNDER_TSAN 1
#endif
#endif
