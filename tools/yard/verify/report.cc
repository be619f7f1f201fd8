// SPDX-License-Identifier: Apache-2.0
#include "verify/report.h"

#include <fmt/format.h>
#include <yard/log.h>

#include <algorithm>
#include <cmath>

#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

Json number_or_null(double v) { return std::isfinite(v) ? Json(v) : Json(); }

Json case_json(const KernelReport::Case& c) {
  return {{"call", c.call},
          {"contents", to_string(c.contents)},
          {"seed", c.seed},
          {"error", number_or_null(c.error)},
          {"what", c.what},
          {"options", text_or_null(c.options)},
          {"weights", text_or_null(c.weights)}};
}

// Turns "window=4, causal=true" into " --option window=4 --option causal=true".
std::string repeated(const char* option, const std::string& list) {
  std::string to;
  for (std::string_view rest = list; !rest.empty();) {
    const size_t end = std::min(rest.find(", "), rest.size());
    to += fmt::format(" {} '{}'", option, rest.substr(0, end));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return to;
}

Json kernel_json(const KernelReport& k) {
  const bool ran = !k.worst.call.empty();
  Json j = {{"op", k.op},
            {"id", k.id},
            {"passed", k.passed},
            {"failed", k.failed},
            {"skipped", k.skipped},
            {"worst_error", ran ? number_or_null(k.worst.error) : Json()},
            {"worst_call", ran ? Json(k.worst.call) : Json()},
            {"declined", k.declined},
            {"expected", k.expected},
            {"backend", k.backend},
            {"kind", to_string(k.kind)},
            {"worst", ran ? case_json(k.worst) : Json()},
            {"failures", Json::array()},
            {"reasons", Json::array()},
            {"runs", k.ran()},
            {"verified", k.verified()}};
  for (const KernelReport::Case& c : k.failures) j["failures"].push_back(case_json(c));
  for (const KernelReport::Reason& r : k.reasons)
    j["reasons"].push_back({{"reason", r.reason}, {"detail", r.detail}, {"count", r.count}});
  return j;
}

// Returns the most frequent reasons of skipped calls: "dtype 120, layout 14".
std::string short_reasons(const KernelReport& k) {
  constexpr size_t kShown = 3;
  std::string to;
  for (size_t i = 0; i < k.reasons.size() && i < kShown; ++i)
    to += fmt::format("{}{} {}", i > 0 ? ", " : "", k.reasons[i].reason, k.reasons[i].count);
  return k.reasons.size() > kShown ? to + ", ..." : to;
}

void print_kernels(const VerifyReport& report) {
  Table table("op|kernel|passed>|failed>|skipped>|declined>|worst error>|not run because");
  for (const KernelReport& k : report.kernels) {
    const bool ran = !k.worst.call.empty();
    table.add({{k.op},
               {k.id},
               {fmt::to_string(k.passed), k.passed > 0 ? Paint::kGood : Paint::kWarning},
               {fmt::to_string(k.failed), k.failed > 0 ? Paint::kBad : Paint::kPlain},
               {fmt::to_string(k.skipped), Paint::kDim},
               {fmt::to_string(k.declined), Paint::kDim},
               {!ran                        ? "-"
                : std::isinf(k.worst.error) ? "wrong"
                                            : fmt::format("{:.3g}", k.worst.error)},
               {short_reasons(k), Paint::kDim}});
  }
  print_out("{}", table.text());
}

void print_failures(const VerifyReport& report, const std::string& file) {
  constexpr size_t kShown = 3;
  for (const KernelReport& k : report.kernels) {
    if (k.failures.empty()) continue;
    print_out("\n{}: {} failed\n", paint(Paint::kBad, k.op + " " + k.id), k.failed);
    for (size_t i = 0; i < k.failures.size() && i < kShown; ++i) {
      const KernelReport::Case& c = k.failures[i];
      print_out("  {}\n    {}\n", printable(c.what), reproducer(file, k.id, c));
    }
    if (k.failed > kShown) print_out("  ... and {} more\n", k.failed - kShown);
  }
}

}  // namespace

// A kernel with state needs `yard verify`, because `yard run` does not take its options.
std::string reproducer(const std::string& file, std::string_view kernel,
                       const KernelReport::Case& c) {
  const std::string before = file.empty() ? "" : fmt::format("YARD_PLUGINS={} ", file);
  if (c.options.empty() && c.weights.empty())
    return fmt::format("{}yard run '{}' --force {} --contents {} --seed {}", before, c.call, kernel,
                       to_string(c.contents), c.seed);
  return fmt::format("{}yard verify --kernel {} --call '{}' --seed {}{}{}", before, kernel, c.call,
                     c.seed, repeated("--option", c.options), repeated("--weight", c.weights));
}

Json to_json(const VerifyReport& report) {
  Json j = Json::array();
  for (const KernelReport& k : report.kernels) j.push_back(kernel_json(k));
  return j;
}

std::string too_few_runs(const KernelReport& k) {
  if (k.passed >= kVerifiedRuns)
    return fmt::format("{} of op {} failed {} times as expected", k.id, k.op, k.expected);
  const std::string why = short_reasons(k);
  return fmt::format("{} of op {} passed {} runs, and {} are required{}{}", k.id, k.op, k.passed,
                     kVerifiedRuns, why.empty() ? "" : "; others were not run: ", why);
}

void print(const VerifyReport& report, const std::string& file) {
  print_kernels(report);
  print_failures(report, file);
  size_t ran = 0, expected = 0;
  for (const KernelReport& k : report.kernels) ran += k.ran(), expected += k.expected;
  print_out("\n{} kernels, {} runs compared, {} failed{}. Errors are in units of the tolerance.\n",
            report.kernels.size(), ran, report.failed(),
            expected > 0 ? fmt::format(", {} failed as expected", expected) : "");
  const auto is_verified = [](const KernelReport& k) { return k.verified(); };
  print_out("{} of {} kernels are verified.\n", std::ranges::count_if(report.kernels, is_verified),
            report.kernels.size());
  for (const KernelReport& k : report.kernels)
    if (!k.verified() && k.failed == 0) print_out("  {}\n", too_few_runs(k));
}

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
  Table table("function|backend|samples>|accepted>|refused>|verifier");
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
  print_out("{}", table.text());
  for (const FunctionReport& f : report.functions)
    for (const std::string& p : f.problems)
      print_out("\n{} {}: {}\n", paint(Paint::kBad, f.function), f.backend, printable(p));
  print_out("\n{} implementations of functions, {} broken verifiers, {} not checked.\n",
            report.functions.size(), report.broken(), unchecked);
}

std::string unchecked_function(const VerifyReport& report) {
  for (const FunctionReport& f : report.functions)
    if (f.state == State::kNotChecked)
      return fmt::format("backend '{}' was not checked for function '{}': it {}", f.backend,
                         f.function, f.why);
  return {};
}

}  // namespace yard::tool
