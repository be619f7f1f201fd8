// SPDX-License-Identifier: Apache-2.0
// Modes of the program's own: another way to say which kernel serves a call.
//
//   yard::ModeProvider table;
//   table.reads = {"rows"};                                    // nothing else of the call matters to it
//   table.plan = [](const yard::ModeCall& c) -> std::vector<std::string> {
//     if (c.read[0] < 64) return {"reference.cpp"};
//     return {};                                               // no answer: as in mode dynamic
//   };
//   runtime.add_mode("by_table", table).or_throw();
//
// Such a mode is named like any other: in the rule file (`settings.mode`, `settings.modes`), by a scope
// (Scope::mode) or by a call (Options::mode_name). It orders kernels that are allowed, able and healthy, and
// bypasses neither deny nor capability. Those it does not name follow in the order of mode dynamic, so a kernel
// that fails is followed by others and never run twice.
#pragma once

#include <yard/plugin.h>
#include <yard/policy.h>
#include <yard/tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace yard {

// A kernel that could serve the call.
struct ModeCandidate {
  std::string_view id;
  std::string_view vendor;  // empty: nobody's
  Kind kind = Kind::kDefault;
  double priority = 0;
  double estimate_ns = -1;  // what it expects to take; negative: it does not say
};

// What ModeCall::read has where a call lacks a field.
inline constexpr int64_t kFieldAbsent = INT64_MIN;

// A call that needs a plan. Everything is borrowed for as long as plan() runs.
struct ModeCall {
  std::string_view op;
  std::span<const int64_t> read;       // the fields of ModeProvider::reads, in that order
  std::span<const yard_value_t> args;  // metadata only: tensors have no data
  uint32_t flags = 0;                  // YARD_CALL_*
  Device device;
  std::span<const std::pair<std::string, std::string>> labels;
  std::span<const ModeCandidate> candidates;  // in the order of mode dynamic; at least one
};

// Has one of the two functions, or both. They are called by whatever thread needs a plan, also by several at once,
// must give the same answer to the same question, and must not change the runtime: that is the error
// would_deadlock. What they throw counts as no answer and is logged.
struct ModeProvider {
  // What the answer depends on beside the op, the candidates, device, flags and labels: fields such as `rows`,
  // `hidden`, `x.rank`, an int, bool or enum argument; or arguments, which are then read whole. Calls that are
  // alike in all of these share a plan. One that an op lacks is absent there. Unset: the answer depends on
  // everything, and calls share a plan only if they are the same.
  std::optional<std::vector<std::string>> reads;

  // Plan for a call: ids of kernels, best first. Empty: no answer. Ids of kernels that cannot serve the call are
  // passed over.
  std::function<std::vector<std::string>(const ModeCall& call)> plan;

  // Kernel for a CallSpec (docs/reference/call_spec.md); asked where there is no plan(), or it gave no answer. Empty:
  // no answer.
  std::function<std::string(std::string_view call_spec)> kernel;
};

}  // namespace yard
