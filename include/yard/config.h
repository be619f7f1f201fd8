// SPDX-License-Identifier: Apache-2.0
// Rules: the contents of a rule file as a value, static maps, and how rules change while the program runs.
//
//   yard::ConfigReading r = yard::read_config("/etc/acme/rules.yaml");              // YAML or JSON
//   for (const yard::ConfigProblem& p : r.problems) std::puts(to_string(p).c_str());
//   if (r.ok()) std::puts(yard::to_yaml(r.config).c_str());
//
//   runtime.rules().on_change([](const yard::ConfigEvent& e) { std::puts(to_string(e).c_str()); });
//   runtime.rules().watch("/etc/acme/rules.yaml").or_throw();                       // again after each change
//   runtime.rules().roll_back(runtime.rules().history()[0].number).or_throw();
//
//   runtime.rules().set_static_map({{"rms_norm", "default.simd"}}).or_throw();
//
// Reading checks the form of a file and all that does not need ops and kernels; a runtime checks the rest when it is given
// the value. Functions here are pure but for reading files, may be called from any thread, and do not throw.
// docs/reference/rules.md has the grammar.
#pragma once

#include <yard/health.h>
#include <yard/policy.h>
#include <yard/status.h>

#include <chrono>
#include <functional>
#include <map>
#include <vector>

namespace yard {

// The place of something in a file; not part of its value. All 0: made in code.
struct ConfigPlace {
  uint32_t file = 0;  // index into Config::sources.files
  uint32_t line = 0, column = 0;
  friend bool operator==(ConfigPlace, ConfigPlace) noexcept { return true; }
};

// A scalar as it was written. Its type depends on the field it is compared with.
struct ConfigValue {
  std::string text;
  bool quoted = false;  // text, even if it looks like a number or a switch: "8", "true"
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

// A kernel id or, where the grammar allows it, a glob. In denies, allows and locks a kernel may be unknown: that is a
// warning, and the statement holds once the kernel is registered. Elsewhere it is an error unless `optional`.
struct KernelRef {
  std::string id;
  bool optional = false;  // no problem at all if there is none: a plugin may bring it later
  ConfigPlace at;
  bool operator==(const KernelRef&) const = default;
};

// Calls of `operation` for which every condition holds go to `kernel`; kernels that `deny` lists, or that `allow` does not,
// may not serve them. Has one of the three, or several. Denies and allows of all rules that match count, in every mode.
struct DispatchRule {
  std::string operation;  // op or glob
  std::vector<Condition> conditions;
  std::string kernel;                           // id or glob; empty: only deny or allow
  std::vector<KernelRef> deny;                  // ids or globs
  std::optional<std::vector<KernelRef>> allow;  // ids or globs
  std::optional<int> priority;                  // 0 to 1000; unset: defaults.default_priority
  bool optional = false;  // neither an unknown op nor an unknown kernel is an error
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

// Implementations of dispatched functions (function.h). Unset fields come from a less exact key.
struct FunctionRule {
  std::optional<bool> enabled;                       // false: the original
  std::optional<std::vector<std::string>> backends;  // only these, in this order
  std::vector<std::string> deny;                     // adds up over all keys that match
  ConfigPlace at;
  bool operator==(const FunctionRule&) const = default;
};

// Canary checks of sampled calls (CanaryReport in verify.h).
struct CanaryRule {
  // Results are compared with another kernel's, or finite inputs must give finite results.
  enum class Check : int { kValues, kFinite };

  std::string op = {};                // name or glob
  std::string kernel = "*";           // id or glob
  int64_t one_in = 1;                 // of the calls, at random
  std::string against = "reference";  // the op's reference kernel, or the id of another
  // For floats; both unset: the op's own; one unset: 0.
  std::optional<double> rtol = {}, atol = {};
  Check check = Check::kValues;
  // A folder for the inputs of calls with wrong results; empty: they are not kept.
  std::string dump = {};
  int64_t dump_most = 16;  // files in it
  bool optional = false;   // neither an unknown op nor an unknown kernel is an error
  ConfigPlace at = {}, op_at = {}, kernel_at = {}, against_at = {};
  bool operator==(const CanaryRule&) const = default;
};

YARD_API const char* to_string(CanaryRule::Check check) noexcept;

// Unset fields are left to the program, the environment or the default.
struct ConfigSettings {
  using Duration = std::chrono::nanoseconds;
  template <class T>
  using Set = std::optional<T>;

  Set<std::string> mode;                                  // a Mode by name
  std::map<std::string, std::string, std::less<>> modes;  // op or glob → mode
  // "dynamic", "config": where calls in mode static go on, in this order, if the op is not mapped or its static kernel
  // fails. Empty: they fail.
  std::vector<std::string> mode_fallback;

  struct Cache {
    Set<bool> enabled;
    Set<int64_t> size;       // plans per op
    Set<Duration> lifetime;  // of a plan; unset: as long as nothing changes
    bool operator==(const Cache&) const = default;
  } cache;

  Set<int64_t> max_fallback_attempts;
  Set<int64_t> max_call_depth;      // of calls inside of calls, on one thread
  Set<int64_t> state_bytes;         // that kept states of kernels may hold together
  std::vector<std::string> labels;  // of the program's own that conditions may name

  struct Plugins {  // see PluginSettings; the program and the environment precede these
    Set<bool> require_verified;
    bool operator==(const Plugins&) const = default;
  } plugins;

  struct Telemetry {
    Set<std::string> record;  // a file for the calls, unless another recording runs
    // In rule files `record` must be below this folder. Unset: the folder of the rule file.
    Set<std::string> directory;
    bool operator==(const Telemetry&) const = default;
  } telemetry;

  struct Reload {
    Set<Duration> debounce, poll_interval;
    bool operator==(const Reload&) const = default;
  } reload;

  struct Breaker {  // see BreakerSettings
    Set<bool> enabled;
    Set<int64_t> failure_threshold, failure_percent, failure_min_calls;
    Set<Duration> failure_window;
    Set<Duration> cooldown, cooldown_cap;
    Set<double> cooldown_growth;
    Set<int64_t> success_threshold, half_open_max_calls;
    bool operator==(const Breaker&) const = default;
  } breaker;

  bool operator==(const ConfigSettings&) const = default;
};

// A rollout: new rules apply to a share of calls, and the rollout is aborted if these fail more often or take longer.
struct RolloutRule {
  double percent = 10;                                     // of the eligible calls
  std::map<std::string, std::string, std::less<>> labels;  // calls with all of these are eligible
  double hold_s = 60;                                      // then they are in force for all calls
  double max_error_rate =
      0.01;                   // share of rollout calls in which a kernel failed or none was found
  double max_slowdown = 1.5;  // time of rollout calls relative to the others
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
  // Of those with the same check the first that matches a kernel counts.
  std::vector<CanaryRule> canary;
  std::optional<RolloutRule> rollout;  // how these replace rules in force; unset: at once
  ConfigSettings settings;

  // Where it was read from. Not part of the value.
  struct Sources {
    std::vector<std::string> files;  // the file itself, then those it includes, in order
    // Of names whose own values have no place: "policy.per_op/rms_norm", "settings.modes/rms_norm".
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
// `rules.yaml:7:5: error: dispatch_rules[2].priority: expected a whole number from 0 to 1000, got 1200`
YARD_API std::string to_string(const ConfigProblem& problem);

struct ConfigReading {
  Config config;  // all that could be read
  std::vector<ConfigProblem> problems;
  // Every file that was opened or is missing: what a watcher watches. The first is the file itself.
  std::vector<std::string> files;
  std::string sha256;  // of all the texts

  YARD_API bool ok() const noexcept;  // warnings are fine
};

// A file and all that it includes.
YARD_API ConfigReading read_config(const std::string& path);
// Text as if it were in a file of that name; includes are read from that file's folder.
YARD_API ConfigReading parse_config(std::string_view text, const std::string& name);

// YAML that parse_config() reads as the same value; without comments, includes resolved.
YARD_API std::string to_yaml(const Config& config);

struct ConfigChange {
  std::string path;           // settings.cache.size
  std::string before, after;  // as YAML on one line; empty: not there
  bool operator==(const ConfigChange&) const = default;
};
// The differences, in the order of the file. A rule that moved counts as removed and added.
YARD_API std::vector<ConfigChange> diff(const Config& before, const Config& after);

// The policy of the rules: `policy`, kernel_locks, kernel_denies and kernel_allows together.
YARD_API Policy policy_of(const Config& config);

// settings.breaker over `base`. For values made in code it may be invalid: see validate().
YARD_API BreakerSettings breaker_of(const Config& config, const BreakerSettings& base = {});

// JSON Schema of the file, for editors.
YARD_API std::string config_json_schema();

// Op → kernel, set in code. In mode auto the mapped kernel is first for calls it can take; in mode static it is the only one,
// and an op without one is the error `unmapped`. A map bypasses neither deny nor capability. It precedes static_kernel_map of
// the rule file. `yard bake` writes maps from recorded calls.
using StaticMap = std::map<std::string, std::string, std::less<>>;

// How rules change. Whatever offers them (load, set, a watched file, roll_back), they are checked against the registered ops
// and kernels, and by the program's validators. The last calls of each op that had to select are selected again under them;
// one that would be left without a kernel refuses them. Then one store publishes them, and they are kept as a version.
// Refused rules change nothing. None of this waits for calls.

// How a file is watched; settings.reload of the file in force precedes this.
struct WatchSettings {
  // How long the files must be unchanged before they are read; less than 20 ms is an error. Files that change all the time
  // are read every ten of these. The last write always counts.
  std::chrono::nanoseconds debounce = std::chrono::milliseconds(100);
  // How often the files are checked; less than 10 ms is an error.
  std::chrono::nanoseconds poll_interval = std::chrono::milliseconds(200);
};

// Rules that are or were in force.
struct ConfigVersion {
  uint64_t number = 0;  // 1, 2, ... in the order in which they came into force
  std::string sha256;   // of the texts it was read from; of its YAML for a value
  std::chrono::system_clock::time_point time;
  std::string source;                 // a path, "Rules::set", "rollback to 3", or "none": no rules
  std::vector<ConfigChange> changes;  // against the version before
  bool in_force = false;
};
// The last 32 are kept.
inline constexpr size_t kConfigHistory = 32;

struct ConfigEvent {
  enum class Kind : int {
    kReloaded,
    kRefused,
    kRolledBack,
    kRollout,  // `rollout`: they apply to a share of calls
    kAborted,  // a rollout that did worse; the rules in force stay
  };
  Kind kind = Kind::kReloaded;
  uint64_t version = 0;                 // in force after it; 0: none
  std::string source;                   // as in ConfigVersion
  std::vector<ConfigProblem> problems;  // all errors of what was refused; warnings
};
// "reloaded", "refused", "rolled back", "rollout", "rollout aborted".
YARD_API const char* to_string(ConfigEvent::Kind kind) noexcept;
// `rules.yaml: refused, version 3 stays in force`, then the problems, one a line.
YARD_API std::string to_string(const ConfigEvent& event);

// Called after each change and each refusal, in order, on a thread of the runtime and never inside a call. May use the
// runtime but not destroy it. Exceptions are logged. Another change may have followed before the event is delivered.
using ConfigListener = std::function<void(const ConfigEvent&)>;

// Called before rules come into force: an error or an exception refuses them. Runs on the thread that offers them, which may
// be the watcher's. Must not change the rules itself: that is the error would_deadlock.
using ConfigValidator = std::function<Status(const Config&)>;

// Rules, labels, static kernels and modes of one runtime; valid as long as it. Any thread may call any function.
class YARD_API Rules {
 public:
  // Reads a rule file, checks it against the registered ops and kernels and puts it in force; on error nothing changes. The
  // status is the first error with the others as notes; `problems` gets all of them, and warnings. An empty path removes
  // the rules and ends the watch.
  Status load(const std::string& path, std::vector<ConfigProblem>* problems = nullptr);
  Status set(Config config, std::vector<ConfigProblem>* problems = nullptr);
  // The rules in force; empty if there are none.
  Config config() const;
  std::vector<ConfigProblem> check(const std::string& path) const;
  // As load(), and again, on a thread of the runtime, whenever the file or one that it includes changes. The file is
  // watched even if it is invalid now; if it cannot be watched, none is. One file at a time. load() of a file in mode
  // hot_reload does this.
  Status watch(const std::string& path, const WatchSettings& settings = {},
               std::vector<ConfigProblem>* problems = nullptr);
  // The rules in force stay.
  void unwatch();
  // The last versions, oldest first. Computes their differences.
  std::vector<ConfigVersion> history() const;
  // Puts an earlier version in force, as a new one, if it is valid now. A watched file stays watched.
  Status roll_back(uint64_t number, std::vector<ConfigProblem>* problems = nullptr);

  // The number is for remove_callback(), after which the function is no longer called.
  uint64_t add_validator(ConfigValidator validator);
  uint64_t on_change(ConfigListener listener);
  void remove_callback(uint64_t id);

  // Labels of every call, for rules; those of a scope or of a call precede them.
  Status set_labels(std::map<std::string, std::string, std::less<>> labels);
  // The static kernels of ops, replacing those set before; they precede static_kernel_map of the rule file. Ops and kernels
  // that do not exist are an error that names all of them; then nothing changes. An empty map removes all.
  Status set_static_map(StaticMap map);
  StaticMap static_map() const;
  // A mode of the program (policy.h); the provider is held until no call uses it. An error if the name is in use. A rule file
  // that names it must be loaded later: see RuntimeSettings::modes.
  Status add_mode(std::string_view name, ModeProvider provider);
  // Calls in flight finish; later calls and scopes that name it fail. An error while the rules in force name it.
  Status remove_mode(std::string_view name);
  // Reads the environment again; otherwise it is read once. A variable with an invalid value keeps its previous meaning and
  // is the error; the others take effect. Like getenv, not while another thread changes the environment.
  Status reload_environment();

 private:
  friend class Runtime;
  explicit Rules(const Runtime& runtime) : runtime_(&runtime) {}
  const Runtime* runtime_;
};

}  // namespace yard
