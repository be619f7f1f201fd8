// SPDX-License-Identifier: Apache-2.0
// Linked into the test programs for the address sanitizer. Test programs search for leaks when they
// exit. Programs that they start do not, because a search takes seconds and some tests start a
// hundred programs. Forked children do not either, because they never free the objects of their
// parent.
#include <unistd.h>

#include <cstdlib>

namespace {

const pid_t g_program = ::getpid();

// The sanitizer has read the variable before, so this affects started programs only.
[[maybe_unused]] const int g_set = setenv("ASAN_OPTIONS", "detect_leaks=0", 1);

}  // namespace

// The sanitizer calls this before a search.
extern "C" int __lsan_is_turned_off() { return ::getpid() != g_program ? 1 : 0; }
