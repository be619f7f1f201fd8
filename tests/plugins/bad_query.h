// SPDX-License-Identifier: Apache-2.0
// What bad_query.cc and the file that names a case know of each other.
#pragma once

#include <yard/plugin.h>

extern const yard_plugin_t* (*const g_case)();  // what the plugin's query does
