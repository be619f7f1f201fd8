// SPDX-License-Identifier: Apache-2.0
// Linked into the test programs for the address sanitizer. They search for leaks at their exit; the programs that they
// start do not: a search takes seconds, and some tests start a hundred programs. Nor do children that they fork: what a
// child leaves behind of its parent is never freed.
#include <unistd.h>

#include <cstdlib>

namespace {

const pid_t g_program = ::getpid();

// The sanitizer has read the variable before.
[[maybe_unused]] const int g_set = setenv("ASAN_OPTIONS", "detect_leaks=0", 1);

}  // namespace

// Asked by the sanitizer before a search.
extern "C" int __lsan_is_turned_off() { return ::getpid() != g_program ? 1 : 0; }
