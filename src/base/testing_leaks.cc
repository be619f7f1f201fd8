// SPDX-License-Identifier: Apache-2.0
// Linked into the test programs for the address sanitizer. They search for leaks at their exit; the programs that they
// start do not: a search takes seconds, and some tests start a hundred programs.
#include <cstdlib>

namespace {

// The sanitizer has read the variable before.
[[maybe_unused]] const int g_set = setenv("ASAN_OPTIONS", "detect_leaks=0", 1);

}  // namespace
