// SPDX-License-Identifier: Apache-2.0
// yard verify: compares kernels with the reference kernels of their ops, and checks the verifiers of functions.
#include <fmt/format.h>
#include <yard/verify.h>
#include <CLI/CLI.hpp>

#include <fstream>
#include <memory>
#include <sstream>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "plugin_show.h"
#include "progress.h"
#include "terminal.h"
#include "verify_file.h"
#include "verify_report.h"

namespace yard::tool {
namespace {

constexpr size_t kQuickCases = 40;
constexpr int64_t kQuickElements = 4096;

struct VerifyQuestion {
  VerifyOptions options;
  std::string file, expect;
  bool quick = false, json = false;
  double timeout = 60;  // one run of a kernel is far shorter
};

Result<std::vector<Expectation>> read_expectations(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status(Code::kNotFound, fmt::format("cannot read '{}'", path));
  std::ostringstream text;
  text << file.rdbuf();
  return parse_expectations(text.str(), path);
}

// Why a report does not count as a pass of the whole plugin; empty if it does.
std::string not_whole(const VerifyQuestion& q, const VerifyReport& report) {
  const VerifyOptions& o = q.options;
  if (!o.op.empty() || !o.kernel.empty() || !o.backend.empty() || !o.function.empty())
    return "not all of it was verified";
  if (q.quick || o.cases < VerifyOptions().cases)
    return fmt::format("fewer than {} calls for each op were made", VerifyOptions().cases);
  for (const KernelReport& k : report.kernels)
    if (k.expected > 0) return fmt::format("{} of op {} failed, as was expected", k.id, k.op);
  return unchecked_function(report);
}

// A kernel of a plugin that was never compared: nothing is known of it.
std::string idle_kernel(const VerifyReport& report) {
  for (const KernelReport& k : report.kernels)
    if (k.ran() == 0)
      return fmt::format("{} of op {} was not compared on any call: {}", k.id, k.op,
                         k.reasons.empty() ? "no call could be made" : k.reasons[0].detail);
  return {};
}

void print_report_json(const VerifyQuestion& q, const VerifyReport& report, const Ward* ward) {
  Json j = ward != nullptr ? to_json(*ward, q.file) : Json::object();
  j["kernels"] = to_json(report);
  j["functions"] = function_reports_json(report);
  print_json(j);
}

// On the kernels of a runtime. `ward`, where a plugin is verified, gets each run and the result.
int verify_runtime(VerifyQuestion& q, const Runtime& runtime, Ward* ward) {
  VerifyOptions& options = q.options;
  Progress progress;
  options.progress = [&](const VerifyProgress& p) {
    if (progress.shown())
      progress.say(fmt::format("op {} of {}: {}, call {} of {}{}", p.op_index + 1, p.op_count, p.op,
                               p.done + 1, p.cases,
                               p.failed > 0 ? fmt::format(", {} failed", p.failed) : ""));
    return true;
  };
  if (ward != nullptr) {
    options.watch = [ward](std::string_view op, std::string_view kernel, const VerifyCase& c) {
      ward->step(fmt::format("in kernel '{}' of op '{}' on {} with contents {} and seed {}", kernel,
                             op, c.call, to_string(c.contents), c.seed));
    };
    options.watch_function = [ward](std::string_view f, std::string_view backend, size_t sample) {
      ward->step(fmt::format("in the verifier of backend '{}' for function '{}' on sample {}",
                             backend, f, sample));
    };
  }
  const auto report = yard::verify(runtime, options);
  progress.clear();
  if (!report.ok()) return fail(kUsage, report.status());
  bool ok = report->ok();
  if (ward != nullptr) {
    ward->step("after all of it had been verified");
    const std::string idle = ok ? idle_kernel(*report) : "";
    const std::string partly = ok ? not_whole(q, *report) : "";
    ok = ok && idle.empty();
    ward->result(ok && partly.empty(), !ok, !idle.empty() ? idle : partly);
  }
  if (q.json) {
    print_report_json(q, *report, ward);
  } else {
    if (!report->kernels.empty())
      print(*report, ward != nullptr ? fmt::format("YARD_PLUGINS={} ", absolute(q.file)) : "");
    if (!report->kernels.empty() && !report->functions.empty()) fmt::print("\n");
    print_function_reports(*report);
    if (ward != nullptr && ward->verified())
      fmt::print("{}: all of it passed. sha256:{}\n", q.file, ward->sha256());
    if (ward != nullptr && !ward->why().empty())
      fmt::print(stderr, "yard: {} does not count as verified: {}\n", q.file, ward->why());
    for (const Expectation& e : report->unused)
      fmt::print(stderr, "yard: {}:{}: no call matched this line\n", q.expect, e.line);
  }
  return ok ? kOk : kFailed;
}

// In a process that may crash: opens the plugin and verifies it.
int verify_plugin(VerifyQuestion& q, Ward& ward) {
  RuntimeSettings settings = as_the_environment_has_it();
  settings.plugins.probe = PluginProbe::kNever;  // this process is the probe
  settings.plugins.allow_writable = true;        // checked by inspect() in the parent
  settings.plugins.unlocked = ward.path();       // it is locked after it has been verified
  settings.plugins.watch = [&](std::string_view, std::string_view step) {
    ward.step(step == "opening" ? "while it was opened" : fmt::format("in its {}", step));
  };
  Runtime runtime(settings);
  // Rules with require_verified must not refuse the plugin here.
  runtime.load_config("").ignore();
  Plugins plugins = runtime.plugins();
  for (const PluginInfo& p : plugins.list())
    if (p.name == ward.name()) plugins.forget(p.path).ignore();
  const std::string path = ward.path();
  if (const Status s = plugins.load(path); !s.ok()) {
    for (const PluginInfo& p : plugins.list())
      if (p.path == path)
        return fail(kFailed,
                    fmt::format("{} is refused: {}: {}", q.file, to_string(p.reason), p.detail));
    return fail(kFailed, s);
  }
  for (const PluginInfo& p : plugins.list())
    if (p.path == path) ward.digest(p.sha256);
  q.options.plugin = ward.name();
  const int code = verify_runtime(q, runtime, &ward);
  ward.step("while it was stopped and closed");
  return code;
}

int verify(VerifyQuestion& q) {
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
  if (!q.file.empty()) {
    if (const Status s = check_features(); !s.ok()) return fail(kUsage, s);
    return verify_file(q.file, q.json, q.timeout,
                       [&q](Ward& ward) { return verify_plugin(q, ward); });
  }
  return verify_runtime(q, Runtime::shared(), nullptr);
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  auto q = std::make_shared<VerifyQuestion>();
  q->options.cases = 0;  // unset
  CLI::App* c = app.add_subcommand("verify", "Compare kernels with the reference of their op");
  c->add_option("FILE", q->file, "Only this plugin, in a separate process")->type_name("FILE.so");
  c->add_option("--timeout", q->timeout,
                "With a FILE: seconds that one step may take before it counts as a hang (60)")
      ->type_name("SECONDS")
      ->check(between(0.001, 86400.0))
      ->needs(c->get_option("FILE"));
  add_feature_option(*c);
  CLI::Option* backend =
      c->add_option("--backend", q->options.backend, "Only kernels of this backend");
  backend->type_name("NAME");
  c->add_option("--kernel", q->options.kernel, "Only kernels with this id")
      ->type_name("ID")
      ->excludes(backend);
  c->add_option("--op", q->options.op, "Only kernels of this op")->type_name("OP");
  c->add_option("--function", q->options.function,
                "Only verifiers of this function, and no kernels")
      ->type_name("GROUP/NAME");
  c->add_option("--cases", q->options.cases, "Calls for each op (300; 40 with --quick)")
      ->type_name("N")
      ->check(between(1, 10000000));
  c->add_flag("--quick", q->quick, "Fewer and smaller calls");
  c->add_option("--seed", q->options.seed,
                "Of calls and contents: the same seed, the same ones (1)")
      ->type_name("N");
  c->add_option("--expect", q->expect, "List of known failures and unsupported calls")
      ->type_name("FILE");
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->footer(
      "Makes calls from each op's schema: sizes, dtypes, strides, alignment, aliasing, optionals, "
      "NaN,\n"
      "infinities, subnormals. Runs every kernel that accepts a call and the op's reference\n"
      "kernel on the same numbers and compares, memory around tensors included. Exit code 1 when\n"
      "a kernel failed, or passed although --expect lists it.\n"
      "\n"
      "Verifiers of dispatched functions are called with their sample calls, twice and on other\n"
      "threads, and must give the same answer. Exit code 1 when one is broken.\n"
      "\n"
      "With a FILE the plugin's kernels and new ops are verified in a separate process: a crash\n"
      "is a failure. A complete pass is recorded by digest for `require_verified`.\n"
      "\n"
      "A line of --expect: KERNEL OP CALLSPEC : unsupported|fails : reason       (three globs)\n"
      "\n"
      "Examples:\n"
      "  yard verify\n"
      "  yard verify --backend reference --quick\n"
      "  yard verify --op softmax --cases 2000 --seed 7\n"
      "  yard verify ./acme.so\n"
      "  yard verify ./acme.so --timeout 5\n"
      "  yard verify --kernel vendor.acme --expect known.txt");
  c->callback([q, &action] { action = [q] { return verify(*q); }; });
}

}  // namespace yard::tool
