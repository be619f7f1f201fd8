// SPDX-License-Identifier: Apache-2.0
// Runtime: a registry, a policy and the plans made from them. Independent of every other Runtime.
//
//   yard::Runtime& runtime = yard::Runtime::shared();           // the one that typed ops (op.h) call on
//   runtime.load_config("/etc/acme/rules.yaml").or_throw();
//   runtime.call("rms_norm", {out, x, weight, {"eps", 1e-5}}).or_throw();
//
// All functions may be called from any thread at any time, also from inside kernels; none waits for calls in flight. A
// forked child continues with the registry and the policy of its parent.
#pragma once

#include <yard/call_spec.h>
#include <yard/config.h>
#include <yard/explain.h>
#include <yard/health.h>
#include <yard/options.h>
#include <yard/plugins.h>
#include <yard/policy.h>
#include <yard/registry.h>
#include <yard/stats.h>
#include <yard/trace.h>

namespace yard {

struct CanaryReport;  // verify.h
class Functions;      // function.h
namespace detail {
class Core;
}

struct RuntimeSettings {
  bool builtin_backends = true;
  size_t plans_per_op = 4096;     // beyond it the oldest that were not used lately go
  bool environment = true;        // whether the variables YARD_* are read
  std::string config = {};        // a rule file to start with; empty: that of YARD_CONFIG, or none
  BreakerSettings breakers = {};  // the rule file precedes them
  PluginSettings plugins = {};
  std::vector<std::string> device_features = {};  // see Runtime::state_device_features()
  // Modes of the program, by name; known before the rule file is read, which may name them.
  std::map<std::string, ModeProvider, std::less<>> modes = {};
  // Whether the process answers questions about this runtime, and takes changes, on a socket that only its user can open
  // (inspect.h). Off in privileged processes and with YARD_INSPECT=off.
  bool inspect = true;
};

// An invalid or doubtful setting.
struct Problem {
  std::string where;    // "YARD_PREFER"
  std::string found;    // in quotes
  std::string message;  // what is wrong, and what was expected
  bool error = true;    // false: a warning
};

class YARD_API Runtime {
 public:
  // With the built-in backends. Costs some milliseconds and a few MiB.
  Runtime();
  explicit Runtime(const RuntimeSettings& settings);
  ~Runtime();  // no thread may be inside a call of it
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // The process's runtime; made on first use, never destroyed.
  static Runtime& shared();

  // The most threads that a loop of a kernel uses from now on, the calling one included; 0, as at the start: as many as the
  // caller may run on. For all runtimes of the process.
  static void limit_threads(int32_t most) noexcept;

  // Registers the built-in backends unless that is done; calls do it themselves.
  Status ensure_initialized();
  // Back to the built-in backends, without the policy and static map set here, and without active backends of functions. Environment, rule
  // file, labels, modes and a recording stay.
  Status reset();

  // Ops, backends and kernels (registry.h).
  Status apply(Changes changes);
  // The same; the ticket tells when what was removed is gone.
  Result<Ticket> apply_with_ticket(Changes changes);
  Listing list() const;
  // All ops' kernels with that id.
  std::vector<KernelInfo> find_kernels(std::string_view id) const;

  Plugins plugins() const noexcept;
  // States features of devices, as DEVICE:NAME or DEVICE:INDEX:NAME: "cuda:sm_90" (of every cuda device), "cuda:1:sm_90",
  // for kernels and plugins that need them; those refused for lack of one are considered again. A number after the last
  // '_' is a level, which satisfies lower ones; the latest one counts, and a device's own precedes that of its type. The
  // library detects features of the processor only. Adds to what was stated; an error if one is malformed.
  Status state_device_features(const std::vector<std::string>& features);

  Health health() const noexcept;
  // Results of the rule file's canary checks since the runtime was made.
  CanaryReport canaries() const;

  Functions functions() const noexcept;

  // In force for the process: what was set here, over the environment, over the rule file.
  Policy policy() const;
  Status set_policy(Policy policy);
  // Removes what was set here.
  Status reset_policy();
  // Reads the environment again; otherwise it is read once. A variable with an invalid value keeps its previous meaning and
  // is the error; the others take effect. Like getenv, not while another thread changes the environment.
  Status reload_environment();
  // Problems of the environment as it was last read, and of the rule file. Also in the log.
  std::vector<Problem> problems() const;

  // Reads a rule file, checks it against the registered ops and kernels and puts it in force; on error nothing changes. The
  // status is the first error with the others as notes; `problems` gets all of them, and warnings. An empty path removes
  // the rules and ends the watch.
  Status load_config(const std::string& path, std::vector<ConfigProblem>* problems = nullptr);
  // The same with a value.
  Status set_config(Config config, std::vector<ConfigProblem>* problems = nullptr);
  // The rules in force; empty: none.
  Config config() const;
  // Only checks.
  std::vector<ConfigProblem> check_config(const std::string& path) const;
  // As load_config(), and again, on a thread of the runtime, whenever the file or one that it includes changes. The file is
  // watched even if it is invalid now; if it cannot be watched, none is. One file at a time. load_config() of a file in
  // mode hot_reload does this.
  Status watch_config(const std::string& path, const WatchSettings& settings = {},
                      std::vector<ConfigProblem>* problems = nullptr);
  // The rules in force stay.
  void unwatch_config();
  // The last versions, oldest first. Computes their differences.
  std::vector<ConfigVersion> config_history() const;
  // Puts an earlier version in force, as a new one, if it is valid now. A watched file stays watched; its next change
  // counts.
  Status rollback_config(uint64_t number, std::vector<ConfigProblem>* problems = nullptr);
  // The number is for remove_config_callback(), after which the function is no longer called.
  uint64_t add_config_validator(ConfigValidator validator);
  uint64_t on_config(ConfigListener listener);
  void remove_config_callback(uint64_t id);
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

  // Counts calls from now on and writes them to the file: every few seconds, at the end of the recording and of the process.
  // Ends another recording. A file that cannot be written is an error at once; an existing one is replaced with the first
  // call. A forked child continues in a file of that name with `.PID` appended.
  Status record_to(const std::string& path);
  // Writes the rest. No error if nothing is recorded.
  Status stop_recording();
  RecordingStats recording() const;

  // Prints a line on standard error for each call from now on, `yard,exec,rms_norm,default.simd,f32[8,4096] f32[4096],hit,
  // 12.4us`, which `yard run` and `yard explain` read; and one for each failure of a kernel. 2: also for selections and
  // transforms. 0: none. At the start it is YARD_VERBOSE. Lines are buffered for some milliseconds. Costs nothing when it
  // is off.
  Status set_verbose(int level);
  int verbose() const;

  // A trace of calls, selections, failures, reloads, rollouts and breakers for Perfetto (trace.h). One at a time.
  Status start_trace(size_t max_events = kTraceEvents);
  Result<std::string> stop_trace();
  bool is_tracing() const;

  // Calls by name.
  Status call(std::string_view op, std::initializer_list<Arg> args);
  Status call(std::string_view op, std::initializer_list<Arg> args, const Options& o);
  Status call(std::string_view op, std::span<const Arg> args);
  Status call(std::string_view op, std::span<const Arg> args, const Options& o);
  Result<Resolution> resolve(std::string_view op, std::initializer_list<Arg> args,
                             const Options& o = {}) const;
  Result<Explanation> explain(std::string_view op, std::initializer_list<Arg> args,
                              const Options& o = {}) const;
  // From the text form of a call, without tensors.
  Result<Resolution> resolve(std::string_view call_spec, const Options& o = {}) const;
  Result<Explanation> explain(std::string_view call_spec, const Options& o = {}) const;
  // A CallSpec with defaults and outputs filled in: enough to make its tensors.
  Result<ParsedCall> parse(std::string_view call_spec) const;
  // Text form of a call.
  Result<std::string> describe(std::string_view op, std::initializer_list<Arg> args,
                               const Options& o = {}) const;
  // Shapes and dtypes of an op's outputs, from its other arguments.
  Result<std::vector<TensorView>> infer(std::string_view op, std::initializer_list<Arg> args) const;

  // Counters and timings (stats.h). Sums over all threads; no calling thread waits. Without calls, `calls`, `ops` and `since`
  // are left out: quick, however many classes there are.
  RuntimeStats stats(bool with_calls = true) const;
  // Counters and timings start at zero again; KernelInfo and the health report keep theirs.
  void reset_stats();

  // For the library's own headers.
  detail::Core& core() const noexcept;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

namespace detail {
YARD_API Status::Rep* call_shared(std::string_view op, std::span<const Arg> args);
}
// On Runtime::shared().
inline Status call(std::string_view op, std::initializer_list<Arg> args) {
  return Status::adopt(detail::call_shared(op, {args.begin(), args.size()}));
}
YARD_API Status call(std::string_view op, std::initializer_list<Arg> args, const Options& o);
YARD_API Result<Resolution> resolve(std::string_view op, std::initializer_list<Arg> args,
                                    const Options& o = {});
YARD_API Result<Resolution> resolve(std::string_view call_spec, const Options& o = {});
YARD_API Result<Explanation> explain(std::string_view op, std::initializer_list<Arg> args,
                                     const Options& o = {});
YARD_API Result<Explanation> explain(std::string_view call_spec, const Options& o = {});

}  // namespace yard
