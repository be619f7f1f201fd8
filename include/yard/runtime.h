// SPDX-License-Identifier: Apache-2.0
// Runtime: a registry, a policy and the plans made from them. Independent of every other Runtime.
//
//   yard::Runtime& runtime = yard::Runtime::shared();           // the one that typed ops (op.h) call on
//   runtime.rules().load("/etc/acme/rules.yaml").or_throw();
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

class Functions;  // function.h
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
  std::vector<std::string> device_features = {};  // see Plugins::state_device_features()
  // Modes of the program, by name; known before the rule file is read, which may name them.
  std::map<std::string, ModeProvider, std::less<>> modes = {};
  // Whether live control (inspect.h) reaches this runtime. Off in privileged processes and with YARD_INSPECT=off.
  bool inspect = true;
};

class YARD_API Runtime {
 public:
  Runtime();  // costs some milliseconds and a few MiB
  explicit Runtime(const RuntimeSettings& settings);
  ~Runtime();  // no thread may be inside a call of it
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // The process's runtime; made on first use, never destroyed.
  static Runtime& shared();

  // The most threads that a loop of a kernel uses, the calling one included; 0: as many as it may run on. For all runtimes.
  static void limit_threads(int32_t most) noexcept;

  // Back to the built-in backends, without the policy and static map set here, and without active backends of functions.
  // Environment, rule file, labels, modes and a recording stay.
  Status reset();

  Rules rules() const noexcept;          // config.h
  Plugins plugins() const noexcept;      // plugins.h
  Functions functions() const noexcept;  // function.h
  Health health() const noexcept;        // health.h
  Recording recording() const noexcept;  // trace.h

  // Changes ops, backends and kernels (registry.h). The ticket tells when what was removed is gone.
  Result<Ticket> apply(Changes changes);
  Listing list() const;

  // In force for the process: what was set here, over the environment, over the rule file.
  Policy policy() const;
  // Replaces what was set before. An empty policy removes it.
  Status set_policy(Policy policy);
  // An invalid or doubtful setting.
  struct Problem {
    std::string where;    // "YARD_PREFER"
    std::string found;    // in quotes
    std::string message;  // what is wrong, and what was expected
    bool error = true;    // false: a warning
  };
  // Problems of RuntimeSettings, of the environment as it was last read, and of the rule file. Also in the log.
  std::vector<Problem> problems() const;

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
  // Shapes and dtypes of an op's outputs, from its other arguments.
  Result<std::vector<TensorView>> infer(std::string_view op, std::initializer_list<Arg> args) const;

  // Counters and timings (stats.h). Without calls, `calls`, `ops` and `since` are left out, which is quick.
  RuntimeStats stats(bool with_calls = true) const;
  void reset_stats();  // to zero; KernelInfo and the health report keep theirs

  // For the library's own headers.
  detail::Core& core() const noexcept;

 private:
  friend class Plugins;
  friend class Rules;
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
