// SPDX-License-Identifier: Apache-2.0
// What behave.cc and the file that names a behaviour know of each other.
#pragma once

extern const char* const g_when;        // never, load, query, start, run, destroy, stop or close
extern void (*const g_act)(char* end);  // with the end of the output of a run, else null
