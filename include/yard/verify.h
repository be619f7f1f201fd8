// SPDX-License-Identifier: Apache-2.0
// Verification checks that kernels compute the right results, before (docs/guides/verify.md) and
// while they are in use (docs/guides/canaries.md). sample_calls() makes calls to try rules on.
//
//   yard::VerifyOptions options;
//   options.kernel = "vendor.acme";
//   yard::VerifyReport report = yard::verify(yard::Runtime::shared(), options).value();
//   if (!report.ok()) std::puts(report.kernels[0].worst.what.c_str());
#pragma once

#include <yard/runtime.h>

namespace yard {

struct Expectation {  // a known failure or unsupported call
  // Either the kernel rejects or declines every such call, or at least one such call fails.
  enum class Kind : uint8_t { kUnsupported, kFails };
  std::string kernel, op, call;  // globs
  Kind kind = Kind::kFails;
  std::string reason;
  int line = 0;
};

// Reads lines `KERNEL OP CALLSPEC : unsupported|fails : reason`. `name` stands for the text in
// messages. The error is the first invalid line, with the others as notes.
YARD_API Result<std::vector<Expectation>> parse_expectations(std::string_view text,
                                                             std::string_view name);

inline constexpr size_t kVerifiedRuns = 100;  // the fewest for KernelReport::verified()

struct KernelReport {
  struct Case {        // a failed call, or the passed one with the largest error
    std::string call;  // a CallSpec
    Contents contents = Contents::kNormal;
    uint64_t seed = 0;  // CallTensors(call, seed, contents) makes the same contents
    double error = 0;   // in units of the tolerance; infinite if it is not a numerical error
    std::string what;   // "out[3,17] is 0.5 where the reference has 0.25"
    std::string options, weights;  // of kernels with state: "window=4", "sink=f32[8]"
  };
  struct Reason {
    // A name of docs/reference/reasons.md, "declined", "expected", "no_reference" or "failed".
    std::string reason;
    std::string detail;  // of the first one
    size_t count = 0;
  };

  std::string op, id, backend;
  Kind kind = Kind::kDefault;
  size_t passed = 0;
  size_t failed = 0;            // with unexpected passes
  size_t skipped = 0;           // the kernel does not accept the call
  size_t declined = 0;          // the kernel declined the call when it ran
  size_t expected = 0;          // expected failures
  Case worst;                   // a failure if there is one; without a call if nothing ran
  std::vector<Case> failures;   // the first ones
  std::vector<Reason> reasons;  // most frequent first
  std::vector<double> errors;   // of each case that ran, in units of the tolerance

  size_t ran() const noexcept { return passed + failed + expected; }
  bool verified() const noexcept { return passed >= kVerifiedRuns && passed == ran(); }
};

struct VerifyOptions {
  struct Progress {
    std::string_view op;
    size_t op_index = 0, op_count = 0;
    size_t done = 0, cases = 0;  // of this op
    size_t failed = 0;           // so far, of all
  };

  std::string op, kernel, backend;  // all if empty; `kernel` is an id
  // Only kernels of this loaded plugin. A smoke test runs first, and its failure ends the run.
  std::string plugin;
  bool smoke_test_only = false;  // with `plugin`: compare nothing
  uint64_t seed = 1;
  // Calls from the schema for each op, and calls from its own limits for each kernel.
  size_t cases = 300;
  int64_t max_elements = 1 << 20;  // of one tensor
  std::vector<Expectation> expectations;
  // If not empty, only these CallSpecs run, with all kinds of contents.
  std::vector<std::string> calls;
  // Named values for kernels with state. Missing ones are generated, as is the data of tensors.
  std::vector<Arg> options, weights;
  // Called before each case, on the calling thread. Returns false to end the run.
  std::function<bool(const Progress&)> progress;
  std::string function;  // "group/name": only its verifiers, and no kernels
  // Called before each run of a kernel or verifier, so that a crash can be located. Must not throw.
  std::function<void(std::string_view op, std::string_view kernel, const KernelReport::Case&)>
      watch;
  std::function<void(std::string_view function, std::string_view backend, size_t sample)>
      watch_function;
};

struct FunctionReport {  // a backend's verifier of a function, on the function's sample calls
  enum class State : uint8_t { kPassed, kBroken, kNotChecked, kNoVerifier };
  std::string function, backend;  // "group/name"
  State state = State::kNotChecked;
  size_t samples = 0;
  size_t accepted = 0, refused = 0, broken = 0;
  std::vector<std::string> problems;  // "sample 2: it threw: no entry 7"; the first ones
  std::string why;                    // of kNotChecked: "declares no sample arguments"
};
YARD_API const char* to_string(FunctionReport::State state) noexcept;

struct VerifyReport {
  std::vector<KernelReport> kernels;      // by op and id
  std::vector<Expectation> unused;        // expectations that matched no call
  std::vector<FunctionReport> functions;  // by function and backend
  bool cancelled = false;
  YARD_API size_t failed() const noexcept;
  YARD_API size_t broken() const noexcept;  // backends whose verifier of a function is broken
  // Whether a kernel has passed a run, or a function was called with samples.
  YARD_API bool any_passed() const noexcept;
  bool ok() const noexcept { return any_passed() && failed() == 0 && broken() == 0; }
};

// Runs on the calling thread for some seconds. Fails only if an option names something unknown.
YARD_API Result<VerifyReport> verify(const Runtime& runtime, const VerifyOptions& options = {});

YARD_API Result<Difference> compare_results(const Runtime& runtime, std::string_view op,
                                            const CallTensors& found, const CallTensors& expected);

struct CanaryReport {
  struct Mismatch {
    std::string op, kernel;
    std::string against;  // the kernel it was compared with; empty if outputs must only be finite
    std::string call;     // a CallSpec
    std::string worst;    // "out[3,17]"
    double found = 0;     // there, by the kernel
    double expected = 0;  // there, by the other kernel
    double error = 0;     // in units of the tolerance; infinite if it is not a numerical error
    std::chrono::system_clock::time_point when;
    std::string dump;  // the file with its inputs, once it is written
  };
  struct Kernel {
    std::string op, kernel;
    CanaryRule::Check check = CanaryRule::Check::kValues;
    uint64_t calls = 0, checked = 0, mismatches = 0;
    uint64_t skipped = 0;     // sampled, but could not be checked
    std::string why_skipped;  // the first of them
  };
  std::vector<Kernel> kernels;       // by op and kernel
  std::vector<Mismatch> mismatches;  // the last 64, oldest first
};
YARD_API std::string to_string(const CanaryReport::Mismatch& mismatch);

struct CanaryDump {
  CanaryReport::Mismatch mismatch;   // without `dump`
  std::optional<double> rtol, atol;  // of the rule; if unset, of the op
  std::vector<TensorBytes> inputs;   // every tensor that the call reads
};

YARD_API std::string to_bytes(const CanaryDump& dump);
// Fails with kParse if the untrusted `bytes` hold no dump. `name` stands for the file in messages.
YARD_API Result<CanaryDump> parse_canary_dump(std::string_view bytes, std::string_view name);
YARD_API Result<CanaryDump> read_canary_dump(const std::string& path);  // at most 1 GiB

struct CanaryReplay {
  std::string op, kernel, against, call;
  Status status;          // of the kernel
  Difference difference;  // only if the status is OK
  std::string damage;     // forbidden writes to memory; empty if there are none
  bool ok() const noexcept { return status.ok() && damage.empty() && difference.within; }
};

// Runs a kernel of the op, by default the dump's, on the inputs, and compares it as the canary did.
// Ignores policy and health.
YARD_API Result<CanaryReplay> replay(const Runtime& runtime, const CanaryDump& dump,
                                     std::string_view kernel = {});

// Returns calls to try rules on: of every dtype, size, layout and flag, and for each rule of
// `configs` one that matches and others that just miss. Opens the op's plugin. Deterministic.
YARD_API Result<std::vector<std::string>> sample_calls(const Runtime& runtime, std::string_view op,
                                                       std::span<const Config> configs = {},
                                                       size_t limit = 2000);

// Rules and score entries in force that match no call: "'name', dispatch_rules[2] (rules.yaml:7)".
YARD_API std::vector<std::string> unmet_rules(const Runtime& runtime,
                                              std::span<const std::string> calls);

}  // namespace yard
