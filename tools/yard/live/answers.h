// SPDX-License-Identifier: Apache-2.0
// Answers of a running process as the types of the library. Members that are missing or of another
// type count as nothing, because a process of another version may know more or less.
#pragma once

#include <yard/stats.h>

#include "json.h"

namespace yard::tool {

// From an answer to `stats`.
RuntimeStats read_stats(const Json& answer);

}  // namespace yard::tool
