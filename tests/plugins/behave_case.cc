// SPDX-License-Identifier: Apache-2.0
// Selects the behaviour of a plugin from behave.cc: the build defines when it acts (AT) and the
// function there that acts (DO).
#include "behave.h"

namespace acts {
void DO(char* end);
}

const char* const g_when = AT;
void (*const g_act)(char* end) = acts::DO;
