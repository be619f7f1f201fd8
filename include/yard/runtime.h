// SPDX-License-Identifier: Apache-2.0
// Runtime: a registry, a policy and the plans made from them. Independent of every other Runtime.
//
// Typed ops (op.h) call on Runtime::shared(), the only process-wide one. All functions may be called
// from any thread at any time, also from inside kernels; none waits for calls in flight. After fork the
// child goes on with the registry and the policy of the parent.
#pragma once

#include <yard/config.h>
#include <yard/explain.h>
#include <yard/health.h>
#include <yard/options.h>
#include <yard/plugins.h>
#include <yard/policy.h>
#include <yard/registry.h>
#include <yard/value.h>

#include <initializer_list>
#include <memory>
#include <string_view>

namespace yard {

struct CanaryReport;    // verify.h
class Functions;        // function.h
class Hooks;            // hook.h
struct ParsedCall;      // call_spec.h
struct RecordingStats;  // trace.h
namespace detail {
class Core;
struct Site;
}  // namespace detail

struct RuntimeSettings {
  bool builtin_backends = true;
  // Plans kept per op; beyond it the oldest goes.
  size_t plans_per_op = 4096;
  // Whether the variables YARD_* of the environment are read.
  bool environment = true;
  // A rule file to begin with; empty: what YARD_CONFIG names, or none.
  std::string config = {};
  // What breakers follow, under what the rule file says.
  BreakerSettings breakers = {};
  // Where plugins are looked for, and which may be loaded.
  PluginSettings plugins = {};
  // What the devices of this machine have beside the processor: see Runtime::state_device_features().
  std::vector<std::string> device_features = {};
  // Modes of the program's own, by name: there before the rule file is read, which may name them.
  std::map<std::string, ModeProvider, std::less<>> modes = {};
};

// Something that was said to the runtime and means nothing, or less than it seems.
struct Problem {
  std::string where;    // "YARD_PREFER"
  std::string found;    // in quotes
  std::string message;  // what is wrong, and what was expected
  bool error = true;    // false: a warning, nothing is lost by it
};

// Figures for people and tests.
struct RuntimeStats {
  uint64_t generation = 0;  // snapshots published
  uint64_t selections = 0;  // times the selector ran for a call
  size_t plans = 0;         // in the caches now
  size_t overlays = 0;      // op entries made for call or scope policies, now
  size_t retired = 0;       // things waiting until nobody uses them (of all runtimes)
};

class Runtime {
 public:
  // With the built-in backends. Costs some milliseconds and a few MiB.
  YARD_API Runtime();
  YARD_API explicit Runtime(const RuntimeSettings& settings);
  YARD_API ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // The process's runtime; made on first use, never destroyed.
  YARD_API static Runtime& shared();

  // Registers the built-in backends unless that has been done; calls do it by themselves.
  YARD_API Status ensure_initialized();
  // Back to the built-in backends, without what was set here as policy and as static map, and without active hooks.
  // What the environment and the rule file say stays, and so do labels, modes and a recording.
  YARD_API Status reset();

  // ---- Registry ----
  YARD_API Status apply(Changes changes);
  // The same, with word of when what was taken out is gone.
  YARD_API Result<Ticket> apply_with_ticket(Changes changes);
  YARD_API Listing list() const;
  // All ops' kernels with that id.
  YARD_API std::vector<KernelInfo> find_kernels(std::string_view id) const;

  // ---- Plugins ----
  YARD_API Plugins plugins() const noexcept;
  // What devices have, as DEVICE:NAME: "cuda:sm_90". The library looks at the processor itself; of other devices it
  // knows only what a program that uses them states. For kernels and plugins that need it; those refused for want
  // of it are looked at again. Adds to what was stated; an error if one of them is no such thing.
  YARD_API Status state_device_features(const std::vector<std::string>& features);

  // ---- Health ----
  YARD_API Health health() const noexcept;
  // What the canaries of the rule file have seen since the runtime was made.
  YARD_API CanaryReport canaries() const;

  // ---- Hooks ----
  YARD_API Hooks hooks() const noexcept;

  // ---- Dispatched functions ----
  YARD_API Functions functions() const noexcept;

  // ---- Policy ----
  // What is in force for the process: what was set here, over the environment, over the rule file.
  YARD_API Policy policy() const;
  YARD_API Status set_policy(Policy policy);
  // Takes back what was set here: only the environment has its say.
  YARD_API Status reset_policy();
  // Reads the environment again; it is read by itself only once. A variable whose value means nothing keeps
  // what it said before, and is the error; the others count. Like getenv, not while another thread changes
  // the environment.
  YARD_API Status reload_environment();
  // What is wrong with the environment as it was last read, and with the rule file. Also in the log.
  YARD_API std::vector<Problem> problems() const;

  // ---- Rules ----
  // Reads a rule file, checks it against the ops and kernels there are and puts it in force; with an error
  // nothing changes. The status is the first error with the others as notes; `problems` gets all of them, and
  // warnings. An empty path takes the rules out of force and ends the watch.
  YARD_API Status load_config(const std::string& path,
                              std::vector<ConfigProblem>* problems = nullptr);
  // The same with a value.
  YARD_API Status set_config(Config config, std::vector<ConfigProblem>* problems = nullptr);
  // What is in force; empty where nothing is.
  YARD_API Config config() const;
  // Only checks.
  YARD_API std::vector<ConfigProblem> check_config(const std::string& path) const;
  // As load_config(), and again whenever the file, or one that it includes, is another one; on a thread of the
  // runtime. Whatever the file is like now, it is watched from then on, unless it cannot be: then nothing is. One
  // file at a time. load_config() of a file in mode hot_reload does this.
  YARD_API Status watch_config(const std::string& path, const WatchSettings& settings = {},
                               std::vector<ConfigProblem>* problems = nullptr);
  // What is in force stays.
  YARD_API void unwatch_config();
  // The last versions, oldest first. Computes their differences.
  YARD_API std::vector<ConfigVersion> config_history() const;
  // Puts a remembered version in force, as a new one, if it makes sense now. A watched file stays watched; its next
  // change counts.
  YARD_API Status rollback_config(uint64_t number, std::vector<ConfigProblem>* problems = nullptr);
  // See reload.h. The number is for remove_config_callback(), after which the function is not called any more.
  YARD_API uint64_t add_config_validator(ConfigValidator validator);
  YARD_API uint64_t on_config(ConfigListener listener);
  YARD_API void remove_config_callback(uint64_t id);
  // Labels of every call, for rules; those of a scope or of a call itself are stronger.
  YARD_API Status set_labels(std::map<std::string, std::string, std::less<>> labels);

  // ---- Modes ----
  // The static kernels of ops, in the place of those set before; each is stronger than what the rule file's
  // static_kernel_map says of the op. An op or a kernel that does not exist is an error, all of them at once, and
  // nothing changes then. An empty map takes everything back.
  YARD_API Status set_static_map(StaticMap map);
  YARD_API StaticMap static_map() const;
  // A mode of the program's own (mode.h); the provider is held until no call uses it. An error if there is one of
  // that name. A rule file that names it must come after it: see RuntimeSettings::modes.
  YARD_API Status add_mode(std::string_view name, ModeProvider provider);
  // Calls in flight finish; calls and scopes that name it afterwards are told that it is not there. An error while
  // the rules in force name it.
  YARD_API Status remove_mode(std::string_view name);

  // ---- Recording ----
  // Counts the calls made from now on and writes them to the file: every few seconds, when it ends and when the
  // process does. What was recorded to another file ends. A file that cannot be written is an error at once; one that
  // is there is replaced with the first call. A forked child goes on, in a file of that name with `.PID` behind it.
  YARD_API Status record_to(const std::string& path);
  // Writes what there is. Fine if nothing is recorded.
  YARD_API Status stop_recording();
  YARD_API RecordingStats recording() const;

  // ---- Calls by name ----
  YARD_API Status call(std::string_view op, std::initializer_list<Arg> args);
  YARD_API Status call(std::string_view op, std::initializer_list<Arg> args, const Options& o);
  YARD_API Status call(std::string_view op, std::span<const Arg> args);
  YARD_API Status call(std::string_view op, std::span<const Arg> args, const Options& o);
  YARD_API Result<Resolution> resolve(std::string_view op, std::initializer_list<Arg> args,
                                      const Options& o = {}) const;
  YARD_API Result<Explanation> explain(std::string_view op, std::initializer_list<Arg> args,
                                       const Options& o = {}) const;
  // From the text form of a call, without tensors.
  YARD_API Result<Resolution> resolve(std::string_view call_spec, const Options& o = {}) const;
  YARD_API Result<Explanation> explain(std::string_view call_spec, const Options& o = {}) const;
  // What a CallSpec says, with defaults and outputs filled in: enough to make its tensors.
  YARD_API Result<ParsedCall> parse(std::string_view call_spec) const;
  // Text form of a call.
  YARD_API Result<std::string> describe(std::string_view op, std::initializer_list<Arg> args,
                                        const Options& o = {}) const;
  // Shapes and dtypes of an op's outputs, from its other arguments.
  YARD_API Result<std::vector<TensorView>> infer(std::string_view op,
                                                 std::initializer_list<Arg> args) const;

  YARD_API RuntimeStats stats() const;

  // For the headers of typed ops.
  YARD_API detail::Core& core() const noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// On Runtime::shared().
inline Status call(std::string_view op, std::initializer_list<Arg> args) {
  return Runtime::shared().call(op, args);
}
inline Status call(std::string_view op, std::initializer_list<Arg> args, const Options& o) {
  return Runtime::shared().call(op, args, o);
}
inline Result<Resolution> resolve(std::string_view op, std::initializer_list<Arg> args,
                                  const Options& o = {}) {
  return Runtime::shared().resolve(op, args, o);
}
inline Result<Resolution> resolve(std::string_view call_spec, const Options& o = {}) {
  return Runtime::shared().resolve(call_spec, o);
}
inline Result<Explanation> explain(std::string_view op, std::initializer_list<Arg> args,
                                   const Options& o = {}) {
  return Runtime::shared().explain(op, args, o);
}
inline Result<Explanation> explain(std::string_view call_spec, const Options& o = {}) {
  return Runtime::shared().explain(call_spec, o);
}

}  // namespace yard
