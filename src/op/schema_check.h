// SPDX-License-Identifier: Apache-2.0
// Whether a schema that is well formed also makes sense.
#pragma once

#include "op/scanner.h"
#include "op/schema.h"

namespace yard::op {

// Reports the first thing that is wrong at its place in the text the scanner read; false if any is.
bool check_schema(const Schema& schema, Scanner& in);

}  // namespace yard::op
