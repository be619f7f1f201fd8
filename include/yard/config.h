// SPDX-License-Identifier: Apache-2.0
// A Config is the contents of a rule file. Rules puts configs in force while the program runs.
//
//   yard::ConfigReading r = yard::read_config("/etc/acme/rules.yaml");  // YAML or JSON
//   if (r.ok()) std::puts(yard::to_yaml(r.config).c_str());
//   runtime.rules().watch("/etc/acme/rules.yaml").or_throw();  // again after each change
//
// docs/reference/rules.md describes every key, docs/guides/rules.md how rules change. Reading
// checks the form of a file; a runtime also checks names. Any thread may call any function.
#pragma once

#include <yard/health.h>
#include <yard/policy.h>

namespace yard {

// A place in a file, or all 0 for values made in code. Comparisons of values ignore places.
struct ConfigPlace {
  uint32_t file = 0;  // index into Config::sources.files
  uint32_t line = 0, column = 0;
  friend bool operator==(ConfigPlace, ConfigPlace) noexcept { return true; }
};

// A scalar as written in the file. The field that it is compared with decides its type.
struct ConfigValue {
  std::string text;
  bool quoted = false;  // a text even if it looks like a number or a switch
  bool operator==(const ConfigValue&) const = default;
};

// For example `batch_size_gte: 8`. The op's fields decide where the key ends and `gte` begins.
struct Condition {
  std::string key;
  std::vector<ConfigValue> values;
  bool list = false;  // written as a list
  ConfigPlace at;
  bool operator==(const Condition&) const = default;
};

struct KernelRef {
  std::string id;         // or a glob, where the grammar allows it
  bool optional = false;  // the kernel may be unknown
  ConfigPlace at;
  bool operator==(const KernelRef&) const = default;
};

// Selects kernels for calls of `operation`. Operations and kernels are names or globs.
struct DispatchRule {
  std::string operation;
  std::vector<Condition> conditions;
  std::string kernel;  // may be empty if there is a deny or allow list
  std::vector<KernelRef> deny;
  std::optional<std::vector<KernelRef>> allow;
  std::optional<int> priority;
  bool optional = false;  // the op and the kernels may be unknown
  std::string name, description;
  ConfigPlace at, operation_at, kernel_at;
  bool operator==(const DispatchRule&) const = default;
};

// Changes a kernel's priority to (priority + Σ add) · Π multiply where every condition holds.
struct ScoreRule {
  std::string operation = "*";
  std::vector<Condition> conditions;
  std::string kernel;
  double add = 0, multiply = 1;
  bool optional = false;
  std::string name, description;
  ConfigPlace at, operation_at, kernel_at;
  bool operator==(const ScoreRule&) const = default;
};

struct FunctionRule {  // which backends implement functions (function.h)
  std::optional<bool> enabled;
  std::optional<std::vector<std::string>> backends;  // only these, in this order
  std::vector<std::string> deny;
  ConfigPlace at;
  bool operator==(const FunctionRule&) const = default;
};

struct CanaryRule {  // canary checks of sampled calls (CanaryReport in verify.h)
  enum class Check : int { kValues, kFinite };

  std::string op = {}, kernel = "*";
  int64_t one_in = 1;
  std::string against = "reference";
  struct Tolerance {
    std::optional<double> rtol = {}, atol = {};
    bool operator==(const Tolerance&) const = default;
  } tolerance = {};  // the op's own if both are unset
  Check check = Check::kValues;
  std::string dump = {};  // a folder; empty if inputs are not kept
  int64_t dump_most = 16;
  bool optional = false;
  ConfigPlace at = {}, op_at = {}, kernel_at = {}, against_at = {};
  bool operator==(const CanaryRule&) const = default;
};
YARD_API const char* to_string(CanaryRule::Check check) noexcept;

struct ConfigSettings {  // unset fields are left to the program or the environment
  using Duration = std::chrono::nanoseconds;
  template <class T>
  using Set = std::optional<T>;

  Set<std::string> mode;
  std::map<std::string, std::string, std::less<>> modes;  // by op or glob
  std::vector<std::string> mode_fallback;

  struct Cache {
    Set<bool> enabled;
    Set<int64_t> size;
    Set<Duration> lifetime;
    bool operator==(const Cache&) const = default;
  } cache;

  Set<int64_t> max_fallback_attempts, max_call_depth, state_bytes;
  std::vector<std::string> labels;

  struct Plugins {  // see PluginSettings
    Set<bool> require_verified;
    bool operator==(const Plugins&) const = default;
  } plugins;

  struct Telemetry {
    Set<std::string> record;
    bool operator==(const Telemetry&) const = default;
  } telemetry;

  Set<std::string> events;  // a file that events are appended to

  struct Reload {
    Set<Duration> debounce, poll_interval;
    bool operator==(const Reload&) const = default;
  } reload;

  struct Breaker {  // see BreakerSettings
    Set<bool> enabled;
    Set<int64_t> failure_threshold, failure_percent, failure_min_calls;
    Set<Duration> failure_window, cooldown, cooldown_cap;
    Set<double> cooldown_growth;
    Set<int64_t> success_threshold, half_open_max_calls;
    bool operator==(const Breaker&) const = default;
  } breaker;

  bool operator==(const ConfigSettings&) const = default;
};

// Tries new rules on a share of calls, and drops them if these calls fail more or take longer.
struct RolloutRule {
  double percent = 10;
  std::map<std::string, std::string, std::less<>> labels;
  double hold_s = 60;
  double max_error_rate = 0.01;
  double max_slowdown = 1.5;
  ConfigPlace at;
  bool operator==(const RolloutRule&) const = default;
};

struct Config {
  using KernelMap = std::map<std::string, KernelRef, std::less<>>;  // by op or glob

  struct Defaults {
    std::vector<KernelRef> fallback_policy;
    std::optional<int> default_priority;
    bool operator==(const Defaults&) const = default;
  } defaults;
  std::vector<DispatchRule> dispatch_rules;
  KernelMap kernel_locks;
  std::vector<KernelRef> kernel_denies;
  std::optional<std::vector<KernelRef>> kernel_allows;
  std::map<std::string, std::vector<KernelRef>, std::less<>> fallback_chains;
  Policy policy;
  KernelMap static_kernel_map;
  std::vector<ScoreRule> score;
  std::map<std::string, FunctionRule, std::less<>> functions;  // by group, group/name, or glob
  std::vector<CanaryRule> canary;
  std::optional<RolloutRule> rollout;
  ConfigSettings settings;

  struct Sources {
    std::vector<std::string> files;  // the file itself, then those it includes, in order
    std::map<std::string, ConfigPlace, std::less<>> places;  // by key: "policy.per_op/softmax"
    friend bool operator==(const Sources&, const Sources&) noexcept { return true; }
  } sources;

  bool operator==(const Config&) const = default;
};

enum class Severity : int { kError, kWarning };
YARD_API const char* to_string(Severity s) noexcept;

struct ConfigProblem {
  Severity severity = Severity::kError;
  std::string file;
  uint32_t line = 0, column = 0;  // 0 for the file as a whole
  std::string path;               // dispatch_rules[2].conditions.batch_size_gte
  std::string found;              // the mistake
  std::string right;              // the expected form; may be empty
  bool operator==(const ConfigProblem&) const = default;
};
// `rules.yaml:7:5: error: dispatch_rules[2].priority: expected a whole number from 0 to 1000`
YARD_API std::string to_string(const ConfigProblem& problem);

struct ConfigReading {
  Config config;  // everything that could be read
  std::vector<ConfigProblem> problems;
  std::vector<std::string> files;  // the file itself, then its includes, also missing ones
  std::string sha256;              // of all their texts

  YARD_API bool ok() const noexcept;  // warnings do not count
};

YARD_API ConfigReading read_config(const std::string& path);
// Reads includes from the folder of `name`.
YARD_API ConfigReading parse_config(std::string_view text, const std::string& name);
// Returns YAML that parse_config() reads as an equal value. Includes are resolved.
YARD_API std::string to_yaml(const Config& config);
YARD_API std::string config_json_schema();  // of the file, for editors

struct ConfigChange {
  std::string path;           // settings.cache.size
  std::string before, after;  // as YAML on one line; empty if it is not there
  bool operator==(const ConfigChange&) const = default;
};
// Returns changes in the order of the file. A rule that moved counts as removed and added.
YARD_API std::vector<ConfigChange> diff(const Config& before, const Config& after);

YARD_API Policy policy_of(const Config& config);  // with locks, denies and allows
// Applies settings.breaker to `base`. The result may be invalid if the config was made in code.
YARD_API BreakerSettings breaker_of(const Config& config, const BreakerSettings& base = {});

using StaticMap = std::map<std::string, std::string, std::less<>>;  // op → kernel, in mode static

struct WatchSettings {  // settings.reload of the file in force has precedence
  std::chrono::nanoseconds debounce = std::chrono::milliseconds(100);       // at least 20 ms
  std::chrono::nanoseconds poll_interval = std::chrono::milliseconds(200);  // at least 10 ms
};

struct ConfigVersion {
  uint64_t number = 0;  // 1, 2, ...
  std::string sha256;   // of the texts, or of the YAML of a value
  std::chrono::system_clock::time_point time;
  std::string source;                 // a path, "Rules::set", "rollback to 3", or "none"
  std::vector<ConfigChange> changes;  // against the version before
  bool in_force = false;
};
inline constexpr size_t kConfigHistory = 32;  // versions that are kept

struct ConfigEvent {
  // kRollout begins a rollout. kAborted ends one that did worse, and the rules in force stay.
  enum class Kind : int { kReloaded, kRefused, kRolledBack, kRollout, kAborted };
  Kind kind = Kind::kReloaded;
  uint64_t version = 0;                 // in force afterwards; 0 if there is none
  std::string source;                   // as in ConfigVersion
  std::vector<ConfigProblem> problems;  // errors of refused rules, and warnings
};
YARD_API const char* to_string(ConfigEvent::Kind kind) noexcept;
YARD_API std::string to_string(const ConfigEvent& event);

// Called after each change and refusal, in order, on a thread of the runtime, which the listener
// may use but not destroy. Exceptions are logged.
using ConfigListener = std::function<void(const ConfigEvent&)>;

// Refuses rules on the thread that offers them, and must not change rules (would_deadlock).
using ConfigValidator = std::function<Status(const Config&)>;

// The rules of one runtime, valid as long as the runtime. No function waits for calls.
class YARD_API Rules {
 public:
  // Checks rules and puts them in force. If they are refused, nothing changes, and the status is
  // the first error with the others as notes. `problems` also gets warnings. An empty path removes
  // the rules and ends the watch.
  Status load(const std::string& path, std::vector<ConfigProblem>* problems = nullptr);
  Status set(Config config, std::vector<ConfigProblem>* problems = nullptr);
  Config config() const;  // in force now
  std::vector<ConfigProblem> check(const std::string& path) const;
  // Loads the file now, and whenever it or an included file changes. Starts watching even if the
  // file is invalid. At most one file is watched.
  Status watch(const std::string& path, const WatchSettings& settings = {},
               std::vector<ConfigProblem>* problems = nullptr);
  void unwatch();                              // the rules in force stay
  std::vector<ConfigVersion> history() const;  // the last kConfigHistory versions, oldest first
  // Puts an earlier version in force as a new one, if it is still valid. A watch goes on.
  Status roll_back(uint64_t number, std::vector<ConfigProblem>* problems = nullptr);

  // Both return an id for remove_callback(), after which the function is not called any more.
  uint64_t add_validator(ConfigValidator validator);
  uint64_t on_change(ConfigListener listener);
  void remove_callback(uint64_t id);

  Status set_labels(std::map<std::string, std::string, std::less<>> labels);  // for every call
  // Precedes static_kernel_map of the file. Changes nothing if an op or a kernel is unknown.
  Status set_static_map(StaticMap map);
  StaticMap static_map() const;
  // Keeps the provider until no call uses it. Load files that name the mode afterwards.
  Status add_mode(std::string_view name, ModeProvider provider);
  Status remove_mode(std::string_view name);  // fails while the rules in force name the mode
  // Reads the environment again. Fails if a variable is invalid, which then keeps its old meaning
  // while the others take effect. No thread may change the environment meanwhile.
  Status reload_environment();

 private:
  friend class Runtime;
  explicit Rules(const Runtime& runtime) : runtime_(&runtime) {}
  const Runtime* runtime_;
};

}  // namespace yard
