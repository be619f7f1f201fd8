/* SPDX-License-Identifier: Apache-2.0 */
/* The library that needs_helper.c needs. */
__attribute__((visibility("default"))) int helper_answer(void);
int helper_answer(void) { return 71; }
