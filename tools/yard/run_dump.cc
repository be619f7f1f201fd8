// SPDX-License-Identifier: Apache-2.0
#include "run_dump.h"

#include <fmt/format.h>
#include <yard/verify.h>

#include <cmath>

#include "json.h"
#include "terminal.h"

namespace yard::tool {
namespace {

std::string figures(double v) { return std::isnan(v) ? "nan" : fmt::format("{:.9g}", v); }

// Numbers that JSON cannot represent are printed as text.
Json number_or_text(double v) { return std::isfinite(v) ? Json(v) : Json(figures(v)); }

Json worst(const std::string& where, double found, double expected, double error) {
  if (where.empty()) return Json();
  return {{"element", where},
          {"found", number_or_text(found)},
          {"expected", number_or_text(expected)},
          {"error", number_or_text(error)}};
}

Json replay_json(const std::string& path, const CanaryDump& dump, const CanaryReplay& r) {
  const Difference& d = r.difference;
  const CanaryMismatch& m = dump.mismatch;
  Json j = {
      {"dump", path},
      {"op", r.op},
      {"call", r.call},
      {"kernel", r.kernel},
      {"against", r.against},
      {"ok", r.ok()},
      {"worst", worst(d.worst, d.worst_found, d.worst_expected, d.ratio)},
      {"max_abs_error", number_or_text(d.max_abs)},
      {"max_rel_error", number_or_text(d.max_rel)},
      {"equal_bits", r.status.ok() && d.equal_bits},
      {"damage", text_or_null(r.damage)},
      {"then", {{"kernel", m.kernel}, {"worst", worst(m.worst, m.found, m.expected, m.error)}}}};
  if (!r.status.ok()) j["error"] = r.status.to_string();
  return j;
}

void print_replay(const CanaryDump& dump, const CanaryReplay& r) {
  const auto line = [](const char* what, const std::string& text) {
    fmt::print("  {:<10} {}\n", what, text);
  };
  const Difference& d = r.difference;
  fmt::print("{}\n", r.call);
  line("kernel", paint(Paint::kBold, r.kernel));
  line("then", fmt::format("{}: {}", dump.mismatch.kernel, to_string(dump.mismatch)));
  if (!r.damage.empty()) line("memory", paint(Paint::kBad, "it " + r.damage));
  if (!r.status.ok()) return line("now", paint(Paint::kBad, r.status.to_string()));
  if (d.equal_bits) return line("now", paint(Paint::kGood, "equal bits") + " (" + r.against + ")");
  line("now", paint(d.within ? Paint::kGood : Paint::kBad,
                    d.within ? "within tolerance" : "beyond tolerance") +
                  " (" + r.against + ")");
  if (d.worst.empty()) return;
  line("worst", fmt::format("{} is {} where {} has {} ({} times the tolerance)", d.worst,
                            figures(d.worst_found), r.against, figures(d.worst_expected),
                            fmt::format("{:.3g}", d.ratio)));
}

}  // namespace

int run_dump(const std::string& path, const std::string& kernel, bool json) {
  const auto dump = read_canary_dump(path);
  if (!dump.ok()) return fail(kUsage, dump.status());
  const auto again = replay(Runtime::shared(), *dump, kernel);
  if (!again.ok()) return fail(kUsage, again.status());
  if (json)
    fmt::print(
        "{}\n",
        replay_json(path, *dump, *again).dump(2, ' ', false, Json::error_handler_t::replace));
  else
    print_replay(*dump, *again);
  return again->ok() ? kOk : kFailed;
}

}  // namespace yard::tool
