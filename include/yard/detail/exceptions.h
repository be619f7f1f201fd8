// SPDX-License-Identifier: Apache-2.0
// Macros for builds with -fno-exceptions (docs/guides/calling_ops.md). Not for direct use.
//
// A program may link object files of both kinds. Classes are the same in both, so that either can
// pass them to the other and to the library. Functions whose code differs are marked with
// YARD_MODE_TAG, which gives them other symbols in files without exceptions.
#pragma once

#if __cplusplus < 202002L
#error "Switchyard needs C++20: compile with -std=c++20 or newer"
#endif

#if defined(__cpp_exceptions)
#define YARD_EXCEPTIONS 1
#define YARD_MODE_TAG
#else
#define YARD_EXCEPTIONS 0
#define YARD_MODE_TAG __attribute__((abi_tag("noexceptions")))
#endif
