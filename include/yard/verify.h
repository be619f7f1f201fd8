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

#include <yard/call_spec.h>
#include <yard/config.h>
#include <yard/runtime.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
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

// How one backend's verifier of a dispatched function did. It is asked about every sample call (yard/verdict.h), twice
// and on two other threads, and must give the same answer.
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

// ---- Canary ----
// What numerical canaries have seen: how many calls were looked at, and which had wrong results.
//
// The rule file says whose calls are looked at, and how many of them (canary, docs/guides/canaries.md). A call
// with wrong results counts as a fault of its kernel; where another kernel has run it on copies, the caller gets
// what that one computed.
//
//   for (const yard::CanaryMismatch& m : runtime.canaries().mismatches)
//     std::printf("%s %s: %s\n", m.op.c_str(), m.kernel.c_str(), to_string(m).c_str());

namespace yard {

// A call with wrong results.
struct CanaryMismatch {
  std::string op, kernel;
  std::string against;  // the kernel that is right; empty where outputs were only to be finite
  std::string call;     // a CallSpec
  std::string worst;    // "out[3,17]"
  double found = 0;     // what the kernel had there ...
  double expected = 0;  // ... and what the other one had
  double error = 0;     // in units of the tolerance; infinite where no number says how wrong it is
  std::chrono::system_clock::time_point when;
  std::string dump;  // the file that has its inputs, once that is written; empty: none
};
// "out[3,17] is 0.5 where reference.cpp has 0.25 (12.5 times the tolerance)".
YARD_API std::string to_string(const CanaryMismatch& mismatch);

// One kernel under one check.
struct CanaryCount {
  std::string op, kernel;
  CanaryCheck check = CanaryCheck::kValues;
  uint64_t calls = 0;    // that could have been looked at
  uint64_t checked = 0;  // that were
  uint64_t mismatches = 0;
  uint64_t skipped = 0;     // it was their turn, and they could not be judged
  std::string why_skipped;  // the first of them
};

struct CanaryReport {
  std::vector<CanaryCount> kernels;        // by op and kernel
  std::vector<CanaryMismatch> mismatches;  // the last 64, oldest first
};

}  // namespace yard

// ---- Canary dump ----
// The inputs of a call that a canary found wrong, as a file, and running it again.
//
//   auto dump = yard::read_canary_dump("dumps/canary-....yarddump").value();
//   auto again = yard::replay(yard::Runtime::shared(), dump).value();
//   std::puts(again.ok() ? "right now" : again.difference.worst.c_str());
//
// A file is text up to the line `data`, then the bytes of the tensors, one behind the other, in the order of their
// lines. What is read is checked; a file may come from anywhere.

namespace yard {

struct CanaryDump {
  CanaryMismatch mismatch;           // without `dump`
  std::optional<double> rtol, atol;  // of the rule; both unset: the op's own
  std::vector<TensorBytes> inputs;   // every tensor that the call reads
};

// The file's bytes. Texts that do not fit a line are cut.
YARD_API std::string to_bytes(const CanaryDump& dump);
// Failures are Code::kParse and name what is wrong; `name` is what messages call it.
YARD_API Result<CanaryDump> parse_canary_dump(std::string_view bytes, std::string_view name);
// At most 1 GiB.
YARD_API Result<CanaryDump> read_canary_dump(const std::string& path);

struct CanaryReplay {
  std::string op, kernel, against, call;
  Status status;          // of the kernel
  Difference difference;  // only if that is OK
  std::string damage;     // what it changed that is not its own; empty: nothing
  bool ok() const noexcept { return status.ok() && damage.empty() && difference.within; }
};

// Runs the kernel of the dump, or another of the op, and the kernel that is right (the dump's, else the reference
// kernel) on the dump's inputs. Policy and health play no part. An error if that cannot be done: op or kernel are not
// known, they do not take the call, the inputs are not those of the call, the right kernel fails.
YARD_API Result<CanaryReplay> replay(const Runtime& runtime, const CanaryDump& dump,
                                     std::string_view kernel = {});

}  // namespace yard

// ---- Sample calls ----
// Calls to try rules on before they are in force, where nobody has recorded any.
//
//   yard::Config config = yard::read_config("rules.yaml").config;
//   for (const std::string& call : yard::sample_calls(runtime, "rms_norm", {&config, 1}).value())
//     std::puts(runtime.resolve(call).value().kernel.c_str());
//
// Made from the op's schema: every dtype, small and large, layouts, flags, with and without optionals. For each
// rule of the configs that is about the op, a call for which it holds, and others just beside it: one field
// at a time has another value, numbers by one. The same configs give the same calls.

namespace yard {

// CallSpecs in canonical form, each once, at most `limit`. Fails when there is no such op. Opens the plugin
// that announces the op. Any thread.
YARD_API Result<std::vector<std::string>> sample_calls(const Runtime& runtime, std::string_view op,
                                                       std::span<const Config> configs = {},
                                                       size_t limit = 2000);

// Rules and score entries in force that hold for none of these calls, as "'name', dispatch_rules[2] (rules.yaml:7)":
// what has been tried says nothing about them. Calls that cannot be read count for nothing. Any thread.
YARD_API std::vector<std::string> unmet_rules(const Runtime& runtime,
                                              std::span<const std::string> calls);

}  // namespace yard
