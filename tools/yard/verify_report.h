// SPDX-License-Identifier: Apache-2.0
// What `yard verify` prints.
#pragma once

#include <yard/verify.h>

#include <string>

#include "json.h"

namespace yard::tool {

// A list with one entry for each kernel.
Json to_json(const VerifyReport& report);
// A table, and the first failures with the command that reproduces each; `before` precedes the command.
void print(const VerifyReport& report, const std::string& before = {});

}  // namespace yard::tool
