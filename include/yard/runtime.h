// SPDX-License-Identifier: Apache-2.0
// A Runtime has a registry, a policy and the plans made from them. Runtimes are independent.
//
//   yard::Runtime& runtime = yard::Runtime::shared();  // the one that typed ops (op.h) call on
//   runtime.rules().load("/etc/acme/rules.yaml").or_throw();
//   runtime.call("rms_norm", {out, x, weight, {"eps", 1e-5}}).or_throw();
//
// Any thread may call any function at any time, also inside kernels. No function waits for calls.
// A forked child continues with its parent's registry and policy.
#pragma once

#include <yard/call_spec.h>
#include <yard/explain.h>
#include <yard/options.h>
#include <yard/plugins.h>
#include <yard/stats.h>
#include <yard/trace.h>

namespace yard {

class Functions;  // function.h
namespace detail {
class Core;
YARD_API Status::Rep* call_shared(std::string_view op, std::span<const Arg> args);
}  // namespace detail

struct RuntimeSettings {
  bool builtin_backends = true;
  size_t plans_per_op = 4096;     // beyond it, plans that were not used lately are dropped
  bool environment = true;        // whether the variables YARD_* are read
  std::string config = {};        // the first rule file; by default the file in YARD_CONFIG, if any
  BreakerSettings breakers = {};  // the rule file takes precedence
  PluginSettings plugins = {};
  std::vector<std::string> device_features = {};  // see Plugins::state_device_features()
  std::map<std::string, ModeProvider, std::less<>> modes = {};  // by name, also for the rule file
  bool inspect = true;  // whether inspect.h reaches it, which privileged processes never allow
  // Where rule files may have files written: by default YARD_OUTPUT_DIRECTORY, or their folder.
  std::string output_directory = {};
};

class YARD_API Runtime {
 public:
  Runtime();  // costs some milliseconds and a few MiB
  explicit Runtime(const RuntimeSettings& settings);
  ~Runtime();  // no thread may be inside a call of it
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  static Runtime& shared();  // of the process; made on first use, never destroyed

  // Limits a kernel loop's threads in all runtimes. 0 allows all CPUs that a thread may run on.
  static void limit_threads(int32_t most) noexcept;

  // Returns to the built-in backends and drops policy, static map and active backends. Environment,
  // rule file, labels, modes and a recording stay.
  Status reset();

  Rules rules() const noexcept;          // config.h
  Plugins plugins() const noexcept;      // plugins.h
  Functions functions() const noexcept;  // function.h
  Health health() const noexcept;        // health.h
  Recording recording() const noexcept;  // trace.h

  Result<Ticket> apply(Changes changes);
  Listing list() const;

  Policy policy() const;             // what was set here, over the environment, over the rule file
  Status set_policy(Policy policy);  // replaces the one set before
  struct Problem {
    std::string where;    // "YARD_PREFER"
    std::string found;    // in quotes
    std::string message;  // the mistake and the expected form
    bool error = true;    // false for a warning
  };
  // Problems of RuntimeSettings, of the environment as last read, and of the rule file, as logged.
  std::vector<Problem> problems() const;

  Status call(std::string_view op, std::initializer_list<Arg> args);
  Status call(std::string_view op, std::initializer_list<Arg> args, const Options& o);
  Status call(std::string_view op, std::span<const Arg> args);
  Status call(std::string_view op, std::span<const Arg> args, const Options& o);
  Result<Resolution> resolve(std::string_view op, std::initializer_list<Arg> args,
                             const Options& o = {}) const;
  Result<Explanation> explain(std::string_view op, std::initializer_list<Arg> args,
                              const Options& o = {}) const;
  Result<Explanation> explain(std::string_view op, std::span<const Arg> args,
                              const Options& o = {}) const;
  Result<Resolution> resolve(std::string_view call_spec, const Options& o = {}) const;
  Result<Explanation> explain(std::string_view call_spec, const Options& o = {}) const;
  // Fills in defaults and outputs of a CallSpec, from which CallTensors can be made.
  Result<ParsedCall> parse(std::string_view call_spec) const;
  // Returns the outputs of a call without data. Takes only the op's other parameters.
  Result<std::vector<TensorView>> infer(std::string_view op, std::initializer_list<Arg> args) const;
  Result<std::vector<TensorView>> infer(std::string_view op, std::span<const Arg> args) const;

  RuntimeStats stats(bool with_calls = true) const;  // quick without `calls`, `ops` and `since`
  void reset_stats();  // to zero; KernelInfo and the health report keep theirs

  detail::Core& core() const noexcept;  // for the library's own headers

 private:
  friend class Plugins;
  friend class Rules;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// These functions use Runtime::shared().
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
