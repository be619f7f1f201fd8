// SPDX-License-Identifier: Apache-2.0
// Implements yard/verify.h: expectations, kernels under test, replays of dumps, and sample calls.
#include <fmt/format.h>
#include <yard/verify.h>

#include <iterator>
#include <sstream>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"
#include "dispatch/core.h"
#include "functions/functions.h"
#include "plugin/loader.h"
#include "verify/canary.h"
#include "verify/conformance.h"
#include "verify/parsed_call.h"

namespace yard {
namespace {

using verification::OpUnderTest;

Status check_names(const detail::Core& core, const dispatch::Snapshot& s, const VerifyOptions& o) {
  if (!o.op.empty() && s.state->find(o.op) == nullptr) return core.sites.unknown_op(*s.state, o.op);
  std::vector<std::string> kernels;
  for (const auto& [name, op_record] : s.state->op_records)
    for (const auto& [id, k] : op_record->kernels) kernels.push_back(id);
  const auto known = [](const std::string& name, const std::vector<std::string>& names,
                        const char* what) {
    if (name.empty() || base::contains(names, name)) return Status();
    return Status(Code::kNotFound, fmt::format("there is no {} '{}'{}", what, name,
                                               base::did_you_mean(name, names)));
  };
  YARD_RETURN_IF_ERROR(known(o.kernel, kernels, "kernel"));
  return known(o.backend, base::keys(s.state->backends), "backend");
}

// Returns the kernels that the options name, by op. Kernels of a named plugin hold `keep`.
Result<std::vector<OpUnderTest>> ops_under_test(const detail::Core& core,
                                                const dispatch::Snapshot& s, const VerifyOptions& o,
                                                const void* keep) {
  std::map<std::string, std::vector<op::Call>> calls;
  for (const std::string& text : o.calls) {
    YARD_ASSIGN_OR_RETURN(const auto spec, op::parse_call_spec(text));
    const registry::OpRecord* op_record = s.state->find(spec.op);
    if (op_record == nullptr) return core.sites.unknown_op(*s.state, spec.op);
    YARD_ASSIGN_OR_RETURN(auto call,
                          op::Call::from_spec(*op_record->op->program, spec, &op_record->op->d));
    calls[spec.op].push_back(std::move(call));
  }
  std::vector<OpUnderTest> to;
  for (const auto& [name, op_record] : s.state->op_records) {
    if ((!o.op.empty() && o.op != name) || (!o.calls.empty() && !calls.contains(name))) continue;
    OpUnderTest of_op{op_record, {}, {core.host, s.forked}, calls[name]};
    for (const auto& [id, k] : op_record->kernels)
      if ((o.kernel.empty() || o.kernel == id) &&
          (o.backend.empty() || o.backend == k->backend_name) &&
          (o.plugin.empty() || k->keep.get() == keep))
        of_op.kernels.insert(id);
    if (!of_op.kernels.empty()) to.push_back(std::move(of_op));
  }
  return to;
}

// Fails unless some kernel declares each option. Weights need not be declared.
Status check_options(const std::vector<OpUnderTest>& all, const VerifyOptions& o) {
  std::vector<std::string> names;
  for (const OpUnderTest& subject : all)
    for (const auto& [id, k] : subject.op_record->kernels)
      if (k->options != nullptr)
        for (const op::Param& p : k->options->params)
          if (!base::contains(names, p.name)) names.push_back(p.name);
  for (const Arg& a : o.options)
    if (!base::contains(names, a.name))
      return Status(Code::kNotFound,
                    fmt::format("no kernel has an option '{}'{}", a.name,
                                names.empty() ? "" : "; expected " + base::one_of(names)));
  for (const Arg& a : o.weights)
    if (a.name.empty() || a.value.c().tag != YARD_TAG_TENSOR)
      return Status(Code::kInvalidArgument,
                    fmt::format("invalid weight '{}': expected a named tensor", a.name));
  return {};
}

// Verifies the functions that the options name, but none if the options name an op or a kernel.
Result<std::vector<FunctionReport>> verify_functions(const Runtime& runtime, const VerifyOptions& o,
                                                     const void* keep) {
  if (!o.op.empty() || !o.kernel.empty() || !o.calls.empty()) return std::vector<FunctionReport>();
  Functions functions = runtime.functions();
  if (const size_t slash = o.function.find('/'); slash != std::string::npos) {
    if (o.plugin.empty()) YARD_RETURN_IF_ERROR(functions.load(o.function.substr(0, slash)));
    YARD_RETURN_IF_ERROR(functions.find(o.function).status());
  }
  return functions.service().verify(o, keep);
}

Result<const registry::Kernel*> kernel_of(const registry::OpRecord& op_record,
                                          std::string_view id) {
  if (const registry::Kernel* found = verification::find_kernel(op_record, id)) return found;
  return Status(Code::kNotFound,
                fmt::format("op '{}' has no kernel {}{}", op_record.op->name, base::excerpt(id),
                            base::did_you_mean(id, base::keys(op_record.kernels))));
}

template <class Rule>
void add_unmet(const Config& config, const std::vector<Rule>& rules, const char* section,
               const std::vector<bool>& met, std::vector<std::string>& to) {
  for (size_t i = 0; i < rules.size(); ++i)
    if (const Rule& r = rules[i]; !met[i])
      to.push_back(fmt::format("{}{}[{}]{}", r.name.empty() ? "" : "'" + r.name + "', ", section, i,
                               policy::place_text(config, r.at)));
}

Result<CanaryReplay> replay_dump(const Runtime& runtime, const CanaryDump& dump,
                                 std::string_view kernel) {
  detail::Core& core = runtime.core();
  YARD_ASSIGN_OR_RETURN(const auto spec, op::parse_call_spec(dump.mismatch.call));
  YARD_ASSIGN_OR_RETURN(const auto found, core.sites.find(spec.op));
  const auto op_record = found.snapshot->state->op_records.find(spec.op)->second;
  const registry::Op& op = *op_record->op;
  YARD_ASSIGN_OR_RETURN(const auto call, op::Call::from_spec(*op.program, spec, &op.d));

  YARD_ASSIGN_OR_RETURN(const auto tried,
                        kernel_of(*op_record, kernel.empty() ? dump.mismatch.kernel : kernel));
  const registry::Kernel* right = verification::reference_kernel(*op_record);
  if (!dump.mismatch.against.empty()) {
    YARD_ASSIGN_OR_RETURN(right, kernel_of(*op_record, dump.mismatch.against));
  }
  if (right == nullptr)
    return Status(Code::kNotFound, fmt::format("op '{}' has no reference kernel", op.name));
  const OpUnderTest subject{op_record, {}, {core.host, found.snapshot->forked}};
  const verification::KernelRunner candidate(subject, *tried), oracle(subject, *right);
  for (const auto* runner : {&oracle, &candidate})
    if (const auto why = runner->refusal(call))
      return Status(Code::kUnsupported, fmt::format("kernel '{}' does not take the call: {}",
                                                    runner->kernel().id, why->what));

  const ParsedCall parsed = verification::parsed_call(*op.program, call);
  YARD_RETURN_IF_ERROR(CallTensors::check(parsed, 2));
  CallTensors results(parsed, 1), expected(parsed, 1);
  YARD_RETURN_IF_ERROR(results.fill(dump.inputs));
  YARD_RETURN_IF_ERROR(expected.fill(dump.inputs));
  // The oracle runs first: it rejects inputs that are invalid, such as indices beyond a table.
  if (Status ran = oracle.run(call.flags(), expected); !ran.ok())
    return std::move(ran).note("while running the kernel that is right");

  CanaryReplay to;
  to.op = op.name, to.kernel = tried->id, to.against = right->id, to.call = parsed.text;
  to.status = candidate.run(call.flags(), results);
  to.damage = results.damage();
  if (to.status.ok())
    to.difference = verification::compare_results(
        op, results.written(), expected, verification::tolerances_of(op, dump.rtol, dump.atol));
  return to;
}

constexpr const char* kForm = "KERNEL OP CALLSPEC : unsupported|fails : reason";

// Returns an error, or an empty text. Colons stand alone, because no CallSpec contains one.
std::string read_expectation(const std::vector<std::string>& words, Expectation& to) {
  const auto join = [](auto from, auto end) {
    return fmt::format("{}", fmt::join(from, end, " "));
  };
  const auto first = std::ranges::find(words, ":");
  const auto second = std::find(first == words.end() ? first : first + 1, words.end(), ":");
  if (second == words.end())
    return fmt::format("expected `{}`, with blanks around each ':'", kForm);
  if (first - words.begin() < 3)
    return fmt::format(
        "expected three globs before the first ':', for kernel, op and call; got '{}'",
        join(words.begin(), first));
  to.kernel = words[0], to.op = words[1], to.call = join(words.begin() + 2, first);
  const std::string kind = join(first + 1, second);
  if (kind != "unsupported" && kind != "fails")
    return fmt::format("expected 'unsupported' or 'fails', got '{}'{}", kind,
                       base::did_you_mean(kind, {"unsupported", "fails"}));
  to.kind = kind == "fails" ? Expectation::Kind::kFails : Expectation::Kind::kUnsupported;
  to.reason = join(second + 1, words.end());
  return to.reason.empty() ? "the reason is missing: expected it after the second ':'" : "";
}

}  // namespace

Result<std::vector<Expectation>> parse_expectations(std::string_view text, std::string_view name) {
  std::vector<Expectation> to;
  std::vector<std::string> problems;
  int number = 0;
  for (const std::string_view line : base::split(text, '\n')) {
    ++number;
    std::istringstream in{std::string(line)};
    const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    if (words.empty() || words[0].starts_with('#')) continue;
    Expectation e;
    e.line = number;
    const std::string problem = read_expectation(words, e);
    if (problem.empty())
      to.push_back(std::move(e));
    else
      problems.push_back(fmt::format("{}:{}: {}", name, number, problem));
  }
  if (problems.empty()) return to;
  Status s(Code::kParse, problems[0]);
  for (size_t i = 1; i < problems.size(); ++i) s.note(problems[i]);
  return s;
}

size_t VerifyReport::failed() const noexcept {
  size_t n = 0;
  for (const KernelReport& k : kernels) n += k.failed;
  return n;
}

size_t VerifyReport::broken() const noexcept {
  return static_cast<size_t>(
      std::ranges::count(functions, FunctionReport::State::kBroken, &FunctionReport::state));
}

bool VerifyReport::any_passed() const noexcept {
  return std::ranges::any_of(kernels, [](const KernelReport& k) { return k.passed > 0; }) ||
         std::ranges::any_of(functions,
                             [](const FunctionReport& f) { return f.samples > f.broken; });
}

Result<VerifyReport> verify(const Runtime& runtime, const VerifyOptions& options) {
  auto s = runtime.core().snapshot();
  const auto need = [&](const std::string& op) {
    if (runtime.core().sites.first_need(op, s->state->find(op))) s = runtime.core().snapshot();
  };
  if (!options.op.empty()) need(options.op);
  for (const std::string& call : options.calls)
    if (const auto spec = op::parse_call_spec(call); spec.ok()) need(spec->op);
  const void* keep = nullptr;
  if (!options.plugin.empty()) {
    keep = runtime.plugins().loader().keep_of(options.plugin);
    if (keep == nullptr)
      return Status(Code::kNotFound, fmt::format("no plugin '{}' is loaded", options.plugin));
  }
  YARD_RETURN_IF_ERROR(check_names(runtime.core(), *s, options));
  YARD_ASSIGN_OR_RETURN(auto all, ops_under_test(runtime.core(), *s, options, keep));
  if (!options.function.empty()) all.clear();
  YARD_ASSIGN_OR_RETURN(auto functions, verify_functions(runtime, options, keep));
  YARD_RETURN_IF_ERROR(check_options(all, options));
  if (all.empty() && functions.empty())
    return Status(Code::kNotFound,
                  "no kernel is of that plugin, op, backend and id all at once, and no function "
                  "of that plugin and backend");
  VerifyReport report;
  report.functions = std::move(functions);
  const auto add = [&](std::vector<KernelReport> more) {
    std::ranges::move(more, std::back_inserter(report.kernels));
  };
  if (!options.plugin.empty() && options.calls.empty()) {
    for (const OpUnderTest& subject : all) add(verification::run_smoke_test(subject, options));
    if (options.smoke_test_only || report.failed() > 0) return report;
    report.kernels.clear();
  }
  std::vector<bool> used(options.expectations.size(), false);
  for (size_t i = 0; i < all.size() && !report.cancelled; ++i) {
    VerifyOptions::Progress progress;
    progress.op = all[i].op_record->op->name, progress.op_index = i, progress.op_count = all.size();
    progress.failed = report.failed();
    VerifyReport of_op = verification::check_conformance(all[i], options, used, progress);
    report.cancelled = of_op.cancelled;
    add(std::move(of_op.kernels));
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) report.unused.push_back(options.expectations[i]);
  return report;
}

Result<Difference> compare_results(const Runtime& runtime, std::string_view op,
                                   const CallTensors& found, const CallTensors& expected) {
  return base::or_out_of_memory([&]() -> Result<Difference> {
    YARD_ASSIGN_OR_RETURN(const auto site, runtime.core().sites.find(op));
    const registry::Op& o = *site.snapshot->state->op_records.find(op)->second->op;
    return verification::compare_results(o, found.written(), expected, o.tolerances);
  });
}

Result<CanaryReplay> replay(const Runtime& runtime, const CanaryDump& dump,
                            std::string_view kernel) {
  return base::or_out_of_memory([&] { return replay_dump(runtime, dump, kernel); });
}

std::vector<std::string> unmet_rules(const Runtime& runtime, std::span<const std::string> calls) {
  const auto s = runtime.core().snapshot();
  const auto file = s->policy->file;
  if (file == nullptr) return {};
  const Config& config = file->config;
  std::vector<bool> rules(config.dispatch_rules.size()), scores(config.score.size());
  for (const std::string& text : calls) {
    auto spec = op::parse_call_spec(text);
    const registry::OpRecord* op_record = spec.ok() ? s->state->find(spec->op) : nullptr;
    if (op_record == nullptr) continue;
    spec->labels.insert(spec->labels.end(), s->policy->labels.begin(), s->policy->labels.end());
    const auto call = op::Call::from_spec(*op_record->op->program, *spec, &op_record->op->d);
    const auto of_op = file->rules_for(op_record->op->program);
    if (!call.ok() || of_op == nullptr) continue;
    for (const uint32_t i :
         of_op->match({call->args(), call->flags(), call->device(), &call->labels()})) {
      const policy::Clause& c = of_op->clauses()[i];
      (c.act == policy::Clause::Act::kScore ? scores : rules)[c.source] = true;
    }
  }
  std::vector<std::string> to;
  add_unmet(config, config.dispatch_rules, "dispatch_rules", rules, to);
  add_unmet(config, config.score, "score", scores, to);
  return to;
}

Result<std::vector<std::string>> sample_calls(const Runtime& runtime, std::string_view op,
                                              std::span<const Config> configs, size_t limit) {
  YARD_ASSIGN_OR_RETURN(const auto found, runtime.core().sites.find(op));
  const registry::Op& record = *found.record->op;
  return verification::sample_calls(*record.program, &record.d, configs, limit);
}

}  // namespace yard
