/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin whose answer comes from a library. */
int helper_answer(void);
#define NAME "needs_helper"
#define OP "helped"
#define ANSWER helper_answer()
#include "answer.c"
