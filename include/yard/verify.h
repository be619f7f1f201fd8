// SPDX-License-Identifier: Apache-2.0
// Conformance: every kernel held against its op's reference kernel, which is what the op means.
//
//   yard::VerifyOptions options;
//   options.kernel = "vendor.acme";
//   yard::VerifyReport report = yard::verify(yard::Runtime::shared(), options).value();
//   for (const yard::KernelReport& k : report.kernels)
//     std::printf("%s %s: %zu passed, %zu failed\n", k.op.c_str(), k.id.c_str(), k.passed, k.failed);
//
// Calls are made from the op's schema alone, so ops and kernels of any plugin can be held to it. Policy
// plays no part: a kernel is asked whether it takes a call as if it were the only one, and run directly.
// Of dispatched functions (yard/function.h) the verifiers are checked, by sample calls.
// docs/guides/verify.md says what is tried and what counts as wrong.
#pragma once

#include <yard/call_tensors.h>
#include <yard/runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

// What is known to be wrong or missing. Kept in a file: parse_expectations().
struct Expectation {
  enum class Kind : uint8_t {
    kUnsupported,  // the kernel refuses or declines every such call
    kFails,        // at least one such call fails
  };
  std::string kernel, op, call;  // globs
  Kind kind = Kind::kFails;
  std::string reason;
  int line = 0;  // in its file
};

// Lines `KERNEL OP CALLSPEC : unsupported|fails : reason`, where the first three are globs; blank lines
// and those that begin with # say nothing. The glob of the call stands for the whole CallSpec, or for the
// CallSpec followed by ` contents=NAME`. `name` is what messages call the text: a file name. The error has
// the first line that is wrong, and the others as notes.
YARD_API Result<std::vector<Expectation>> parse_expectations(std::string_view text,
                                                             std::string_view name);

struct VerifyProgress {
  std::string_view op;
  size_t op_index = 0, op_count = 0;
  size_t done = 0, cases = 0;  // of this op
  size_t failed = 0;           // so far, of all
};

// A call that went wrong, or came nearest to it.
struct VerifyCase {
  std::string call;  // a CallSpec
  Contents contents = Contents::kNormal;
  uint64_t seed = 0;  // of the contents: CallTensors(call, seed, contents) makes them again
  double error = 0;   // in units of the tolerance; infinite where no number says how wrong it is
  std::string
      what;  // "out[3,17] is 0.5 where the reference has 0.25", "wrote to the memory of ..."
};

struct VerifyOptions {
  std::string op, kernel, backend;  // empty: all; `kernel` is an id
  std::string plugin;               // only kernels that this plugin brought; it must be loaded
  uint64_t seed = 1;
  size_t cases = 300;              // calls per op
  int64_t max_elements = 1 << 20;  // of one tensor
  int repeats = 3;                 // runs of a kernel that claims to be deterministic
  std::vector<Expectation> expectations;
  // Called before each case, on the thread that verifies; false ends the run.
  std::function<bool(const VerifyProgress&)> progress;
  std::string function;  // "group/name": only this function's verifiers, and no kernels
  // Called before each run of a kernel, so that its last word says which one crashed. Must not throw.
  std::function<void(std::string_view op, std::string_view kernel, const VerifyCase&)> watch;
  // The same before a verifier of a function is asked; samples are counted from 1.
  std::function<void(std::string_view function, std::string_view backend, size_t sample)>
      watch_function;
};

// Why calls were not run, or not to the end.
struct VerifyReason {
  std::string reason;  // of the catalogue, or "declined", "expected", "no_reference"
  std::string detail;  // the first time, for people
  size_t count = 0;
};

struct KernelReport {
  std::string op, id, backend;
  Kind kind = Kind::kDefault;
  size_t passed = 0;
  size_t failed = 0;    // unexpected passes among them
  size_t skipped = 0;   // the kernel does not take the call
  size_t declined = 0;  // it saw so when it ran
  size_t expected = 0;  // failed, as was expected
  VerifyCase worst;     // a failure if there is one; its call is empty when nothing ran
  std::vector<VerifyCase> failures;   // the first ones
  std::vector<VerifyReason> reasons;  // most frequent first
  std::vector<double> errors;         // of each case that ran, in units of the tolerance

  size_t ran() const noexcept { return passed + failed + expected; }
};

// How one backend's verifier of a dispatched function did. It is asked about every sample call (yard/samples.h), twice
// and on two other threads; arguments, environment and registry are compared before and after.
struct FunctionReport {
  enum class State : uint8_t {
    kPassed,
    kBroken,      // see `problems`
    kNotChecked,  // see `why`
    kNoVerifier,  // takes every call: there is nothing to check
  };
  std::string function, backend;  // "group/name"
  State state = State::kNotChecked;
  size_t samples = 0;
  size_t accepted = 0, refused = 0, broken = 0;
  std::vector<std::string> problems;  // "sample 2: it threw: no entry 7"; the first ones
  std::string why;                    // it was not checked: "declares no sample arguments"
};
// "passed", "broken", "not_checked", "no_verifier".
YARD_API const char* to_string(FunctionReport::State state) noexcept;

struct VerifyReport {
  std::vector<KernelReport> kernels;      // by op and id
  std::vector<Expectation> unused;        // matched no call
  std::vector<FunctionReport> functions;  // by function and backend
  bool cancelled = false;
  size_t failed() const noexcept {
    size_t n = 0;
    for (const KernelReport& k : kernels) n += k.failed;
    return n;
  }
  // Backends whose verifier of a function is broken.
  size_t broken() const noexcept {
    size_t n = 0;
    for (const FunctionReport& f : functions) n += f.state == FunctionReport::State::kBroken;
    return n;
  }
  bool ok() const noexcept { return failed() == 0 && broken() == 0; }
};

// Runs on the calling thread for as long as it takes: some seconds. Fails only when an option names
// something that is not there. A kernel that crashes takes the process with it.
YARD_API Result<VerifyReport> verify(const Runtime& runtime, const VerifyOptions& options = {});

}  // namespace yard
