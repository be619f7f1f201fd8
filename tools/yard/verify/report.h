// SPDX-License-Identifier: Apache-2.0
// Prints the reports of `yard verify`.
#pragma once

#include <yard/verify.h>

#include <string>

#include "json.h"

namespace yard::tool {

Json to_json(const VerifyReport& report);
// Returns "vendor.acme of op softmax passed 42 runs, and 100 are required: dtype 120, layout 8".
std::string too_few_runs(const KernelReport& kernel);
// Returns a command that repeats a kernel's call. `file` is the plugin, or empty.
std::string reproducer(const std::string& file, std::string_view kernel,
                       const KernelReport::Case& c);
// Prints a table, and the first failures with the commands that reproduce them.
void print(const VerifyReport& report, const std::string& file);

Json function_reports_json(const VerifyReport& report);
// Prints a table, the broken verifiers, and a summary line. Prints nothing without functions.
void print_function_reports(const VerifyReport& report);
// Returns the first verifier that was not checked and the reason. Empty if all were checked.
std::string unchecked_function(const VerifyReport& report);

}  // namespace yard::tool
