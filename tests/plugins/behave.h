// SPDX-License-Identifier: Apache-2.0
// Shared by behave.cc and the file that selects a behaviour.
#pragma once

extern const char* const g_when;        // never, load, query, start, run, destroy, stop or close
extern void (*const g_act)(char* end);  // gets the end of the output of a run, else null
