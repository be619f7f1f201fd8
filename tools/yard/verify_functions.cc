// SPDX-License-Identifier: Apache-2.0
#include "verify_functions.h"

#include <fmt/format.h>

#include "table.h"
#include "terminal.h"

namespace yard::tool {
namespace {

using State = FunctionReport::State;

Cell state_cell(const FunctionReport& f) {
  switch (f.state) {
    case State::kPassed: return {"passed", Paint::kGood};
    case State::kBroken: return {"broken", Paint::kBad};
    case State::kNotChecked: return {"not checked: " + f.why, Paint::kWarning};
    case State::kNoVerifier: return {"accepts every call: it has no verifier", Paint::kDim};
  }
  return {"?"};
}

}  // namespace

Json function_reports_json(const VerifyReport& report) {
  Json to = Json::array();
  for (const FunctionReport& f : report.functions)
    to.push_back({{"function", f.function},
                  {"backend", f.backend},
                  {"state", to_string(f.state)},
                  {"samples", f.samples},
                  {"accepted", f.accepted},
                  {"refused", f.refused},
                  {"broken", f.broken},
                  {"problems", f.problems},
                  {"why", text_or_null(f.why)}});
  return to;
}

void print_function_reports(const VerifyReport& report) {
  if (report.functions.empty()) return;
  Table table({{"function"},
               {"backend"},
               {"samples", Align::kRight},
               {"accepted", Align::kRight},
               {"refused", Align::kRight},
               {"verifier"}});
  size_t unchecked = 0;
  for (const FunctionReport& f : report.functions) {
    unchecked += f.state == State::kNotChecked;
    table.add({{f.function},
               {f.backend},
               {fmt::to_string(f.samples)},
               {fmt::to_string(f.accepted)},
               {fmt::to_string(f.refused)},
               state_cell(f)});
  }
  fmt::print("{}", table.text());
  for (const FunctionReport& f : report.functions)
    for (const std::string& p : f.problems)
      fmt::print("\n{} {}: {}\n", paint(Paint::kBad, f.function), f.backend, p);
  fmt::print("\n{} implementations of functions, {} broken verifiers, {} not checked.\n",
             report.functions.size(), report.broken(), unchecked);
}

std::string unchecked_function(const VerifyReport& report) {
  for (const FunctionReport& f : report.functions)
    if (f.state == State::kNotChecked)
      return fmt::format("the verifier of backend '{}' for function '{}' was not checked: {}",
                         f.backend, f.function, f.why);
  return {};
}

}  // namespace yard::tool
