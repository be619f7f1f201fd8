// SPDX-License-Identifier: Apache-2.0
// Config: all that a rule file says. A plain value: read one from YAML or JSON, make one, print it, compare.
//
//   yard::ConfigReading r = yard::read_config("/etc/acme/rules.yaml");
//   for (const yard::ConfigProblem& p : r.problems) std::puts(to_string(p).c_str());
//   if (r.ok()) std::puts(yard::to_yaml(r.config).c_str());
//
// Reading checks the form of a file and all that can be known without ops and kernels; a runtime checks the
// rest when it is given the value. docs/reference/rules.md has the grammar. Functions here are pure but for
// reading files; any thread may call them; none throws.
#pragma once

#include <yard/breaker.h>
#include <yard/plugin_probe.h>
#include <yard/policy.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

// Where something stands; not part of its value. All 0 for what was made in code.
struct ConfigPlace {
  uint32_t file = 0;  // index into Config::sources.files
  uint32_t line = 0, column = 0;
  friend bool operator==(ConfigPlace, ConfigPlace) noexcept { return true; }
};

// A scalar as it was written. What it should be depends on the field it is compared with.
struct ConfigValue {
  std::string text;
  bool quoted = false;  // text although it reads like a number or a switch: "8", "true"
  bool operator==(const ConfigValue&) const = default;
};

// `batch_size_gte: 8`. Which part of the key is the operator depends on the op's fields.
struct Condition {
  std::string key;
  std::vector<ConfigValue> values;
  bool list = false;  // written as a list
  ConfigPlace at;
  bool operator==(const Condition&) const = default;
};

// A kernel id or, where the grammar says so, a glob.
struct KernelRef {
  std::string id;
  bool optional = false;  // no error if there is none: a plugin may bring it later
  ConfigPlace at;
  bool operator==(const KernelRef&) const = default;
};

// Calls of `operation` for which every condition holds go to `kernel`.
struct DispatchRule {
  std::string operation;  // op or glob
  std::vector<Condition> conditions;
  std::string kernel;           // id or glob
  std::optional<int> priority;  // 0 to 1000; unset: defaults.default_priority
  bool optional = false;        // neither an unknown op nor an unknown kernel is an error
  std::string name, description;
  ConfigPlace at, operation_at, kernel_at;
  bool operator==(const DispatchRule&) const = default;
};

// (priority + Σ add) · Π multiply, for kernels that match and calls for which every condition holds.
struct ScoreRule {
  std::string operation = "*";  // op or glob
  std::vector<Condition> conditions;
  std::string kernel;  // id or glob
  double add = 0, multiply = 1;
  bool optional = false;
  std::string name, description;
  ConfigPlace at, operation_at, kernel_at;
  bool operator==(const ScoreRule&) const = default;
};

// Who implements dispatched functions (function.h). What is unset, a less exact key says.
struct FunctionRule {
  std::optional<bool> enabled;                       // false: the original
  std::optional<std::vector<std::string>> backends;  // only these, in this order
  std::vector<std::string> deny;                     // adds up over all keys that match
  ConfigPlace at;
  bool operator==(const FunctionRule&) const = default;
};

// What is looked at in a sampled call: its results against another kernel's, or that what comes out of finite
// numbers is finite.
enum class CanaryCheck : int { kValues, kFinite };
YARD_API const char* to_string(CanaryCheck check) noexcept;

// Sampled calls of kernels are looked at (canary.h).
struct CanaryRule {
  std::string op = {};                // name or glob
  std::string kernel = "*";           // id or glob
  int64_t one_in = 1;                 // of the calls of each thread, exactly
  std::string against = "reference";  // the op's reference kernel, or the id of another
  // For floats; both unset: as the op says; one: the other is 0.
  std::optional<double> rtol = {}, atol = {};
  CanaryCheck check = CanaryCheck::kValues;
  // A folder for the inputs of calls that went wrong; empty: they are not kept.
  std::string dump = {};
  int64_t dump_most = 16;  // files in it
  bool optional = false;   // neither an unknown op nor an unknown kernel is an error
  ConfigPlace at = {}, op_at = {}, kernel_at = {}, against_at = {};
  bool operator==(const CanaryRule&) const = default;
};

enum class Watch : int { kAuto, kInotify, kPoll };

// What is unset says nothing: the program, the environment or the default has its say.
struct ConfigSettings {
  using Duration = std::chrono::nanoseconds;
  template <class T>
  using Set = std::optional<T>;

  Set<std::string> mode;                                  // a Mode by name
  std::map<std::string, std::string, std::less<>> modes;  // op or glob → mode

  struct Cache {
    Set<bool> enabled;
    Set<int64_t> size;       // plans per op
    Set<Duration> lifetime;  // of a plan; unset: as long as nothing changes
    bool operator==(const Cache&) const = default;
  } cache;

  Set<int64_t> max_fallback_attempts;

  struct Plugins {  // see PluginSettings; what the program and the environment say is stronger
    Set<PluginProbe> probe;
    Set<bool> require_verified;
    bool operator==(const Plugins&) const = default;
  } plugins;

  struct Telemetry {
    Set<std::string> record;  // a file for the calls that are made, where nothing else is recorded
    bool operator==(const Telemetry&) const = default;
  } telemetry;

  struct Reload {
    Set<Watch> watch;
    Set<Duration> debounce, poll_interval;
    bool operator==(const Reload&) const = default;
  } reload;

  struct Breaker {  // see BreakerSettings
    Set<bool> enabled;
    Set<int64_t> failure_threshold;
    Set<Duration> cooldown, cooldown_cap;
    Set<double> cooldown_growth;
    Set<Duration> decay;
    Set<int64_t> success_threshold, half_open_max_calls;
    Set<int64_t> dry_run;  // percent
    Set<int64_t> open_keys_to_open_kernel, max_entries;
    bool operator==(const Breaker&) const = default;
  } breaker;

  bool operator==(const ConfigSettings&) const = default;
};

// New rules in rollout: some calls go by them, and they are taken back if that goes worse.
struct RolloutRule {
  double percent = 10;                                     // of the calls that may
  std::map<std::string, std::string, std::less<>> labels;  // only calls with all of these may
  double hold_s = 60;                                      // then they are in force for all calls
  double max_error_rate =
      0.01;  // of calls in the rollout, in which some kernel failed or none was found
  double max_slowdown = 1.5;  // time of calls in the rollout, of what the others take
  ConfigPlace at;
  bool operator==(const RolloutRule&) const = default;
};

struct Config {
  // Op or glob → kernel or kernels. An exact name beats a glob, a longer glob a shorter one.
  using KernelMap = std::map<std::string, KernelRef, std::less<>>;
  using ChainMap = std::map<std::string, std::vector<KernelRef>, std::less<>>;

  struct Defaults {
    std::vector<KernelRef> fallback_policy;  // the chain of ops that have none
    std::optional<int> default_priority;     // of rules without one; 50 where unset
    bool operator==(const Defaults&) const = default;
  } defaults;
  std::vector<DispatchRule> dispatch_rules;
  KernelMap kernel_locks;
  std::vector<KernelRef> kernel_denies;                 // ids or globs
  std::optional<std::vector<KernelRef>> kernel_allows;  // ids or globs
  ChainMap fallback_chains;
  Policy policy;
  KernelMap static_kernel_map;  // ops by name
  std::vector<ScoreRule> score;
  // Group, or group/function, or globs of such.
  std::map<std::string, FunctionRule, std::less<>> functions;
  // The first that names a kernel counts, of those with the same check.
  std::vector<CanaryRule> canary;
  std::optional<RolloutRule> rollout;  // how these come into force where others are; unset: at once
  ConfigSettings settings;

  // Where it was read. Not part of the value.
  struct Sources {
    std::vector<std::string> files;  // the file itself, then those it includes, in order
    // Of names whose own values have no place: "policy.locks/rms_norm", "settings.modes/rms_norm".
    std::map<std::string, ConfigPlace, std::less<>> places;
    friend bool operator==(const Sources&, const Sources&) noexcept { return true; }
  } sources;

  bool operator==(const Config&) const = default;
};

enum class Severity : int { kError, kWarning };
YARD_API const char* to_string(Severity s) noexcept;

struct ConfigProblem {
  Severity severity = Severity::kError;
  std::string file;
  uint32_t line = 0, column = 0;  // 0: of the file as a whole
  std::string path;               // dispatch_rules[2].conditions.batch_size_gte
  std::string found;              // what is wrong
  std::string right;              // what was expected, perhaps with a suggestion; may be empty

  bool operator==(const ConfigProblem&) const = default;
};
// `rules.yaml:7:5: error: dispatch_rules[2].priority: 1200 is too large; ...`
YARD_API std::string to_string(const ConfigProblem& problem);

struct ConfigReading {
  Config config;  // all that could be read
  std::vector<ConfigProblem> problems;
  // Every file that was opened, or should have been: what a watcher watches. The first is the file itself.
  std::vector<std::string> files;
  std::string sha256;  // of all the texts

  bool ok() const noexcept {  // warnings are fine
    for (const ConfigProblem& p : problems)
      if (p.severity == Severity::kError) return false;
    return true;
  }
};

// A file and all that it includes.
YARD_API ConfigReading read_config(const std::string& path);
// Text as if it stood in a file of that name; includes are read from the folder of the name.
YARD_API ConfigReading parse_config(std::string_view text, const std::string& name);

// YAML that parse_config() reads as the same value; without comments, includes resolved.
YARD_API std::string to_yaml(const Config& config);

struct ConfigChange {
  std::string path;           // settings.cache.size
  std::string before, after;  // as YAML on one line; empty: not there
  bool operator==(const ConfigChange&) const = default;
};
// What is different, in the order of the file. A rule that moved was removed and added.
YARD_API std::vector<ConfigChange> diff(const Config& before, const Config& after);

// What the value says as a policy: `policy`, kernel_locks, kernel_denies and kernel_allows together.
YARD_API Policy policy_of(const Config& config);

// What settings.breaker says, over `base`. Of values made in code it may be nothing that validate() accepts.
YARD_API BreakerSettings breaker_of(const Config& config, const BreakerSettings& base = {});

// JSON Schema of the file, for editors.
YARD_API std::string config_json_schema();

}  // namespace yard
