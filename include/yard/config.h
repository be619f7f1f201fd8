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

#include <yard/health.h>
#include <yard/policy.h>
#include <yard/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// ---- Static map ----
// Static maps: one kernel for an op, said in code.
//
//   yard::StaticMap map;
//   map.set("rms_norm", "default.simd").set("softmax", "vendor.onednn");
//   runtime.set_static_map(map).or_throw();     // an op or kernel that does not exist is an error
//
// In mode auto the mapped kernel comes first for calls it can take; in mode static it is the only one, and an op
// that nobody maps is the error `unmapped`. A map bypasses neither deny nor capability. What it says of an op is
// stronger than static_kernel_map of the rule file. `yard bake` writes tables for it from recorded calls.

namespace yard {

// A row of a table that is fixed at compile time.
struct MappedKernel {
  std::string_view op, kernel;
};

// The kernel a table has for an op; empty: none. Usable in static_assert.
constexpr std::string_view mapped_kernel(std::span<const MappedKernel> table,
                                         std::string_view op) noexcept {
  for (const MappedKernel& row : table)
    if (row.op == op) return row.kernel;
  return {};
}

// A plain value.
class StaticMap {
 public:
  using Kernels = std::map<std::string, std::string, std::less<>>;

  StaticMap() = default;
  explicit StaticMap(std::span<const MappedKernel> table) {
    for (const MappedKernel& row : table) set(std::string(row.op), std::string(row.kernel));
  }

  // In the place of what was said of the op before.
  StaticMap& set(std::string op, std::string kernel) {
    kernels_.insert_or_assign(std::move(op), std::move(kernel));
    return *this;
  }
  StaticMap& remove(std::string_view op) {
    if (const auto it = kernels_.find(op); it != kernels_.end()) kernels_.erase(it);
    return *this;
  }

  const Kernels& kernels() const noexcept { return kernels_; }
  bool empty() const noexcept { return kernels_.empty(); }
  bool operator==(const StaticMap&) const = default;

 private:
  Kernels kernels_;
};

}  // namespace yard

// ---- Plugin probe ----
// When a library is tried in a process of its own before it is opened in this one: opened, asked, started, and
// each of its kernels run on a few small calls. That finds mistakes, not malice: it is no sandbox.

namespace yard {

enum class PluginProbe : int {
  kNever,
  kChanged,  // unless a file with these very bytes has been tried before: then what came of it counts
  kAlways,
};
// "never", "changed", "always".
YARD_API const char* to_string(PluginProbe probe) noexcept;
YARD_API std::optional<PluginProbe> parse_plugin_probe(std::string_view text) noexcept;

}  // namespace yard

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

// ---- Reload ----
// Rules that change while the program runs: watching a file, the versions there were, and the way back.
//
//   runtime.on_config([](const yard::ConfigEvent& e) { std::puts(to_string(e).c_str()); });
//   runtime.watch_config("/etc/acme/rules.yaml").or_throw();
//   ...
//   runtime.rollback_config(runtime.config_history()[0].number).or_throw();
//
// Whatever changes the rules (load_config, set_config, a watched file, rollback_config) goes one way: it is
// checked against the ops and kernels there are; validators of the program are asked; every class of calls that
// has a plan is selected again under the new rules, and one that would be left without a kernel refuses them; then
// they are published by one store and remembered. Rules that are refused change nothing. Nobody waits for calls.

namespace yard {

// How a file is watched. What settings.reload of the file in force says is stronger.
struct WatchSettings {
  // auto: inotify and, ten times less often than poll, a look at the files; poll where there is no inotify.
  Watch watch = Watch::kAuto;
  // How long the files must rest before they are read; at least 20 ms. Files that never rest are read every ten of
  // these. The last write always counts.
  std::chrono::nanoseconds debounce = std::chrono::milliseconds(100);
  // How often poll looks; at least 10 ms.
  std::chrono::nanoseconds poll_interval = std::chrono::seconds(1);
};

// Rules that are or were in force.
struct ConfigVersion {
  uint64_t number = 0;  // 1, 2, ... in the order in which they came into force
  std::string sha256;   // of the texts it was read from; of its YAML for a value
  std::chrono::system_clock::time_point time;
  std::string source;  // a path, "set_config", "rollback to 3", or "none": taken out of force
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
    kRollout,    // `rollout`: some calls go by them
    kTakenBack,  // they did worse; what was in force stays
  };
  Kind kind = Kind::kReloaded;
  uint64_t version = 0;                 // in force after it; 0: none
  std::string source;                   // as in ConfigVersion
  std::vector<ConfigProblem> problems;  // all errors of what was refused; warnings
};
// "reloaded", "refused", "rolled back", "rollout", "taken back".
YARD_API const char* to_string(ConfigEvent::Kind kind) noexcept;
// `rules.yaml: refused, version 3 stays in force`, then the problems, one a line.
YARD_API std::string to_string(const ConfigEvent& event);

// Called after each change and each refusal, in their order, on a thread of the runtime and never inside a call.
// May use the runtime in every way but destroy it. What it throws is logged. A change may be over by the time its
// event comes.
using ConfigListener = std::function<void(const ConfigEvent&)>;

// Has a say before rules come into force: an error refuses them. Called on the thread that offers them, which may
// be the watcher's. Must not change the rules itself: the error would_deadlock. What it throws refuses them, too.
using ConfigValidator = std::function<Status(const Config&)>;

}  // namespace yard
