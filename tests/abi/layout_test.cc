// SPDX-License-Identifier: Apache-2.0
// Checks the layout from a C++20 compiler. Compiling is the test.
#include "layout_test.h"

#include "layout_v0.inc"

int main() { return 0; }
