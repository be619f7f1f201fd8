/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the layout of every shipped version of the ABI from a C11 compiler. Compiling is the test.
 */
#include "layout_test.h"

#include "layout_v0.inc"

int main(void) { return 0; }
