// SPDX-License-Identifier: Apache-2.0
// yard run: makes inputs, runs a call, and shows which kernel ran, how fast it was, and how much
// the results differ from the reference.
#include <fmt/format.h>
#include <yard/call_spec.h>
#include <yard/log.h>
#include <yard/runtime.h>
#include <yard/verify.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "arguments.h"
#include "commands.h"
#include "config/file.h"
#include "json.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

constexpr int kDefaultRuns = 100;
constexpr auto kDefaultTime = std::chrono::milliseconds(500);

struct RunQuestion {
  std::string call, config;
  std::string from, kernel;  // a dump, and the kernel to run it with
  PolicyFlags policy;
  uint64_t seed = 1;
  Contents contents = Contents::kNormal;
  int repeat = 0;  // if 0, runs for kDefaultTime
  bool json = false;
};

struct Outcome {
  Status status;
  std::string kernel;
  int attempts = 0;
  size_t runs = 0;
  double median_ns = 0, gb_per_s = 0;
  std::string reference;     // empty if no reference kernel could run
  std::string no_reference;  // why there is no reference
  Difference difference;
  std::string damage;  // memory that the kernel must not change, but did
  bool ok() const {
    return status.ok() && damage.empty() && (reference.empty() || difference.within);
  }
};

// Runs the call repeatedly on restored inputs. Reports the median time of the kernel alone.
void time_call(const RunQuestion& q, const ParsedCall& call, CallTensors& data, Options& options,
               Outcome& out) {
  ResultRecord record;
  options.result = &record;
  std::vector<double> times;
  const auto start = std::chrono::steady_clock::now();
  const auto enough = [&] {
    if (q.repeat > 0) return times.size() >= static_cast<size_t>(q.repeat);
    return times.size() >= kDefaultRuns ||
           (!times.empty() && std::chrono::steady_clock::now() - start > kDefaultTime);
  };
  // The first run creates the plan and warms the caches, so its time is not counted.
  for (bool first = true; first || !enough(); first = false) {
    data.restore();
    out.status = Runtime::shared().call(call.op, data.args(), options);
    out.kernel = record.kernel;
    out.attempts = std::max<int>(out.attempts, record.attempts);
    if (!out.status.ok()) return;
    if (!first)
      times.push_back(static_cast<double>(record.pre_ns + record.run_ns + record.post_ns));
  }
  std::ranges::sort(times);
  out.runs = times.size();
  out.median_ns = times[times.size() / 2];
  if (out.median_ns > 0) out.gb_per_s = static_cast<double>(data.traffic()) / out.median_ns;
}

void check_against_reference(const RunQuestion& q, const ParsedCall& call, const CallTensors& data,
                             Outcome& out) {
  CallTensors again(call, q.seed, q.contents);
  Options options;
  options.policy.emplace().reference_only = true;
  options.labels = call.labels;
  ResultRecord record;
  options.result = &record;
  if (Status s = Runtime::shared().call(call.op, again.args(), options); !s.ok()) {
    out.no_reference = std::string(s.message());
    return;
  }
  out.reference = record.kernel;
  out.difference = compare_results(Runtime::shared(), call.op, data, again).value();
}

Json outcome_json(const ParsedCall& call, const Outcome& o) {
  const auto number = [](bool known, double v) {
    return known && std::isfinite(v) ? Json(v) : Json();
  };
  const bool ran = o.status.ok(), compared = !o.reference.empty();
  Json j = {{"op", call.op},
            {"call", call.text},
            {"kernel", text_or_null(o.kernel)},
            {"median_ns", number(ran, o.median_ns)},
            {"gb_per_s", number(ran, o.gb_per_s)},
            {"attempts", o.attempts},
            {"max_abs_error", number(compared, o.difference.max_abs)},
            {"max_rel_error", number(compared, o.difference.max_rel)},
            {"reference", text_or_null(o.reference)},
            {"ok", o.ok()},
            {"runs", o.runs},
            {"equal_bits", compared ? Json(o.difference.equal_bits) : Json()},
            {"worst", text_or_null(o.difference.worst)},
            {"damage", text_or_null(o.damage)}};
  if (!ran) j["error"] = o.status.to_string();
  return j;
}

void line(const char* what, const std::string& text) { print_out("  {:<10} {}\n", what, text); }

std::string verdict(const Difference& d, const std::string& against) {
  const char* const text = d.equal_bits ? "equal bits"
                           : d.within   ? "within tolerance"
                                        : "beyond tolerance";
  return fmt::format("{} ({})", paint(d.within ? Paint::kGood : Paint::kBad, text), against);
}

void print_outcome(const ParsedCall& call, const Outcome& o) {
  print_out("{}\n", call.text);
  line("kernel", paint(Paint::kBold, o.kernel) +
                     (o.attempts > 1 ? fmt::format(", after {} that failed", o.attempts - 1) : ""));
  line("time",
       fmt::format("{} (median of {}), {:.3g} GB/s", duration(o.median_ns), o.runs, o.gb_per_s));
  if (!o.damage.empty()) line("memory", paint(Paint::kBad, "it " + o.damage));
  const Difference& d = o.difference;
  if (o.reference.empty()) {
    line("reference", paint(Paint::kWarning, "none to compare with: " + printable(o.no_reference)));
    return;
  }
  line("reference", verdict(d, o.reference));
  if (d.equal_bits) return;
  line("error", fmt::format("at most {:.3g} absolute, {:.3g} relative", d.max_abs, d.max_rel));
  if (!d.worst.empty())
    line("worst", fmt::format("{} is {:.9g} where the reference has {:.9g}", d.worst, d.worst_found,
                              d.worst_expected));
}

int run_call(const RunQuestion& q) {
  if (const int code = use_config(Runtime::shared(), q.config); code != kOk) return code;
  const auto call = need(Runtime::shared().parse(q.call), kUsage);
  auto options = need(q.policy.options(call.op), kUsage);
  options.deterministic |= (call.flags & YARD_CALL_DETERMINISTIC) != 0;
  options.capturing |= (call.flags & YARD_CALL_CAPTURING) != 0;
  options.inference |= (call.flags & YARD_CALL_INFERENCE) != 0;
  for (const auto& [k, v] : call.labels) options.labels.try_emplace(k, v);
  if ((call.flags & YARD_CALL_TRACING) != 0)
    return fail(kUsage, "a call with +tracing is not computed; leave the flag out to run it");
  if ((call.flags & YARD_CALL_LOADED) != 0)
    return fail(
        kUsage,
        "a call with +loaded is of an instance, which only a program has; leave the flag out "
        "to run it");
  // The kernel and the reference each need a set of tensors.
  need(CallTensors::check(call, 2), kUsage);

  CallTensors data(call, q.seed, q.contents);
  Outcome out;
  time_call(q, call, data, options, out);
  out.damage = data.damage();
  if (out.status.ok()) check_against_reference(q, call, data, out);
  if (q.json) print_json(outcome_json(call, out));
  if (!out.status.ok()) {
    const int code = out.status.code() == Code::kNotFound ? kUsage : kFailed;
    return q.json ? code : fail(code, out.status);
  }
  if (!q.json) print_outcome(call, out);
  return out.ok() ? kOk : kFailed;
}

std::string figures(double v) { return std::isnan(v) ? "nan" : fmt::format("{:.9g}", v); }

// JSON has no infinity and no NaN, so these are printed as text.
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
  const CanaryReport::Mismatch& m = dump.mismatch;
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
  const Difference& d = r.difference;
  print_out("{}\n", r.call);
  line("kernel", paint(Paint::kBold, r.kernel));
  line("then", fmt::format("{}: {}", dump.mismatch.kernel, to_string(dump.mismatch)));
  if (!r.damage.empty()) line("memory", paint(Paint::kBad, "it " + r.damage));
  if (!r.status.ok()) return line("now", paint(Paint::kBad, printable(r.status.to_string())));
  line("now", verdict(d, r.against));
  if (d.equal_bits || d.worst.empty()) return;
  line("worst", fmt::format("{} is {} where {} has {} ({} times the tolerance)", d.worst,
                            figures(d.worst_found), r.against, figures(d.worst_expected),
                            fmt::format("{:.3g}", d.ratio)));
}

int run_dump(const std::string& path, const std::string& kernel, bool json) {
  const auto dump = need(read_canary_dump(path), kUsage);
  const auto again = need(replay(Runtime::shared(), dump, kernel), kUsage);
  json ? print_json(replay_json(path, dump, again)) : print_replay(dump, again);
  return again.ok() ? kOk : kFailed;
}

// A dump defines the whole call, so options that would change the call are refused.
Status check_from(const CLI::App& command, const RunQuestion& q) {
  const auto bad = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  if (q.from.empty() && q.call.empty()) return bad("CALLSPEC is missing, or --from DUMP");
  if (q.from.empty())
    return q.kernel.empty() ? Status() : bad("--kernel goes with --from; expected --force");
  for (const CLI::Option* o : command.get_options()) {
    const std::string name = o->get_name();
    if (o->count() > 0 && name != "--from" && name != "--kernel" && name != "--json" &&
        name != "--config" && name != "--program-mode")
      return bad(fmt::format("{} does not go with --from", name));
  }
  return {};
}

int run_either(const CLI::App& command, const RunQuestion& q) {
  need(check_from(command, q), kUsage);
  if (q.from.empty()) return run_call(q);
  if (const int code = use_config(Runtime::shared(), q.config); code != kOk) return code;
  return run_dump(q.from, q.kernel, q.json);
}

void add_contents(CLI::App& command, Contents& to) {
  std::vector<std::string> names;
  for (const Contents c : all_contents()) names.emplace_back(to_string(c));
  command
      .add_option_function<std::string>(
          "--contents", [&to](const std::string& name) { to = *parse_contents(name); },
          fmt::format("What floats are filled with: {} (normal)", fmt::join(names, ", ")))
      ->type_name("NAME")
      ->check(one_of(names));
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto q = std::make_shared<RunQuestion>();
  CLI::App* c =
      app.add_subcommand("run", "Run a call; show kernel, time and distance from the reference");
  c->add_option("CALLSPEC", q->call, "The call as text, in quotes");
  add_value(*c, "--from", q->from, "DUMP",
            "Run a call that a canary has dumped, instead of a CALLSPEC");
  add_value(*c, "--kernel", q->kernel, "ID", "Run a dump with this kernel instead of its own");
  add_value(*c, "--seed", q->seed, "N", "Of the inputs: the same seed, the same numbers (1)");
  add_config_option(*c, q->config);
  add_contents(*c, q->contents);
  add_value(*c, "--repeat", q->repeat, "N", "Runs to take the median of (100, or half a second)")
      ->check(between(1, 1000000000));
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  q->policy.add(*c);
  c->callback([q, c, &action] { action = [q, c] { return run_either(*c, *q); }; });
}

}  // namespace yard::tool
