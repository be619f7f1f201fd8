// SPDX-License-Identifier: Apache-2.0
// What `yard verify` prints.
#pragma once

#include <yard/verify.h>

#include <string>

#include "json.h"

namespace yard::tool {

// A list with one entry for each kernel.
Json to_json(const VerifyReport& report);
// "vendor.acme of op softmax passed 42 runs, and 100 are required: dtype 120, layout 8".
std::string too_few_runs(const KernelReport& kernel);
// A table, and the first failures with the command that reproduces each; `before` precedes the command.
void print(const VerifyReport& report, const std::string& before = {});

// A list with one entry for each backend's verifier of a function.
Json function_reports_json(const VerifyReport& report);
// A table, the broken verifiers, and a summary line. Nothing if there are none.
void print_function_reports(const VerifyReport& report);
// The first that was not checked, and why; empty if all were.
std::string unchecked_function(const VerifyReport& report);

}  // namespace yard::tool
