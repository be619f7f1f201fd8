// SPDX-License-Identifier: Apache-2.0
// The composition root: a runtime is a core, its host table and the built-in backends.
#include <fmt/format.h>
#include <pthread.h>
#include <yard/op.h>
#include <yard/runtime.h>

#include <algorithm>
#include <atomic>

#include "base/events.h"
#include "base/log.h"
#include "base/results.h"
#include "base/tasks.h"
#include "dispatch/call.h"
#include "dispatch/policy_changes.h"
#include "functions/functions.h"
#include "inspect/live_control.h"
#include "plugin/loader.h"
#include "registry/changes.h"
#include "rules/rules.h"
#include "runtime/host.h"
#include "runtime/maintenance.h"
#include "runtime/recording.h"
#include "verify/canary.h"

namespace yard {

using base::or_out_of_memory;

// ---- How call sites find their runtime: the shared one, unless an op names another ----

namespace detail {

Site* attach(Runtime* runtime, const char* name, const char* letters, Status* why) {
  Site* site = nullptr;
  const Status attached = or_out_of_memory([&] {
    Runtime& of = runtime != nullptr ? *runtime : Runtime::shared();
    site = of.core().sites.attach(name, letters, why);
  });
  if (!attached.ok() && why != nullptr) *why = attached;
  return site;
}

bool attach_function(FunctionSite& site) {
  return Runtime::shared().functions().service().attach(site);
}

FunctionExplanation explain_function(FunctionSite& site, const FunctionArgs& args) {
  return Runtime::shared().functions().service().explain(site, args);
}

const yard_host_t* ProgramTexts::host() noexcept { return Runtime::shared().core().host; }

}  // namespace detail

struct Runtime::Parts final : dispatch::CoreServices {
  Parts(const RuntimeSettings& s, Runtime& self)
      : settings(s),
        core(&host.table, s.plans_per_op, s.environment),
        loader(s.plugins, plugin_services()),
        inspect({self, core, rules}, s.inspect) {
    host.core = &core;
    core.set_services(this);
  }
  // The threads of the parts below may still publish changes, which need no follow-up any more.
  ~Parts() { core.set_services(nullptr); }

  registry::LazyLoader* lazy_loader() noexcept override { return &loader; }
  Status check_change(const registry::State& before, const registry::State& after) override {
    return functions.check_change(before, after);
  }
  // Following the rules may publish again (a recorder), which calls this function again.
  void on_change() override { rules.follow(); }
  std::shared_ptr<registry::ResultChecker> make_result_checker(
      const std::vector<CanaryRule>& canary,
      const std::shared_ptr<const registry::OpRecord>& op_record,
      const select::ProcessState& where) override {
    return verification::make_canary(canary, op_record, where, canaries);
  }
  void on_health() noexcept override { maintenance.wake(); }
  void add_successes(std::vector<health::Successes>& to) override { functions.add_successes(to); }
  void make_functions(const dispatch::Snapshot& old, dispatch::Snapshot& next) override {
    functions.make_tables(old, next);
  }
  void on_publication(const dispatch::Snapshot& next, bool after) noexcept override {
    functions.set_quiet(next, after);
  }

  Result<Ticket> apply(const Changes& changes) {
    if (!changes.list_->problem.ok()) return changes.list_->problem;
    return core.published.apply(changes.list_->steps);
  }

  plugin::Services plugin_services() {
    plugin::Services s;
    s.host = core.host, s.runtime = core.id;
    s.apply = [this](const auto& steps) {
      YARD_RETURN_IF_ERROR(core.published.apply(steps).status());
      base::or_out_of_memory([&] { close_breakers_of_replaced(steps); }).ignore();
      return Status();
    };
    s.in_use = [this](registry::PluginOffer what, const std::string& name) {
      return what == registry::PluginOffer::kOp ? core.sites.in_use(name) : functions.in_use(name);
    };
    s.choosing = [] { return select::inside_select(); };
    return s;
  }

  // Rules do not end a recording that the program or the environment has started.
  Status record_for_rules(const std::string& path) {
    const auto now = dispatch::find_observer<runtime::Recorder>(core);
    if (now != nullptr && now != recorder_of_rules.lock()) return {};
    YARD_RETURN_IF_ERROR(runtime::record(core, path.empty() ? nullptr : &path));
    recorder_of_rules = dispatch::find_observer<runtime::Recorder>(core);
    return {};
  }

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
  std::shared_ptr<verification::CanaryState> canaries =
      std::make_shared<verification::CanaryState>();
  detail::Core core;
  plugin::Loader loader;
  functions::Service functions{core, loader,
                               [this](const Changes& c) { return apply(c).status(); }};
  std::vector<Runtime::Problem> problems;  // problems of the settings
  std::weak_ptr<runtime::Recorder> recorder_of_rules;
  // Keep these last, because their threads use the other members.
  runtime::Maintenance maintenance{core};
  rules::Rules rules{core, loader, [this] { maintenance.wake(); },
                     [this](const std::string& path) { return record_for_rules(path); },
                     settings.output_directory};
  inspect::LiveControl inspect;
};

namespace {

Result<std::vector<registry::Step>> builtin_steps(const RuntimeSettings& settings,
                                                  const yard_host_t* host) {
  std::vector<registry::Step> steps;
  if (!settings.builtin_backends) return steps;
  for (const yard_plugin_query_t query : runtime::builtin_backends())
    if (const yard_plugin_t* const plugin = query(YARD_ABI_VERSION, host))
      YARD_RETURN_IF_ERROR(
          registry::read_plugin(*plugin, nullptr, steps, registry::Origin::From::kBuiltIn));
  return steps;
}

}  // namespace

Runtime::Runtime() : Runtime(RuntimeSettings()) {}
Runtime::Runtime(const RuntimeSettings& settings)
    : parts_(std::make_unique<Parts>(settings, *this)) {
  // Log problems of settings and environment. The runtime works in spite of them.
  const auto check = [&](const Status& s) {
    if (s.ok()) return;
    base::log(LogLevel::kError, "runtime", s.message());
    parts_->problems.push_back({"RuntimeSettings", "", std::string(s.message()), true});
  };
  if (settings.breakers != BreakerSettings())
    check(dispatch::set_breakers(parts_->core, settings.breakers));
  check(parts_->host.state(settings.device_features));
  if (const auto builtin = builtin_steps(settings, parts_->core.host); !builtin.ok())
    check(builtin.status());
  else if (!builtin->empty())
    check(parts_->core.published.apply(*builtin).status());
  for (const auto& [name, provider] : settings.modes) check(rules().add_mode(name, provider));
  if (settings.environment)
    rules().reload_environment().ignore();
  else
    parts_->loader.discover({}).ignore();
  if (!settings.config.empty()) parts_->rules.load(settings.config, nullptr, true).ignore();
}
Runtime::~Runtime() {
  parts_->inspect.allow(false);
  recording().stop().ignore();  // an error has been logged
  const base::EndTogether together;
  const uint64_t id = core().id;
  parts_.reset();
  base::forget_details(id);
}

// The shared runtime is never destroyed, because calls may come until the process ends.
Runtime& Runtime::shared() {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  static constinit std::atomic<Runtime*> shared{nullptr};
  if (Runtime* const made = shared.load(std::memory_order_acquire)) return *made;
  ::pthread_once(&once, [] {
    auto* const made = new Runtime;
    made->parts_->functions.serve();
    made->parts_->inspect.is_shared();
    shared.store(made, std::memory_order_release);
  });
  return *shared.load(std::memory_order_acquire);
}

detail::Core& Runtime::core() const noexcept { return parts_->core; }

Status Plugins::state_device_features(const std::vector<std::string>& features) {
  Runtime::Parts& parts = *runtime_->parts_;
  return or_out_of_memory([&]() -> Status {
    YARD_RETURN_IF_ERROR(parts.host.state(features));
    YARD_RETURN_IF_ERROR(parts.core.published.renew_entries());
    const Status searched = parts.loader.discover({});
    // Ignore errors of plugins whose files have changed, because they do not concern features.
    return searched.code() == Code::kWouldDeadlock ? searched : Status();
  });
}

Status Runtime::reset() {
  return or_out_of_memory([&]() -> Status {
    YARD_ASSIGN_OR_RETURN(const auto steps, builtin_steps(parts_->settings, parts_->core.host));
    YARD_RETURN_IF_ERROR(parts_->core.published.start_over(steps));
    parts_->loader.reset();
    parts_->functions.reset();
    return {};
  });
}

void add_provider(std::string group, FunctionSetup setup, std::string name) {
  Runtime::shared().functions().add_provider(std::move(group), std::move(setup), std::move(name));
}

Health Runtime::health() const noexcept { return Health(parts_->maintenance, *parts_->canaries); }
Rules Runtime::rules() const noexcept { return Rules(*this); }
Recording Runtime::recording() const noexcept { return Recording(*this); }
Functions Runtime::functions() const noexcept { return Functions(parts_->functions); }
Plugins Runtime::plugins() const noexcept { return Plugins(*this, parts_->loader); }

Result<Ticket> Runtime::apply(Changes changes) {
  return or_out_of_memory([&] { return parts_->apply(changes); });
}

Policy Runtime::policy() const { return parts_->core.snapshot()->policy->in_force; }
Status Runtime::set_policy(Policy policy) {
  return or_out_of_memory([&] { return dispatch::set_policy(parts_->core, std::move(policy)); });
}

Status Rules::reload_environment() {
  Runtime::Parts& parts = *runtime_->parts_;
  return or_out_of_memory([&]() -> Status {
    const auto s = parts.core.snapshot();
    auto reading = rules::read_environment(*s->policy->reading, [](const std::string& path) {
      return runtime::Recording::open(path).status();
    });
    if (reading->good != s->policy->reading->good || !reading->problems.empty() ||
        !s->policy->reading->problems.empty() || !s->policy->own_switches.empty())
      YARD_RETURN_IF_ERROR(dispatch::set_environment(parts.core, std::move(reading)));
    const policy::Environment before = s->policy->reading->good;
    const policy::Environment now = parts.core.snapshot()->policy->reading->good;
    const Status problem = rules::first_error(*parts.core.snapshot()->policy);
    parts.loader.set_environment({now.plugins, now.plugin_path});
    parts.inspect.allow(parts.settings.inspect && now.inspect.value_or(true));
    // Plugins that were found may bring names that the environment uses.
    const auto found = parts.core.snapshot();
    if (auto more = rules::with_unknown_names(*found->policy->reading, *found->state, parts.loader))
      YARD_RETURN_IF_ERROR(dispatch::set_environment(parts.core, std::move(more)));
    Recording recording = runtime_->recording();
    Status recorded;
    if (now.record != before.record)
      recorded = now.record.empty() ? recording.stop()
                                    : recording.to(now.record).note("named by YARD_RECORD");
    if (now.verbose != before.verbose)
      YARD_RETURN_IF_ERROR(recording.set_verbose(now.verbose.empty() ? 0 : now.verbose[0] - '0'));
    // Load rules after plugins, because a file may name things that plugins bring.
    Status read;
    if (parts.settings.config.empty() && now.config != before.config)
      read = parts.rules.load(now.config, nullptr, true).note("named by YARD_CONFIG");
    if (!problem.ok()) return problem;
    return read.ok() ? recorded : read;
  });
}

std::vector<Runtime::Problem> Runtime::problems() const {
  std::vector<Runtime::Problem> to = parts_->problems;
  const auto s = parts_->core.snapshot();
  for (const policy::EnvProblem& p : s->policy->reading->problems)
    to.push_back({p.variable, p.found, p.message, p.error});
  for (const auto& [backend, own] : s->policy->own_switches)
    if (own.problem)
      to.push_back({own.problem->variable, own.problem->found, own.problem->message, true});
  for (const ConfigProblem& p : parts_->rules.problems())
    to.push_back({fmt::format("{}:{}:{}", p.file, p.line, p.column), p.found, yard::to_string(p),
                  p.severity == Severity::kError});
  for (const std::string& text : parts_->canaries->problems())
    to.push_back({"canary", "", text, false});
  return to;
}

Status Rules::load(const std::string& path, std::vector<ConfigProblem>* problems) {
  return or_out_of_memory([&] { return runtime_->parts_->rules.load(path, problems); });
}

Status Rules::set(Config config, std::vector<ConfigProblem>* problems) {
  return or_out_of_memory([&] {
    return runtime_->parts_->rules.change(std::move(config), "Rules::set", problems, false);
  });
}

Status Rules::watch(const std::string& path, const WatchSettings& settings,
                    std::vector<ConfigProblem>* problems) {
  return or_out_of_memory([&] { return runtime_->parts_->rules.watch(path, settings, problems); });
}

void Rules::unwatch() { runtime_->parts_->rules.unwatch(); }
std::vector<ConfigVersion> Rules::history() const { return runtime_->parts_->rules.history(); }

Status Rules::roll_back(uint64_t number, std::vector<ConfigProblem>* problems) {
  return or_out_of_memory([&] { return runtime_->parts_->rules.roll_back(number, problems); });
}

uint64_t Rules::add_validator(ConfigValidator validator) {
  return runtime_->parts_->rules.validators.add(std::move(validator));
}

uint64_t Rules::on_change(ConfigListener listener) {
  return runtime_->parts_->rules.listeners.add(std::move(listener));
}

void Rules::remove_callback(uint64_t id) {
  runtime_->parts_->rules.listeners.remove(id);
  runtime_->parts_->rules.validators.remove(id);
}

Config Rules::config() const {
  const auto s = runtime_->core().snapshot();
  return s->policy->file != nullptr ? s->policy->file->config : Config();
}

std::vector<ConfigProblem> Rules::check(const std::string& path) const {
  ConfigReading reading = read_config(path);
  runtime_->parts_->rules.compile(reading);
  return std::move(reading.problems);
}

Status Rules::set_labels(std::map<std::string, std::string, std::less<>> labels) {
  return or_out_of_memory([&] {
    return dispatch::set_labels(runtime_->core(), {labels.begin(), labels.end()});
  });
}

Status Rules::set_static_map(StaticMap map) {
  return or_out_of_memory(
      [&] { return dispatch::set_static_map(runtime_->core(), std::move(map)); });
}

StaticMap Rules::static_map() const { return runtime_->core().snapshot()->policy->mapped; }

Status Rules::add_mode(std::string_view name, ModeProvider provider) {
  return or_out_of_memory([&]() -> Status {
    YARD_ASSIGN_OR_RETURN(auto mode, policy::make_mode(name, std::move(provider)));
    return dispatch::add_mode(runtime_->core(), std::move(mode));
  });
}

Status Rules::remove_mode(std::string_view name) {
  return or_out_of_memory([&] { return dispatch::remove_mode(runtime_->core(), name); });
}

RuntimeStats Runtime::stats(bool with_calls) const {
  RuntimeStats to = parts_->core.planner.stats();
  if (with_calls) parts_->core.calls->read(to);
  to.reloads = parts_->rules.stats();
  to.states = parts_->core.state_budget->states, to.state_bytes = parts_->core.state_budget->bytes;
  return to;
}
void Runtime::reset_stats() {
  parts_->core.calls->reset();
  parts_->rules.reset_stats();
}

}  // namespace yard
