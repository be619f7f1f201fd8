// SPDX-License-Identifier: Apache-2.0
// Shared by bad_query.cc and the file that selects a case.
#pragma once

#include <yard/plugin.h>

extern const yard_plugin_t* (*const g_case)();  // the code of the plugin's query
