// SPDX-License-Identifier: Apache-2.0
// Selects the CASE of a plugin from bad_query.cc.
#include "bad_query.h"

namespace cases {
const yard_plugin_t* CASE();
}

const yard_plugin_t* (*const g_case)() = cases::CASE;
