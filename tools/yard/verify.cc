// SPDX-License-Identifier: Apache-2.0
// yard verify: holds kernels against the reference kernels of their ops.
#include <fmt/format.h>
#include <yard/verify.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands.h"
#include "error_plot.h"
#include "progress.h"
#include "table.h"
#include "terminal.h"

namespace yard::tool {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kQuickCases = 40;
constexpr int64_t kQuickElements = 4096;

struct Question {
  VerifyOptions options;
  std::string expect, plot;
  bool quick = false, json = false;
};

Json number(double v) { return std::isfinite(v) ? Json(v) : Json(); }

Json to_json(const VerifyCase& c) {
  return {{"call", c.call},
          {"contents", to_string(c.contents)},
          {"seed", c.seed},
          {"error", number(c.error)},
          {"what", c.what}};
}

Json to_json(const KernelReport& k) {
  const bool ran = !k.worst.call.empty();
  Json j = {{"op", k.op},
            {"id", k.id},
            {"passed", k.passed},
            {"failed", k.failed},
            {"skipped", k.skipped},
            {"worst_error", ran ? number(k.worst.error) : Json()},
            {"worst_call", ran ? Json(k.worst.call) : Json()},
            {"declined", k.declined},
            {"expected", k.expected},
            {"backend", k.backend},
            {"kind", to_string(k.kind)},
            {"worst", ran ? to_json(k.worst) : Json()},
            {"failures", Json::array()},
            {"reasons", Json::array()}};
  for (const VerifyCase& c : k.failures) j["failures"].push_back(to_json(c));
  for (const VerifyReason& r : k.reasons)
    j["reasons"].push_back({{"reason", r.reason}, {"detail", r.detail}, {"count", r.count}});
  return j;
}

// The reasons that kept it from most calls: "dtype 120, layout 14".
std::string short_reasons(const KernelReport& k) {
  constexpr size_t kShown = 3;
  std::string to;
  for (size_t i = 0; i < k.reasons.size() && i < kShown; ++i)
    to += fmt::format("{}{} {}", i > 0 ? ", " : "", k.reasons[i].reason, k.reasons[i].count);
  return k.reasons.size() > kShown ? to + ", ..." : to;
}

void print_table(const VerifyReport& report) {
  Table table({{"op"},
               {"kernel"},
               {"passed", Align::kRight},
               {"failed", Align::kRight},
               {"skipped", Align::kRight},
               {"declined", Align::kRight},
               {"worst error", Align::kRight},
               {"not run because"}});
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
  fmt::print("{}", table.text());
}

void print_failures(const VerifyReport& report) {
  constexpr size_t kShown = 3;
  for (const KernelReport& k : report.kernels) {
    if (k.failures.empty()) continue;
    fmt::print("\n{}: {} failed\n", paint(Paint::kBad, k.op + " " + k.id), k.failed);
    for (size_t i = 0; i < k.failures.size() && i < kShown; ++i) {
      const VerifyCase& c = k.failures[i];
      fmt::print("  {}\n    yard run '{}' --force {} --contents {} --seed {}\n", c.what, c.call,
                 k.id, to_string(c.contents), c.seed);
    }
    if (k.failed > kShown) fmt::print("  ... and {} more\n", k.failed - kShown);
  }
}

void print(const VerifyReport& report) {
  print_table(report);
  print_failures(report);
  size_t ran = 0, expected = 0;
  for (const KernelReport& k : report.kernels) ran += k.ran(), expected += k.expected;
  fmt::print("\n{} kernels, {} runs compared, {} failed{}. Errors are in units of the tolerance.\n",
             report.kernels.size(), ran, report.failed(),
             expected > 0 ? fmt::format(", {} failed as expected", expected) : "");
}

Result<std::vector<Expectation>> read_expectations(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status(Code::kNotFound, fmt::format("cannot read '{}'", path));
  std::ostringstream text;
  text << file.rdbuf();
  return parse_expectations(text.str(), path);
}

int write_plot(const std::string& path, const VerifyReport& report) {
  std::ofstream file(path);
  file << error_plot(report);
  file.close();
  return file ? kOk : fail(kFailed, fmt::format("cannot write '{}'", path));
}

int verify(Question& q) {
  VerifyOptions& options = q.options;
  if (!q.expect.empty()) {
    auto expectations = read_expectations(q.expect);
    if (!expectations.ok()) return fail(kUsage, expectations.status());
    options.expectations = *std::move(expectations);
  }
  if (q.quick) {
    options.max_elements = kQuickElements;
    if (options.cases == 0) options.cases = kQuickCases;
  }
  if (options.cases == 0) options.cases = VerifyOptions().cases;
  Progress progress;
  if (progress.shown())
    options.progress = [&](const VerifyProgress& p) {
      progress.say(fmt::format("op {} of {}: {}, call {} of {}{}", p.op_index + 1, p.op_count, p.op,
                               p.done + 1, p.cases,
                               p.failed > 0 ? fmt::format(", {} failed", p.failed) : ""));
      return true;
    };
  const auto report = yard::verify(Runtime::shared(), options);
  progress.clear();
  if (!report.ok()) return fail(kUsage, report.status());
  if (q.json) {
    Json j = {{"kernels", Json::array()}};
    for (const KernelReport& k : report->kernels) j["kernels"].push_back(to_json(k));
    fmt::print("{}\n", j.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print(*report);
    for (const Expectation& e : report->unused)
      fmt::print(stderr, "yard: {}:{}: no call matched this line\n", q.expect, e.line);
  }
  if (!q.plot.empty())
    if (const int code = write_plot(q.plot, *report); code != kOk) return code;
  return report->ok() ? kOk : kFailed;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto q = std::make_shared<Question>();
  q->options.cases = 0;  // as not said
  CLI::App* c = app.add_subcommand("verify", "Hold kernels against the reference of their op");
  CLI::Option* backend =
      c->add_option("--backend", q->options.backend, "Only kernels of this backend");
  backend->type_name("NAME");
  c->add_option("--kernel", q->options.kernel, "Only kernels with this id")
      ->type_name("ID")
      ->excludes(backend);
  c->add_option("--op", q->options.op, "Only kernels of this op")->type_name("OP");
  c->add_option("--cases", q->options.cases, "Calls for each op (300; 40 with --quick)")
      ->type_name("N")
      ->check(CLI::Range(1, 10000000));
  c->add_flag("--quick", q->quick, "Fewer and smaller calls");
  c->add_option("--seed", q->options.seed,
                "Of calls and contents: the same seed, the same ones (1)")
      ->type_name("N");
  c->add_option("--expect", q->expect, "List of what is known to fail or to be unsupported")
      ->type_name("FILE");
  c->add_option("--plot", q->plot, "Write a picture of the errors")->type_name("FILE.svg");
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "Makes calls from each op's schema: sizes, dtypes, strides, alignment, aliasing, optionals, "
      "NaN,\n"
      "infinities, subnormals. Runs every kernel that takes a call and the op's reference kernel "
      "on\n"
      "the same numbers and compares, memory around tensors included. Exit code 1 when a kernel\n"
      "failed, or did not though --expect says so.\n"
      "\n"
      "A line of --expect: KERNEL OP CALLSPEC : unsupported|fails : reason       (three globs)\n"
      "\n"
      "Examples:\n"
      "  yard verify\n"
      "  yard verify --backend reference --quick\n"
      "  yard verify --op softmax --cases 2000 --seed 7\n"
      "  yard verify --kernel vendor.acme --expect known.txt --plot errors.svg");
  c->callback([q, &action] { action = [q] { return verify(*q); }; });
}

}  // namespace yard::tool
