// SPDX-License-Identifier: Apache-2.0
// Calls to try rules on before they are in force, where nobody has recorded any.
//
//   yard::Config config = yard::read_config("rules.yaml").config;
//   for (const std::string& call : yard::sample_calls(runtime, "rms_norm", {&config, 1}).value())
//     std::puts(runtime.resolve(call).value().kernel.c_str());
//
// Made from the op's schema: every dtype, small and large, layouts, flags, with and without optionals. For each
// rule of the configs that is about the op, a call for which it holds, and others just beside it: one field
// at a time has another value, numbers by one. The same configs give the same calls.
#pragma once

#include <yard/config.h>
#include <yard/runtime.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

// CallSpecs in canonical form, each once, at most `limit`. Fails when there is no such op. Opens the plugin
// that announces the op. Any thread.
YARD_API Result<std::vector<std::string>> sample_calls(const Runtime& runtime, std::string_view op,
                                                       std::span<const Config> configs = {},
                                                       size_t limit = 2000);

// Rules and score entries in force that hold for none of these calls, as "'name', dispatch_rules[2] (rules.yaml:7)":
// what has been tried says nothing about them. Calls that cannot be read count for nothing. Any thread.
YARD_API std::vector<std::string> unmet_rules(const Runtime& runtime,
                                              std::span<const std::string> calls);

}  // namespace yard
