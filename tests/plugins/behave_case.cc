// SPDX-License-Identifier: Apache-2.0
// One plugin of behave.cc. The build says when (AT) it does what (DO), by the name of a function there.
#include "behave.h"

namespace acts {
void DO(char* end);
}

const char* const g_when = AT;
void (*const g_act)(char* end) = acts::DO;
