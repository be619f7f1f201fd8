// SPDX-License-Identifier: Apache-2.0
// yard verify: compares kernels with the reference kernels of their ops, and checks the verifiers
// of functions.
#include <fmt/format.h>
#include <yard/verify.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "arguments.h"
#include "commands.h"
#include "config/moves.h"
#include "json.h"
#include "output.h"
#include "plugin/show.h"
#include "terminal.h"
#include "verify/file.h"
#include "verify/report.h"

namespace yard::tool {
namespace {

constexpr size_t kQuickCases = 40;
constexpr int64_t kQuickElements = 4096;
constexpr size_t kLargestExpectations = size_t{16} << 20;

struct VerifyQuestion {
  VerifyOptions options;
  std::string file, expect, trace;
  std::vector<std::string> option_texts, weight_texts;  // NAME=VALUE, NAME=TENSOR
  std::deque<TensorView> weights;                       // of weight_texts, without data
  UnknownOps unknown;                                   // unknown ops in the trace
  bool quick = false, json = false, silent = false, cases_given = false;
  double timeout = 60;  // one run of a kernel is far shorter
};

Result<std::vector<Expectation>> read_expectations(const std::string& path) {
  auto text = read_input(path, kLargestExpectations);
  if (!text.ok()) return std::move(text).status();
  return parse_expectations(*text, path);
}

// Splits NAME=TEXT. Both parts are empty if the text has another form.
std::pair<std::string_view, std::string_view> name_and_value(std::string_view text) {
  const size_t at = text.find('=');
  if (at == 0 || at == std::string_view::npos) return {};
  return {text.substr(0, at), text.substr(at + 1)};
}

template <class T>
std::optional<T> number(std::string_view text) {
  T to{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return to;
}

// Parses a form such as f32[8,64]. The tensor has no data.
std::optional<TensorView> tensor_form(std::string_view text) {
  const size_t open = text.find('[');
  const auto dtype = parse_dtype(text.substr(0, open));
  if (!dtype || open == std::string_view::npos || text.back() != ']') return std::nullopt;
  std::vector<int64_t> shape;
  const std::string sizes(text.substr(open + 1, text.size() - open - 2));
  for (const std::string& part : sizes.empty() ? std::vector<std::string>() : split(sizes, ",")) {
    const auto size = number<int64_t>(part);
    if (!size || *size < 0 || shape.size() == YARD_MAX_RANK) return std::nullopt;
    shape.push_back(*size);
  }
  return TensorView(static_cast<void*>(nullptr), *dtype, shape);
}

// Parses options and weights, which refer to the texts of the question.
Status read_instance(VerifyQuestion& q) {
  const auto bad = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  for (const std::string& text : q.option_texts) {
    const auto [name, value] = name_and_value(text);
    if (name.empty()) return bad(fmt::format("invalid --option '{}': expected NAME=VALUE", text));
    if (value == "true" || value == "false")
      q.options.options.emplace_back(name, value == "true");
    else if (const auto i = number<int64_t>(value))
      q.options.options.emplace_back(name, *i);
    else if (const auto f = number<double>(value))
      q.options.options.emplace_back(name, *f);
    else
      q.options.options.emplace_back(name, value);
  }
  for (const std::string& text : q.weight_texts) {
    const auto [name, form] = name_and_value(text);
    const auto tensor = name.empty() ? std::nullopt : tensor_form(form);
    if (!tensor)
      return bad(fmt::format("invalid --weight '{}': expected NAME=TENSOR, as sink=f32[8]", text));
    q.options.weights.emplace_back(name, q.weights.emplace_back(*tensor));
  }
  return {};
}

// Adds the calls of a trace, the most frequent first, and no more than --cases allows.
Status read_trace_calls(VerifyQuestion& q, const Runtime& runtime) {
  if (q.trace.empty()) return {};
  auto calls = read_trace(runtime, q.trace, &q.unknown);
  if (!calls.ok()) return calls.status();
  if (!q.json) print_unknown_ops(q.trace, q.unknown);
  std::ranges::stable_sort(
      *calls, [](const CountedCall& a, const CountedCall& b) { return a.count > b.count; });
  if (q.cases_given && calls->size() > q.options.cases) calls->resize(q.options.cases);
  for (CountedCall& c : *calls) q.options.calls.push_back(std::move(c.call));
  return {};
}

// Returns why a report does not verify the whole plugin, or an empty text.
std::string not_whole(const VerifyQuestion& q, const VerifyReport& report) {
  const VerifyOptions& o = q.options;
  if (!o.op.empty() || !o.kernel.empty() || !o.backend.empty() || !o.function.empty())
    return "not all of it was verified";
  if (!o.calls.empty()) return "only the given calls were made";
  if (!o.options.empty() || !o.weights.empty()) return "only the given options were used";
  if (q.quick) return "with --quick, only the smoke test was run";
  for (const KernelReport& k : report.kernels) {
    if (k.expected > 0) return fmt::format("{} of op {} failed, as was expected", k.id, k.op);
    if (!k.verified()) return too_few_runs(k);
  }
  return unchecked_function(report);
}

// Returns the first kernel that passed no run, with the reason, or an empty text.
std::string idle_kernel(const VerifyReport& report) {
  for (const KernelReport& k : report.kernels)
    if (k.passed == 0)
      return fmt::format("{} of op {} {}: {}", k.id, k.op,
                         k.ran() > 0 ? "failed on every call" : "was not compared on any call",
                         k.reasons.empty() ? "no call could be made" : k.reasons[0].detail);
  return {};
}

// Describes the first failure of a kernel or function.
std::string failure(const VerifyReport& report) {
  for (const KernelReport& k : report.kernels)
    if (k.failed > 0) return fmt::format("{} of op {}: {}", k.id, k.op, k.worst.what);
  for (const FunctionReport& f : report.functions)
    if (!f.problems.empty())
      return fmt::format("function {} of backend {}: {}", f.function, f.backend, f.problems[0]);
  return {};
}

void print_report_json(const VerifyQuestion& q, const VerifyReport& report, const Ward* ward) {
  Json j = ward != nullptr ? ward->json(q.file) : Json::object();
  j["kernels"] = to_json(report);
  j["functions"] = function_reports_json(report);
  if (!q.trace.empty()) {
    j["skipped"] = Json::array();
    for (const auto& [name, op] : q.unknown)
      j["skipped"].push_back({{"op", name}, {"calls", op.calls}});
  }
  print_json(j);
}

// Verifies the kernels of a runtime. If a plugin is verified, `ward` gets each run and the result.
int verify_runtime(VerifyQuestion& q, const Runtime& runtime, Ward* ward) {
  VerifyOptions& options = q.options;
  Progress progress;
  options.progress = [&](const VerifyOptions::Progress& p) {
    if (progress.shown())
      progress.say(fmt::format("op {} of {}: {}, call {} of {}{}", p.op_index + 1, p.op_count, p.op,
                               p.done + 1, p.cases,
                               p.failed > 0 ? fmt::format(", {} failed", p.failed) : ""));
    return true;
  };
  if (ward != nullptr) {
    options.watch = [ward, &q](std::string_view op, std::string_view kernel,
                               const KernelReport::Case& c) {
      ward->step(fmt::format("in kernel '{}' of op '{}' on {} with contents {} and seed {}", kernel,
                             op, c.call, to_string(c.contents), c.seed),
                 reproducer(absolute(q.file), kernel, c));
    };
    options.watch_function = [ward, &q](std::string_view f, std::string_view backend,
                                        size_t sample) {
      ward->step(fmt::format("in the verifier of backend '{}' for function '{}' on sample {}",
                             backend, f, sample),
                 fmt::format("yard verify {} --function {}", absolute(q.file), f));
    };
  }
  need(read_trace_calls(q, runtime), kUsage);
  const auto report = need(yard::verify(runtime, options), kUsage);
  progress.clear();
  bool ok = report.ok();
  std::string why = failure(report);
  // Without a file, a kernel that cannot run on this machine is not an error.
  if (why.empty() && (ward != nullptr || !report.any_passed())) why = idle_kernel(report);
  if (why.empty() && !report.any_passed()) why = unchecked_function(report);
  ok = ok && why.empty();
  if (ward != nullptr) {
    ward->step("after all of it had been verified", "yard verify " + absolute(q.file));
    if (ok) why = not_whole(q, report);
    ward->result(ok && why.empty(), !ok, why);
  }
  if (q.silent) return ok ? kOk : kFailed;
  if (q.json) {
    print_report_json(q, report, ward);
  } else {
    if (!report.kernels.empty()) print(report, ward != nullptr ? absolute(q.file) : "");
    if (!report.kernels.empty() && !report.functions.empty()) print_out("\n");
    print_function_reports(report);
    if (ward != nullptr && ward->page->verified)
      print_out("{}: all of it passed. sha256:{}\n", q.file, ward->page->sha256.get());
    if (ward != nullptr && !why.empty())
      print_err("yard: {} does not count as verified: {}\n", q.file, why);
    else if (!report.any_passed())
      print_err("yard: nothing was verified: {}\n", why);
    for (const Expectation& e : report.unused)
      print_err("yard: {}:{}: no call matched this line\n", q.expect, e.line);
  }
  return ok ? kOk : kFailed;
}

// Opens the plugin and verifies it. Runs in the child, which may crash.
int verify_plugin(VerifyQuestion& q, Ward& ward) {
  RuntimeSettings settings = as_the_environment_has_it();
  settings.plugins.allow_writable = true;  // inspect() checked this in the parent
  settings.plugins.unlocked = {ward.path, absolute(q.file)};  // it is locked after verification
  const std::string smallest = fmt::format("yard verify {} --quick", absolute(q.file));
  settings.plugins.watch = [&](std::string_view, std::string_view step) {
    ward.step(step == "opening" ? "while it was opened" : fmt::format("in its {}", step), smallest);
  };
  Runtime runtime(settings);
  // Rules with require_verified must not refuse the plugin here.
  runtime.rules().load("").ignore();
  Plugins plugins = runtime.plugins();
  for (const PluginInfo& p : plugins.list())
    if (p.name == ward.name) plugins.forget(p.path).ignore();
  const std::string path = ward.path;
  if (const Status s = plugins.load(path); !s.ok()) {
    ward.result(false, false, s.message());
    if (q.silent) return kFailed;
    for (const PluginInfo& p : plugins.list())
      if (p.path == path)
        return fail(kFailed,
                    fmt::format("{} is refused: {}: {}", q.file, to_string(p.reason), p.detail));
    return fail(kFailed, s);
  }
  for (const PluginInfo& p : plugins.list())
    if (p.path == path) ward.page->sha256.set(p.sha256);
  q.options.plugin = ward.name;
  const int code = verify_runtime(q, runtime, &ward);
  ward.step("while it was stopped and closed", smallest);
  if (const auto gone = plugins.unload(ward.name); gone.ok()) gone->wait().ignore();
  return code;
}

int verify(VerifyQuestion& q) {
  VerifyOptions& options = q.options;
  need(read_instance(q), kUsage);
  if (!q.expect.empty()) {
    auto expectations = need(read_expectations(q.expect), kUsage);
    options.expectations = std::move(expectations);
  }
  q.cases_given = options.cases > 0;
  if (q.quick) {
    options.max_elements = kQuickElements;
    if (options.cases == 0) options.cases = kQuickCases;
  }
  if (options.cases == 0) options.cases = VerifyOptions().cases;
  if (!q.file.empty()) {
    need(check_features(), kUsage);
    options.smoke_test_only = q.quick;
    return verify_file(q.file, q.json, q.timeout,
                       [&q](Ward& ward) { return verify_plugin(q, ward); });
  }
  return verify_runtime(q, Runtime::shared(), nullptr);
}

}  // namespace

Result<std::string> verify_silently(const std::string& file, const std::string& name) {
  VerifyQuestion q;
  q.file = file, q.silent = true;
  Ward ward(absolute(file), name);
  if (ward.page == nullptr) return Status(Code::kInternal, "out of memory");
  const ChildEnd end =
      run_in_child(ward, absolute(file), q.timeout, [&q](Ward& w) { return verify_plugin(q, w); });
  if (!end.how.empty()) return end.status("it");
  if (ward.page->verified || ward.page->failed) remember_result(file, ward);
  const std::string why = ward.page->why.get();
  if (end.code != kOk) return Status(Code::kInvalidArgument, why);
  return why;
}

void add_verify(CLI::App& app, Action& action) {
  auto q = std::make_shared<VerifyQuestion>();
  q->options.cases = 0;  // unset
  CLI::App* c = app.add_subcommand("verify", "Compare kernels with the reference of their op");
  c->add_option("FILE", q->file, "Only this plugin, in a separate process")->type_name("FILE.so");
  add_value(*c, "--timeout", q->timeout, "SECONDS",
            "With a FILE: seconds that one step may take before it counts as a hang (60)")
      ->check(between(0.001, 86400.0))
      ->needs(c->get_option("FILE"));
  add_feature_option(*c);
  CLI::Option* backend =
      c->add_option("--backend", q->options.backend, "Only kernels of this backend");
  backend->type_name("NAME");
  add_value(*c, "--kernel", q->options.kernel, "ID", "Only kernels with this id")
      ->excludes(backend);
  add_value(*c, "--op", q->options.op, "OP", "Only kernels of this op");
  add_value(*c, "--function", q->options.function, "GROUP/NAME",
            "Only verifiers of this function, and no kernels");
  add_value(*c, "--cases", q->options.cases, "N",
            "Calls for each op, and again for each kernel (300; 40 with --quick)")
      ->check(between(1, 10000000));
  add_value(*c, "--call", q->options.calls, "CALLSPEC", "Only this call; repeatable");
  add_file(*c, "--trace", q->trace, "Only the calls of a recording, or of a list of CallSpecs");
  add_value(*c, "--option", q->option_texts, "NAME=VALUE",
            "Option of kernels with state; repeatable");
  add_value(*c, "--weight", q->weight_texts, "NAME=TENSOR",
            "Weight of kernels with state; repeatable");
  c->add_flag("--quick", q->quick,
              "Fewer and smaller calls; with a FILE only a smoke test, which compares nothing");
  add_value(*c, "--seed", q->options.seed, "N",
            "Of calls and contents: the same seed, the same ones (1)");
  add_value(*c, "--expect", q->expect, "FILE", "List of known failures and unsupported calls");
  c->add_flag("--json", q->json, "JSON for programs instead of text");
  c->callback([q, &action] { action = [q] { return verify(*q); }; });
}

}  // namespace yard::tool
