// SPDX-License-Identifier: Apache-2.0
// One plugin of bad_query.cc. The build names the CASE.
#include "bad_query.h"

namespace cases {
const yard_plugin_t* CASE();
}

const yard_plugin_t* (*const g_case)() = cases::CASE;
