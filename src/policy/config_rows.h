// SPDX-License-Identifier: Apache-2.0
// The fields of policies, rule files and the environment, one row each. The reader, the printer,
// merging, checks, the JSON Schema, policy notes and the environment visit these rows. A new field
// needs its declaration, its row, and the code that acts on it.
#pragma once

#include <yard/config.h>

#include <tuple>

#include "base/lists.h"
#include "policy/environment.h"
#include "policy/words.h"

namespace yard::policy {

struct KeyOptions {
  const char* fallback = "";       // the default, for docs
  const char* variable = nullptr;  // environment variable
  const char* section = nullptr;   // rule files set the field by this section instead
  bool replaces = false;           // a list of a stronger source replaces the list of a weaker one
  bool required = false;           // must be in the file
  bool always = false;             // printed even if it has its default
};
// The part of a row that does not depend on the type of the member.
struct Key : KeyOptions {
  const char* name;
  ValueForm form;
  const char* meaning;                     // for docs and editors
  std::span<const Key* const> inner = {};  // keys of a value that is a map or consists of maps
};
using Keys = std::span<const Key* const>;

template <class T, class M>
struct Field : Key {
  using Type = M;
  M T::*member;
  ConfigPlace T::*place;  // the member that keeps the place of the value, or null
};
template <class T>
inline constexpr std::nullptr_t kFields = nullptr;

// Structs that are maps in the file. A KernelRef is usually only an id.
template <class T>
concept HasFields =
    !std::is_same_v<decltype(kFields<T>), const std::nullptr_t> && !std::is_same_v<T, KernelRef>;

template <class M>
concept IsOptional = requires(M m) {
  m.has_value();
};
template <class M>
concept IsList = requires(M m) {
  m.emplace_back();
};
template <class M>
concept IsMap = requires {
  typename M::mapped_type;
};
template <class M>
concept IsEnum = std::is_enum_v<M>;

template <class M>
struct PartOf : std::type_identity<void> {};
template <class M>
requires IsOptional<M> || IsList<M>
struct PartOf<M> : std::type_identity<typename M::value_type> {
};
template <IsMap M>
struct PartOf<M> : std::type_identity<typename M::mapped_type> {};
// The type of an optional's value, a list's items or a map's values.
template <class M>
using Part = typename PartOf<M>::type;

// The rows without their members, for code that is compiled once.
template <class T>
inline constexpr auto kKeys = std::apply(
    [](const auto&... row) { return std::array<const Key*, sizeof...(row)>{&row...}; }, kFields<T>);
template <class M>
constexpr Keys keys_of() {
  if constexpr (HasFields<M>)
    return kKeys<M>;
  else if constexpr (HasFields<Part<M>>)
    return kKeys<Part<M>>;
  else
    return {};
}

template <class T, class M>
constexpr Field<T, M> field(const char* name, M T::*member, ValueForm form, const char* meaning,
                            KeyOptions options = {}, ConfigPlace T::*place = nullptr) {
  return {{options, name, form, meaning, keys_of<M>()}, member, place};
}

inline constexpr double kDay = 86'400, kMostCalls = 10'000, kMostStateBytes = 1e15;
inline constexpr int kDefaultPriority = 50, kMostPriority = 1000;
inline constexpr const char* kConfigVersion = "1.0";

inline constexpr const char* kKindWords[] = {"default", "vendor", "reference"};
inline constexpr const char* kRetryWords[] = {"never", "save"};
inline constexpr const char* kVerboseWords[] = {"0", "1", "2"};
inline constexpr const char* kCheckWords[] = {"values", "finite"};
inline constexpr const char* kFallbackModes[] = {"dynamic", "config"};

inline constexpr const char* kMayBeUnknown =
    "the op or the kernel may be unknown: a plugin may bring it later";

template <>
inline constexpr auto kFields<Policy> = std::tuple{
    field("prefer", &Policy::prefer, {shape::kWord, kKindWords, static_cast<int>(Kind::kDefault)},
          "the kind of kernel that comes first", {.variable = "YARD_PREFER"}),
    field("strict", &Policy::strict, shape::kSwitch, "no fallback: the first choice or its error",
          {.variable = "YARD_STRICT"}),
    field("retry_inplace", &Policy::retry_inplace, {shape::kWord, kRetryWords},
          "whether inputs that are written over are copied, so that another kernel can be tried",
          {.fallback = "never"}),
    field("reference_only", &Policy::reference_only, shape::kSwitch,
          "only reference kernels may run", {.variable = "YARD_DISABLE"}),
    field("per_op", &Policy::per_op, shape::kOpOrders, "what may run for an op, best first",
          {.variable = "YARD_PER_OP"}),
    field("allow_vendors", &Policy::allow_vendors, shape::kVendors,
          "the only vendors whose kernels may run", {.variable = "YARD_ALLOW_VENDORS"}),
    field("deny_vendors", &Policy::deny_vendors, shape::kVendors,
          "vendors whose kernels may not run", {.variable = "YARD_DENY_VENDORS"}),
    field("allow_kernels", &Policy::allow_kernels, shape::kGlobs, "the only kernels that may run",
          {.variable = "YARD_ALLOW_KERNELS", .section = "kernel_allows"}),
    field("deny_kernels", &Policy::deny_kernels, shape::kGlobs, "kernels that may not run",
          {.variable = "YARD_DENY_KERNELS", .section = "kernel_denies"}),
    field("locks", &Policy::locks, shape::kOpKernel, "the only kernel for an op",
          {.section = "kernel_locks"}),
    // Each backend has a separate variable, YARD_BACKEND_<NAME>.
    field("backends", &Policy::backends, shape::kSwitches, "switches single backends on or off"),
    field("transforms", &Policy::transforms, shape::kOpSwitches,
          "whether arguments may be copied for kernels that want another layout, dtype or padding",
          {.fallback = "true"}),
};

template <>
inline constexpr auto kFields<Environment> = std::tuple{
    field("config", &Environment::config, shape::kPath, "the rule file in force from the start",
          {.variable = "YARD_CONFIG"}),
    field("events", &Environment::events, shape::kPath, "the file that events are appended to",
          {.variable = "YARD_EVENTS"}),
    field("inspect", &Environment::inspect, shape::kSwitch,
          "whether the process answers on a socket", {.variable = "YARD_INSPECT"}),
    field("log_levels", &Environment::log_levels, shape::kLevels, "log levels",
          {.variable = "YARD_LOG_LEVEL"}),
    field("output_directory", &Environment::output_directory, shape::kFolder,
          "the folder below which rule files may have recordings and dumps written",
          {.variable = "YARD_OUTPUT_DIRECTORY"}),
    field("plugins", &Environment::plugins, shape::kText,
          "plugins to load before the plugins of YARD_PLUGIN_PATH", {.variable = "YARD_PLUGINS"}),
    field("plugin_path", &Environment::plugin_path, shape::kText, "where plugins are searched",
          {.variable = "YARD_PLUGIN_PATH"}),
    field("python_plugins", &Environment::python_plugins, shape::kText,
          "modules that the Python package loads", {.variable = "YARD_PYTHON_PLUGINS"}),
    field("record", &Environment::record, shape::kPath, "the file that calls are recorded to",
          {.variable = "YARD_RECORD"}),
    field("state_bytes", &Environment::state_bytes, {shape::kWhole, 0, kMostStateBytes},
          "bytes that states of kernels may hold together", {.variable = "YARD_STATE_BYTES"}),
    field("verbose", &Environment::verbose, {shape::kWord, kVerboseWords},
          "a line on standard error for each call; 2: also for selections and transforms",
          {.variable = "YARD_VERBOSE"}),
};

template <>
inline constexpr auto kFields<KernelRef> = std::tuple{
    field("kernel", &KernelRef::id, shape::kKernel, "the kernel", {.required = true},
          &KernelRef::at),
    field("optional", &KernelRef::optional, shape::kSwitch, kMayBeUnknown, {.fallback = "false"}),
};

template <>
inline constexpr auto kFields<Config::Defaults> = std::tuple{
    field("fallback_policy", &Config::Defaults::fallback_policy, shape::kKernels,
          "kernels to fall back to, in order, for ops without a chain of their own",
          {.replaces = true}),
    field("default_priority", &Config::Defaults::default_priority,
          {shape::kWhole, 0, kMostPriority}, "priority of rules that state none",
          {.fallback = "50"}),
};

template <>
inline constexpr auto kFields<DispatchRule> = std::tuple{
    field("name", &DispatchRule::name, shape::kText, "name of the rule in explanations"),
    field("description", &DispatchRule::description, shape::kText, "a comment"),
    field("operation", &DispatchRule::operation, shape::kOp, "the op, or a glob over ops",
          {.required = true}, &DispatchRule::operation_at),
    field("conditions", &DispatchRule::conditions, shape::kConditions,
          "what must hold of the call, all of it"),
    field("kernel", &DispatchRule::kernel, shape::kKernel,
          "the kernel that serves such calls, or a glob over kernels", {},
          &DispatchRule::kernel_at),
    field("deny", &DispatchRule::deny, shape::kGlobs, "kernels that may not serve such calls"),
    field("allow", &DispatchRule::allow, shape::kGlobs,
          "the only kernels that may serve such calls"),
    field("optional", &DispatchRule::optional, shape::kSwitch, kMayBeUnknown,
          {.fallback = "false"}),
    field("priority", &DispatchRule::priority, {shape::kWhole, 0, kMostPriority},
          "of rules that match, the highest goes first; of equals, the earlier",
          {.fallback = "defaults.default_priority"}),
};

template <>
inline constexpr auto kFields<ScoreRule> = std::tuple{
    field("name", &ScoreRule::name, shape::kText, "name of the entry in explanations"),
    field("description", &ScoreRule::description, shape::kText, "a comment"),
    field("operation", &ScoreRule::operation, shape::kOp, "the op, or a glob over ops",
          {.fallback = "*", .always = true}, &ScoreRule::operation_at),
    field("conditions", &ScoreRule::conditions, shape::kConditions,
          "what must hold of the call, all of it"),
    field("kernel", &ScoreRule::kernel, shape::kKernel, "the kernel, or a glob over kernels",
          {.required = true}, &ScoreRule::kernel_at),
    field("optional", &ScoreRule::optional, shape::kSwitch, kMayBeUnknown, {.fallback = "false"}),
    field("add", &ScoreRule::add, {shape::kNumber, -1e6, 1e6}, "added to the kernel's priority",
          {.fallback = "0"}),
    field("multiply", &ScoreRule::multiply, {shape::kNumber, 0, 1e6}, "the sum is multiplied by it",
          {.fallback = "1"}),
};

template <>
inline constexpr auto kFields<FunctionRule> = std::tuple{
    field("enabled", &FunctionRule::enabled, shape::kSwitch,
          "false: calls run the original function", {.fallback = "true"}),
    field("backends", &FunctionRule::backends, shape::kBackends,
          "the only backends that may serve calls, in this order"),
    field("deny", &FunctionRule::deny, shape::kBackends, "backends that may not serve calls"),
};

template <>
inline constexpr auto kFields<CanaryRule::Tolerance> = std::tuple{
    field("rtol", &CanaryRule::Tolerance::rtol, {shape::kNumber, 0, 1e6},
          "relative to the other kernel's value", {.fallback = "0"}),
    field("atol", &CanaryRule::Tolerance::atol, {shape::kNumber, 0, 1e6},
          "absolute, for rows of numbers up to 1", {.fallback = "0"}),
};
template <>
inline constexpr auto kFields<CanaryRule> = std::tuple{
    field("op", &CanaryRule::op, shape::kOp, "the op, or a glob over ops", {.required = true},
          &CanaryRule::op_at),
    field("kernel", &CanaryRule::kernel, shape::kKernel,
          "the kernel whose calls are checked, or a glob over kernels", {.fallback = "*"},
          &CanaryRule::kernel_at),
    field("one_in", &CanaryRule::one_in, {shape::kWhole, 1, 1e12},
          "one call in this many is checked; 1 means all", {.required = true}),
    field("check", &CanaryRule::check, {shape::kWord, kCheckWords},
          "values compares with another kernel; finite only checks that finite inputs give finite "
          "outputs",
          {.fallback = "values"}),
    field("against", &CanaryRule::against, shape::kOneKernel,
          "the kernel to compare with: reference means the op's reference kernel",
          {.fallback = "reference"}, &CanaryRule::against_at),
    field("tolerance", &CanaryRule::tolerance, shape::kMap, "how far floats may differ",
          {.fallback = "the op's own"}),
    field("dump", &CanaryRule::dump, shape::kFolder, "a folder for the inputs of failed checks"),
    field("dump_most", &CanaryRule::dump_most, {shape::kWhole, 1, 10'000},
          "files kept in that folder: the first ones of an incident", {.fallback = "16"}),
    field("optional", &CanaryRule::optional, shape::kSwitch,
          "the op or the kernels may be unknown: a plugin may bring them later",
          {.fallback = "false"}),
};

template <>
inline constexpr auto kFields<RolloutRule> = std::tuple{
    field("percent", &RolloutRule::percent, {shape::kNumber, 0.01, 100},
          "percentage of the eligible calls that use the new rules",
          {.fallback = "10", .always = true}),
    field("labels", &RolloutRule::labels, shape::kLabels,
          "only calls with all of these labels are eligible"),
    field("hold_s", &RolloutRule::hold_s, {shape::kNumber, 0.01, kDay},
          "seconds in rollout; then the rules are in force for all calls",
          {.fallback = "60", .always = true}),
    field("max_error_rate", &RolloutRule::max_error_rate, {shape::kNumber, 0, 1},
          "share of calls in the rollout that may see a kernel fail, and of checked results that "
          "may be wrong",
          {.fallback = "0.01", .always = true}),
    field("max_slowdown", &RolloutRule::max_slowdown, {shape::kNumber, 1, 1e6},
          "how many times longer calls in the rollout may take before the rollout is aborted",
          {.fallback = "1.5", .always = true}),
};

using Settings = ConfigSettings;
using Breaker = Settings::Breaker;

template <>
inline constexpr auto kFields<Settings::Cache> = std::tuple{
    field("enabled", &Settings::Cache::enabled, shape::kSwitch,
          "whether plans are cached; off: every call selects again", {.fallback = "true"}),
    field("size", &Settings::Cache::size, {shape::kWhole, 1, 1e7},
          "plans cached per op; beyond it the oldest that were not used lately are evicted",
          {.fallback = "as the program says: 4096"}),
    field("lifetime", &Settings::Cache::lifetime, {shape::kDuration, 0.001, 365 * kDay},
          "how long a plan is cached; older ones are evicted in the background",
          {.fallback = "as long as nothing changes"}),
};

template <>
inline constexpr auto kFields<Settings::Reload> = std::tuple{
    field("debounce", &Settings::Reload::debounce, {shape::kDuration, 0.02, kDay},
          "how long a file must stay unchanged before it is read; the last write always counts",
          {.fallback = "100ms"}),
    field("poll_interval", &Settings::Reload::poll_interval, {shape::kDuration, 0.01, kDay},
          "how often the files are checked", {.fallback = "200ms"}),
};

template <>
inline constexpr auto kFields<Settings::Plugins> = std::tuple{
    field("require_verified", &Settings::Plugins::require_verified, shape::kSwitch,
          "only plugins that `yard verify` has passed are loaded", {.fallback = "false"}),
};

template <>
inline constexpr auto kFields<Settings::Telemetry> = std::tuple{
    field("record", &Settings::Telemetry::record, shape::kPath,
          "a file to record calls to, unless they are recorded elsewhere"),
};

template <>
inline constexpr auto kFields<Breaker> = std::tuple{
    field("enabled", &Breaker::enabled, shape::kSwitch,
          "whether kernels that keep failing are excluded for a while", {.fallback = "true"}),
    field("failure_threshold", &Breaker::failure_threshold, {shape::kWhole, 1, kMostCalls},
          "consecutive faults that open a breaker", {.fallback = "5"}),
    field("failure_percent", &Breaker::failure_percent, {shape::kWhole, 0, 100},
          "percentage of failures in a window that also opens a breaker; 0: off",
          {.fallback = "50"}),
    field("failure_min_calls", &Breaker::failure_min_calls, {shape::kWhole, 1, kMostCalls},
          "calls in a window before that percentage counts", {.fallback = "100"}),
    field("failure_window", &Breaker::failure_window, {shape::kDuration, 0.001, kDay},
          "the longest time from the first failure of a window to its last call",
          {.fallback = "10s"}),
    field("cooldown", &Breaker::cooldown, {shape::kDuration, 0.001, kDay},
          "how long it stays open the first time", {.fallback = "30s"}),
    field("cooldown_growth", &Breaker::cooldown_growth, {shape::kNumber, 1, 100},
          "factor by which each repeat stays open longer", {.fallback = "2"}),
    field("cooldown_cap", &Breaker::cooldown_cap, {shape::kDuration, 0.001, kDay},
          "the longest it stays open; repeats are forgotten after this time without a fault",
          {.fallback = "10m"}),
    field("success_threshold", &Breaker::success_threshold, {shape::kWhole, 1, kMostCalls},
          "probes that must succeed to close it", {.fallback = "2"}),
    field("half_open_max_calls", &Breaker::half_open_max_calls, {shape::kWhole, 1, kMostCalls},
          "probes in each period as long as cooldown, one at a time", {.fallback = "3"}),
};

template <>
inline constexpr auto kFields<Settings> = std::tuple{
    field("mode", &Settings::mode, shape::kMode,
          "how plans are obtained: auto, static, dynamic, config, hot_reload or a mode of the "
          "program",
          {.fallback = "auto"}),
    field("modes", &Settings::modes, shape::kOpModes, "the mode of single ops"),
    field("mode_fallback", &Settings::mode_fallback, {shape::kWords, kFallbackModes},
          "modes in which a call in mode static goes on where its op is not mapped or the static "
          "kernel fails",
          {.fallback = "none", .replaces = true}),
    field("cache", &Settings::cache, shape::kMap, "cached plans"),
    field("max_fallback_attempts", &Settings::max_fallback_attempts, {shape::kWhole, 0, 100},
          "how many more kernels are tried after the first has failed",
          {.fallback = "all there are"}),
    field("max_call_depth", &Settings::max_call_depth, {shape::kWhole, 8, 1e6},
          "how deep calls may nest on a thread: of ops and functions; a deeper one is an "
          "error",
          {.fallback = "1000"}),
    field("state_bytes", &Settings::state_bytes, {shape::kWhole, 0, kMostStateBytes},
          "bytes that states of kernels may hold together; a state that would exceed them is not "
          "made, and its kernel declines",
          {.fallback = "4294967296"}),
    field("labels", &Settings::labels, shape::kLabelNames,
          "labels of the program's own that conditions may name"),
    field("reload", &Settings::reload, shape::kMap, "watching the file"),
    field("plugins", &Settings::plugins, shape::kMap,
          "what plugins must pass before they are loaded"),
    field("telemetry", &Settings::telemetry, shape::kMap, "which figures are recorded"),
    field("events", &Settings::events, shape::kPath,
          "a file that events of the process are appended to, unless `YARD_EVENTS` names one"),
    field("breaker", &Settings::breaker, shape::kMap, "circuit breakers of kernels"),
};

template <>
inline constexpr auto kFields<Config> = std::tuple{
    Key{{.required = true}, "version", shape::kVersion, "version of this grammar: 1.0"},
    Key{{},
        "include",
        shape::kPaths,
        "other files, relative to this one, with lower precedence than this file"},
    field("defaults", &Config::defaults, shape::kMap, "what applies unless stated otherwise"),
    field("dispatch_rules", &Config::dispatch_rules, shape::kMaps,
          "which kernel serves which calls"),
    field("kernel_locks", &Config::kernel_locks, shape::kOpKernel,
          "the only kernel for an op; bypasses neither deny nor capability"),
    field("kernel_denies", &Config::kernel_denies, shape::kGlobs, "kernels that may not run"),
    field("kernel_allows", &Config::kernel_allows, shape::kGlobs, "the only kernels that may run"),
    field("fallback_chains", &Config::fallback_chains, shape::kOpKernels,
          "kernels to fall back to, in order"),
    field("policy", &Config::policy, shape::kMap, "preferences"),
    field("static_kernel_map", &Config::static_kernel_map, shape::kOneOpKernel,
          "the kernel of an op in static mode; ops by name, no globs"),
    field("score", &Config::score, shape::kMaps, "adjustments of kernels' priorities"),
    field("functions", &Config::functions, shape::kFunctions,
          "which backends implement dispatched functions"),
    field("canary", &Config::canary, shape::kOneOrMaps, "sampled calls whose results are checked"),
    field("rollout", &Config::rollout, shape::kMap,
          "new rules in rollout: some calls use them before all do"),
    field("settings", &Config::settings, shape::kMap, "how the runtime works"),
};

// ---- Visiting the rows, and merging by them ----

template <class Rows, class F>
constexpr void visit_rows(const Rows& rows, F f) {
  std::apply([&](const auto&... row) { (f(row), ...); }, rows);
}
// Visits only the rows that have a member.
template <class T, class F>
constexpr void visit_fields(F f) {
  visit_rows(kFields<T>, [&](const auto& row) {
    if constexpr (requires { row.member; }) f(row);
  });
}

inline std::vector<std::string> names_of(Keys keys) {
  std::vector<std::string> names;
  for (const Key* key : keys)
    if (key->section == nullptr) names.emplace_back(key->name);
  return names;
}

template <class M>
bool is_set(const M& value) {
  if constexpr (IsOptional<M>)
    return value.has_value();
  else
    return !value.empty();
}

// Adds fields that `weak` sets and `strong` does not. Structs are merged field by field and maps
// key by key. Rules are appended, and names are added unless they are already there. Moves from
// `weak`.
template <HasFields T>
void merge_weaker(T& strong, T& weak);

template <class M>
void merge_value(M& strong, M& weak) {
  if constexpr (HasFields<M>) {
    merge_weaker(strong, weak);
  } else if constexpr (IsMap<M>) {
    if constexpr (HasFields<Part<M>>)
      for (auto& [key, value] : weak)
        if (const auto it = strong.find(key); it != strong.end()) merge_weaker(it->second, value);
    strong.merge(weak);
  } else if constexpr (!IsList<M>) {
    if (!is_set(strong)) strong = std::move(weak);
  } else if constexpr (HasFields<Part<M>>) {
    std::move(weak.begin(), weak.end(), std::back_inserter(strong));
  } else if constexpr (std::is_same_v<Part<M>, KernelRef>) {
    for (KernelRef& ref : weak)
      if (std::ranges::find(strong, ref.id, &KernelRef::id) == strong.end())
        strong.push_back(std::move(ref));
  } else {
    std::swap(strong, weak);  // names are listed weakest source first
    for (auto& name : weak)
      if (!base::contains(strong, name)) strong.push_back(std::move(name));
  }
}

template <HasFields T>
void merge_weaker(T& strong, T& weak) {
  visit_fields<T>([&](const auto& row) {
    auto &ours = strong.*row.member, &theirs = weak.*row.member;
    if constexpr (requires { theirs.clear(); })
      if (row.replaces && is_set(ours)) theirs.clear();
    merge_value(ours, theirs);
  });
}

}  // namespace yard::policy
