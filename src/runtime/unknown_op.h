// SPDX-License-Identifier: Apache-2.0
// The answer to a name that no op has.
#pragma once

#include <yard/status.h>

#include <string_view>

#include "dispatch/snapshot.h"

namespace yard::runtime {

// Names the nearest op there is.
Status unknown_op(const dispatch::Snapshot& snapshot, std::string_view name);

}  // namespace yard::runtime
