// SPDX-License-Identifier: Apache-2.0
// The composition root: a runtime is a core, its host table and the built-in backends.
#include <fmt/format.h>
#include <yard/call_spec.h>
#include <yard/op.h>
#include <yard/runtime.h>

#include <algorithm>

#include "base/cancellation.h"
#include "base/dispose.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "dispatch/call.h"
#include "dispatch/policy_changes.h"
#include "op/bind.h"
#include "op/call.h"
#include "plugin/loader.h"
#include "provider/function_service.h"
#include "provider/hook_service.h"
#include "registry/changes.h"
#include "registry/descriptors.h"
#include "runtime/host.h"
#include "runtime/inspect.h"
#include "runtime/maintenance.h"
#include "runtime/reload.h"
#include "runtime/rules.h"
#include "tune/call_copy.h"
#include "tune/canary.h"

namespace yard::detail {

Site* attach(Runtime* runtime, const char* name, const char* letters, Status* why) {
  return (runtime != nullptr ? *runtime : Runtime::shared())
      .core()
      .sites.attach(name, letters, why);
}

}  // namespace yard::detail

namespace yard {

// Everything a runtime consists of.
struct Runtime::Parts final : detail::CoreServices {
  Parts(const RuntimeSettings& s, Runtime& self)
      : settings(s),
        core(&host.table, s.plans_per_op, s.environment),
        loader(s.plugins, plugin_services()),
        inspect({self, core, reloader}, s.inspect) {
    host.core = &core;
    core.set_services(this);
  }
  // Threads of the parts below may still publish something, which nothing needs to follow any more.
  ~Parts() { core.set_services(nullptr); }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  // ---- detail::CoreServices ----
  registry::LazyLoader* lazy_loader() noexcept override { return &loader; }
  Status check_change(const registry::State& before, const registry::State& after) override {
    return hooks.check(before, after);
  }
  // Each part compares the current snapshot with the one it has seen, and does nothing where that is the same. Hooks and
  // functions come first: calls read their tables. RuleFollower may publish again (a recorder), which leads here again.
  void on_change() override {
    hooks.follow();
    functions.follow();
    rules.follow();
  }
  std::shared_ptr<registry::Inspector> make_inspector(
      const std::vector<CanaryRule>& canary,
      const std::shared_ptr<const registry::OpRecord>& op_record,
      const select::ProcessState& where) override {
    return tune::make_canary(canary, op_record, where, canaries);
  }
  void on_health() noexcept override { maintenance.wake(); }
  void add_successes(std::vector<health::Successes>& to) override { functions.add_successes(to); }
  void in_child() noexcept override { hooks.restart_in_child(); }

  // ---- What plugins and functions ask of the others ----
  plugin::Services plugin_services() {
    plugin::Services s;
    s.host = core.host;
    s.apply = [this](const auto& steps) {
      YARD_RETURN_IF_ERROR(core.published.apply(steps).status());
      base::if_memory_allows([&] { close_breakers_of_replaced(steps); });
      return Status();
    };
    s.in_use = [this](const std::string& op) { return core.sites.in_use(op); };
    s.hook_in_use = [this](const std::string& hook) { return hooks.table().in_use(hook); };
    s.group_in_use = [this](const std::string& group) { return functions.in_use(group); };
    s.device_features = [this] { return host.stated(); };
    s.choosing = [] { return select::inside_select(); };
    return s;
  }

  // What opened them was other code.
  void close_breakers_of_replaced(const std::vector<registry::Step>& steps) {
    const auto replaces = [](const registry::Step& s) {
      const auto* const removed = std::get_if<registry::RemoveKept>(&s);
      return removed != nullptr && removed->replaced;
    };
    if (std::none_of(steps.begin(), steps.end(), replaces)) return;
    bool changed = false;
    for (const registry::Step& s : steps)
      if (const auto* const added = std::get_if<registry::AddBackend>(&s))
        changed |= core.board->replaced(added->backend->name, std::chrono::steady_clock::now());
    if (changed) maintenance.publish_now();
  }

  RuntimeSettings settings;
  runtime::Host host;
  std::shared_ptr<tune::CanaryState> canaries = std::make_shared<tune::CanaryState>();
  detail::Core core;
  plugin::Loader loader;
  provider::HookService hooks{core, loader};
  provider::FunctionService functions{core, loader, [this](Changes c) {
                                        return c.list_->problem.ok()
                                                   ? core.published.apply(c.list_->steps).status()
                                                   : c.list_->problem;
                                      }};
  Status initialized;
  runtime::RuleFollower rules{core, loader, [this] { maintenance.wake(); }};
  // These last, as their threads use the rest.
  runtime::Maintenance maintenance{core};
  runtime::Reloader reloader{core, loader};
  runtime::Inspect inspect;
};

namespace {

Result<std::vector<registry::Step>> builtin_steps(const yard_host_t* host) {
  std::vector<registry::Step> steps;
  for (yard_plugin_query_t query : runtime::builtin_backends()) {
    const yard_plugin_t* plugin = query(YARD_ABI_VERSION, host);
    if (plugin == nullptr) continue;
    YARD_RETURN_IF_ERROR(
        registry::read_plugin(*plugin, nullptr, steps, registry::Origin::From::kBuiltIn));
  }
  return steps;
}

Status add_builtin(detail::Core& core) {
  auto steps = builtin_steps(core.host);
  if (!steps.ok()) return std::move(steps).status();
  return core.published.apply(*steps).status();
}

std::vector<op::Given> given(std::span<const Arg> args) {
  std::vector<op::Given> to;
  for (const Arg& a : args) to.push_back({a.name, a.value.c()});
  return to;
}

Resolution shorten(const Explanation& e) {
  Resolution r;
  r.op = e.op, r.kernel = e.selected, r.generation = e.generation;
  for (const Candidate& c : e.candidates) {
    if (c.verdict == "selected")
      r.backend = c.backend, r.vendor = c.vendor, r.kind = c.kind;
    else if (c.verdict == "able")
      r.fallbacks.push_back(c.id);
  }
  return r;
}

Result<Resolution> resolution(Result<Explanation> e) {
  if (!e.ok()) return std::move(e).status();
  if (!e->selected.empty()) return shorten(*e);
  Status s(Code::kNoKernel,
           fmt::format("no kernel of op '{}' is allowed, able and healthy for {}", e->op, e->call));
  for (const Candidate& c : e->candidates)
    s.note(fmt::format("{}: {}: {}", c.id, c.reason, c.detail));
  return s;
}

// An op of the current snapshot with arguments bound to its schema.
struct Named : detail::FoundOp {
  op::Arguments arguments;
};

Result<Named> name_arguments(const detail::Core& core, std::string_view op,
                             std::span<const Arg> args,
                             op::Positional positional = op::Positional::kAll) {
  auto found = core.sites.find(op);
  if (!found.ok()) return std::move(found).status();
  Named n{*std::move(found), {}};
  auto bound = op::bind(*n.record->op->program, given(args), positional);
  if (!bound.ok()) return std::move(bound).status();
  n.arguments = *bound;
  return n;
}

Result<op::Call> checked_call(const Named& n, const Options& o) {
  const op::Program& program = *n.record->op->program;
  const detail::WithFacts facts(n.arguments.values, n.arguments.count);
  YARD_RETURN_IF_ERROR(program.explain_mismatch(facts.args(), n.arguments.count));
  return detail::scoped_call(program, facts.args(), o);
}

}  // namespace

Runtime::Runtime() : Runtime(RuntimeSettings()) {}
Runtime::Runtime(const RuntimeSettings& settings)
    : parts_(std::make_unique<Parts>(settings, *this)) {
  if (settings.breakers != BreakerSettings()) {
    if (Status s = detail::set_breakers(parts_->core, settings.breakers); !s.ok())
      base::log(LogLevel::kError, "runtime", std::string(s.message()));
  }
  parts_->initialized = parts_->host.state(settings.device_features);
  if (parts_->initialized.ok() && settings.builtin_backends)
    parts_->initialized = add_builtin(parts_->core);
  for (const auto& [name, provider] : settings.modes)
    if (Status s = add_mode(name, provider); !s.ok() && parts_->initialized.ok())
      parts_->initialized = std::move(s);
  // Problems of the environment are logged; they do not keep the runtime from working.
  if (settings.environment)
    reload_environment().ignore();
  else
    parts_->loader.discover({}).ignore();
  if (!settings.config.empty()) parts_->reloader.load(settings.config, nullptr, true).ignore();
}
Runtime::~Runtime() {
  parts_->inspect.end();
  stop_recording().ignore();  // an error has been logged
  const base::MayWait for_plugins;
  parts_.reset();
}

// Never destroyed: calls may come until the process ends.
Runtime& Runtime::shared() {
  static constinit base::Lazy<Runtime> runtime([] {
    const base::CancellationOff deferred;
    auto* made = new Runtime;
    made->parts_->functions.serve();
    made->parts_->inspect.is_shared();
    return made;
  });
  return runtime.get();
}

detail::Core& Runtime::core() const noexcept { return parts_->core; }

Status Runtime::ensure_initialized() { return parts_->initialized; }

Status Runtime::state_device_features(const std::vector<std::string>& features) {
  return base::or_out_of_memory([&]() -> Status {
    YARD_RETURN_IF_ERROR(parts_->host.state(features));
    YARD_RETURN_IF_ERROR(parts_->core.published.replan_all());
    const Status searched = parts_->loader.discover({});
    // A loaded plugin whose file has changed has nothing to do with features.
    return searched.code() == Code::kWouldDeadlock ? searched : Status();
  });
}

Status Runtime::reset() {
  return base::or_out_of_memory([&]() -> Status {
    std::vector<registry::Step> steps;
    if (parts_->settings.builtin_backends) {
      auto builtin = builtin_steps(parts_->core.host);
      if (!builtin.ok()) return std::move(builtin).status();
      steps = *std::move(builtin);
    }
    YARD_RETURN_IF_ERROR(parts_->core.published.start_over(steps));
    parts_->loader.reset();
    parts_->hooks.reset();
    parts_->functions.reset();
    return {};
  });
}

Health Runtime::health() const noexcept { return Health(parts_->maintenance); }
CanaryReport Runtime::canaries() const { return parts_->canaries->report(); }

Hooks Runtime::hooks() const noexcept { return Hooks(parts_->hooks); }
Functions Runtime::functions() const noexcept { return Functions(parts_->functions); }
Plugins Runtime::plugins() const noexcept { return Plugins(parts_->loader); }

Result<Ticket> Runtime::apply_with_ticket(Changes changes) {
  return base::or_out_of_memory([&]() -> Result<Ticket> {
    if (!changes.list_->problem.ok()) return changes.list_->problem;
    return parts_->core.published.apply(changes.list_->steps);
  });
}

Status Runtime::apply(Changes changes) { return apply_with_ticket(std::move(changes)).status(); }

Policy Runtime::policy() const { return parts_->core.snapshot()->policy->in_force; }
Status Runtime::set_policy(Policy policy) {
  return base::or_out_of_memory(
      [&] { return detail::set_policy(parts_->core, std::move(policy)); });
}
Status Runtime::reset_policy() {
  return base::or_out_of_memory([&] { return detail::set_policy(parts_->core, {}); });
}

Status Runtime::reload_environment() {
  return base::or_out_of_memory([&]() -> Status {
    const auto s = parts_->core.snapshot();
    auto reading = runtime::read_environment(*s->policy->reading);
    const Status problem = runtime::first_error(*reading);
    if (reading->good != s->policy->reading->good || !reading->problems.empty() ||
        !s->policy->reading->problems.empty() || !s->policy->own_switches.empty())
      YARD_RETURN_IF_ERROR(detail::set_environment(parts_->core, std::move(reading)));
    const policy::Environment before = s->policy->reading->good;
    const policy::Environment now = parts_->core.snapshot()->policy->reading->good;
    parts_->loader.set_environment(
        {now.plugins, now.plugin_path, parse_plugin_probe(now.plugin_probe)});
    parts_->functions.check_verifiers(now.check_verifiers);
    parts_->inspect.allow(parts_->settings.inspect && now.inspect.value_or(true));
    // Plugins that have been found may bring what the environment names.
    const auto found = parts_->core.snapshot();
    if (auto more = runtime::with_unknown_names(*found->policy->reading, *found->state,
                                                runtime::announced(parts_->loader)))
      YARD_RETURN_IF_ERROR(detail::set_environment(parts_->core, std::move(more)));
    Status recording;
    if (now.record != before.record)
      recording = now.record.empty() ? stop_recording()
                                     : record_to(now.record).note("named by YARD_RECORD");
    if (now.verbose != before.verbose)
      YARD_RETURN_IF_ERROR(set_verbose(now.verbose.empty() ? 0 : now.verbose[0] - '0'));
    // After plugins: a file may name what they bring.
    Status read;
    if (parts_->settings.config.empty() && now.config != before.config)
      read = parts_->reloader.load(now.config, nullptr, true).note("named by YARD_CONFIG");
    if (!problem.ok()) return problem;
    return read.ok() ? recording : read;
  });
}

std::vector<Problem> Runtime::problems() const {
  std::vector<Problem> to;
  const auto s = parts_->core.snapshot();
  for (const policy::EnvProblem& p : s->policy->reading->problems)
    to.push_back({p.variable, p.found, p.message, p.error});
  for (const auto& [backend, own] : s->policy->own_switches)
    if (own.problem)
      to.push_back({own.problem->variable, own.problem->found, own.problem->message, true});
  std::vector<ConfigProblem> of_rules = parts_->reloader.problems();
  // Problems that were found later may have been found again in rules that were refused.
  for (ConfigProblem& p : parts_->rules.problems())
    if (std::find(of_rules.begin(), of_rules.end(), p) == of_rules.end())
      of_rules.push_back(std::move(p));
  for (const ConfigProblem& p : of_rules)
    to.push_back({fmt::format("{}:{}:{}", p.file, p.line, p.column), p.found, yard::to_string(p),
                  p.severity == Severity::kError});
  for (const std::string& text : parts_->canaries->problems())
    to.push_back({"canary", "", text, false});
  return to;
}

Status Runtime::load_config(const std::string& path, std::vector<ConfigProblem>* problems) {
  return base::or_out_of_memory([&] { return parts_->reloader.load(path, problems); });
}

Status Runtime::set_config(Config config, std::vector<ConfigProblem>* problems) {
  return base::or_out_of_memory([&] { return parts_->reloader.set(std::move(config), problems); });
}

Status Runtime::watch_config(const std::string& path, const WatchSettings& settings,
                             std::vector<ConfigProblem>* problems) {
  return base::or_out_of_memory([&] { return parts_->reloader.watch(path, settings, problems); });
}

void Runtime::unwatch_config() { parts_->reloader.unwatch(); }

std::vector<ConfigVersion> Runtime::config_history() const { return parts_->reloader.history(); }

Status Runtime::rollback_config(uint64_t number, std::vector<ConfigProblem>* problems) {
  return base::or_out_of_memory([&] { return parts_->reloader.roll_back(number, problems); });
}

uint64_t Runtime::add_config_validator(ConfigValidator validator) {
  return parts_->reloader.add(std::move(validator));
}

uint64_t Runtime::on_config(ConfigListener listener) {
  return parts_->reloader.add(std::move(listener));
}

void Runtime::remove_config_callback(uint64_t id) { parts_->reloader.remove(id); }

Config Runtime::config() const {
  const auto s = parts_->core.snapshot();
  return s->policy->file != nullptr ? s->policy->file->config : Config();
}

std::vector<ConfigProblem> Runtime::check_config(const std::string& path) const {
  ConfigReading reading = read_config(path);
  const auto s = parts_->core.snapshot();
  runtime::make_rules(reading, *s->state, *s->policy, runtime::announced(parts_->loader));
  return std::move(reading.problems);
}

Status Runtime::set_labels(std::map<std::string, std::string, std::less<>> labels) {
  return base::or_out_of_memory([&] {
    return detail::set_labels(parts_->core, {labels.begin(), labels.end()});
  });
}

Status Runtime::set_static_map(StaticMap map) {
  return base::or_out_of_memory(
      [&] { return detail::set_static_map(parts_->core, std::move(map)); });
}

StaticMap Runtime::static_map() const { return parts_->core.snapshot()->policy->mapped; }

Status Runtime::add_mode(std::string_view name, ModeProvider provider) {
  return base::or_out_of_memory([&]() -> Status {
    auto mode = policy::make_mode(name, std::move(provider));
    if (!mode.ok()) return std::move(mode).status();
    return detail::add_mode(parts_->core, *std::move(mode));
  });
}

Status Runtime::remove_mode(std::string_view name) {
  return base::or_out_of_memory([&] { return detail::remove_mode(parts_->core, name); });
}

RuntimeStats Runtime::stats(bool with_calls) const {
  RuntimeStats to = parts_->core.planner.stats();
  if (with_calls) parts_->core.calls->read(to);
  to.reloads = parts_->reloader.stats();
  const exec::States::Held held = parts_->core.held_states();
  to.states = held.states, to.state_bytes = held.bytes;
  return to;
}
void Runtime::reset_stats() {
  parts_->core.calls->reset();
  parts_->reloader.reset_stats();
}

Status Runtime::call(std::string_view op, std::span<const Arg> args) {
  return Status::adopt(detail::call_named(parts_->core, op, args));
}

Status Runtime::call(std::string_view op, std::span<const Arg> args, const Options& o) {
  return base::or_out_of_memory([&]() -> Status {
    op::Arguments bound;
    auto site = detail::bind_named(parts_->core, op, args, bound);
    if (!site.ok()) return std::move(site).status();
    return detail::call_slow(**site, bound.values, bound.count, &o);
  });
}

Status Runtime::call(std::string_view op, std::initializer_list<Arg> args) {
  return call(op, std::span(args.begin(), args.size()));
}
Status Runtime::call(std::string_view op, std::initializer_list<Arg> args, const Options& o) {
  return call(op, std::span(args.begin(), args.size()), o);
}

Result<Explanation> Runtime::explain(std::string_view op, std::initializer_list<Arg> args,
                                     const Options& o) const {
  auto named = name_arguments(parts_->core, op, {args.begin(), args.size()});
  if (!named.ok()) return std::move(named).status();
  auto call = checked_call(*named, o);
  if (!call.ok()) return std::move(call).status();
  return detail::explain_call(parts_->core, *named->record, *call, o, *named->snapshot);
}

Result<Resolution> Runtime::resolve(std::string_view op, std::initializer_list<Arg> args,
                                    const Options& o) const {
  return resolution(explain(op, args, o));
}

Result<Explanation> Runtime::explain(std::string_view call_spec, const Options& o) const {
  auto spec = op::parse_call_spec(call_spec);
  if (!spec.ok()) return std::move(spec).status();
  return detail::explain_call(parts_->core, *spec, o);
}

Result<Resolution> Runtime::resolve(std::string_view call_spec, const Options& o) const {
  return resolution(explain(call_spec, o));
}

Result<ParsedCall> Runtime::parse(std::string_view call_spec) const {
  auto spec = op::parse_call_spec(call_spec);
  if (!spec.ok()) return std::move(spec).status();
  const auto found = parts_->core.sites.find(spec->op);
  if (!found.ok()) return found.status();
  const registry::Op& op = *found->record->op;
  auto call = op::Call::from_spec(*op.program, *spec, &op.d);
  if (!call.ok()) return std::move(call).status();
  return tune::parsed_call(*op.program, *call);
}

Result<std::string> Runtime::describe(std::string_view op, std::initializer_list<Arg> args,
                                      const Options& o) const {
  auto named = name_arguments(parts_->core, op, {args.begin(), args.size()});
  if (!named.ok()) return std::move(named).status();
  auto call = checked_call(*named, o);
  if (!call.ok()) return std::move(call).status();
  return op::to_string(call->to_spec(*named->record->op->program));
}

Result<std::vector<TensorView>> Runtime::infer(std::string_view op,
                                               std::initializer_list<Arg> args) const {
  auto named =
      name_arguments(parts_->core, op, {args.begin(), args.size()}, op::Positional::kInputs);
  if (!named.ok()) return std::move(named).status();
  const registry::Op& o = *named->record->op;
  const detail::WithFacts facts(named->arguments.values, named->arguments.count);
  auto outputs = o.program->infer_outputs(facts.args(), &o.d);
  if (!outputs.ok()) return std::move(outputs).status();
  std::vector<TensorView> to;
  for (const op::OutputSpec& s : *outputs) {
    if (!s.known) return Status(Code::kUnsupported, fmt::format("op '{}' has an output list", op));
    to.emplace_back(static_cast<void*>(nullptr), s.dtype,
                    std::span<const int64_t>(s.shape.dims, static_cast<size_t>(s.shape.rank)));
  }
  return to;
}

}  // namespace yard
