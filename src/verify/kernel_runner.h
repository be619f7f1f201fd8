// SPDX-License-Identifier: Apache-2.0
// Runs a single kernel for conformance, smoke tests and canaries.
#pragma once

#include <yard/verify.h>

#include <deque>

#include "exec/executor.h"
#include "exec/states.h"
#include "select/candidate_set.h"
#include "verify/elements.h"
#include "verify/generator.h"

namespace yard::verification {

struct OpUnderTest {
  std::shared_ptr<const registry::OpRecord> op_record;
  std::set<std::string> kernels;  // ids of the kernels to test
  select::ProcessState where;
  std::vector<op::Call> calls = {};  // used instead of generated calls
};

struct Outcome {
  enum class Verdict : uint8_t { kPassed, kFailed, kSkipped, kDeclined };
  Verdict verdict = Verdict::kPassed;
  double error = 0;         // in units of the tolerance
  std::string reason = {};  // why it was skipped
  std::string what = {};    // details, unless it simply passed
};

// Runs one kernel as the only candidate, without policy and health. Borrows the kernel.
class KernelRunner {
 public:
  KernelRunner(const OpUnderTest& op, const registry::Kernel& kernel);

  const registry::Kernel& kernel() const noexcept { return kernel_; }
  bool has_flag(uint32_t flag) const noexcept { return (kernel_.d.flags & flag) != 0; }

  // Returns why the probe of the kernel's backend fails, or an empty text.
  std::string unavailable() const;
  // Returns why the kernel does not accept the call, or nullopt.
  std::optional<Outcome> refusal(const op::Call& call) const;
  // Runs the kernel on any thread. `states` belong to an instance, or are null for plain calls. A
  // kernel that changes the floating-point control state has failed, and sets
  // `changed_float_state`.
  Status run(uint32_t flags, const CallTensors& tensors, exec::States* states = nullptr,
             bool* changed_float_state = nullptr) const;
  CallLimits limits() const;

 private:
  select::CandidateSet candidates_;
  std::unique_ptr<exec::KernelStats> stats_ = std::make_unique<exec::KernelStats>();
  exec::Plan::Ptr plan_;
  std::unique_ptr<exec::States> states_ = std::make_unique<exec::States>();  // with default options
  const registry::Kernel& kernel_;
  size_t index_ = 0;  // of the kernel among the candidates
};

// Options and weights of kernels with state, for the reference kernel and the kernel under test.
struct TestInstance {
  std::deque<Buffer> weights;  // outlives the states that borrow it
  exec::States states;
  std::string options;                 // such as "window=4, causal=true"
  std::string loaded;                  // such as "sink=f32[8]"
  exec::Weights made;                  // of `weights`, or given by the caller
  std::vector<std::string> arguments;  // weights of the kernel that are arguments of the call

  void add_arguments(const registry::Kernel& kernel, const op::Program& program);
  // Loads the weights. The arguments of the call must outlive the states.
  void load(const std::vector<Arg>& args);
};

class InstanceGenerator {
 public:
  // Also varies the options that the reference kernel has. Borrows its arguments.
  InstanceGenerator(const registry::Kernel& kernel, const registry::Kernel& reference,
                    const VerifyOptions& given);

  bool needed() const noexcept { return kernel_.d.create != nullptr; }
  // If `random` is null, options that are not given have their defaults.
  std::unique_ptr<TestInstance> next(const op::Program& program, const op::Call& call,
                                     uint64_t seed, Random* random);

 private:
  const registry::Kernel& kernel_;
  const VerifyOptions& given_;
  std::vector<ShuffleBag<exec::OwnedValue>> varied_;  // the values of one option each
};

// Compares two results of a call. If they differ too much, compares them again with the magnitudes
// that the op states.
Difference compare_results(const registry::Op& op, std::span<const CallTensors::Written> found,
                           const CallTensors& expected,
                           std::span<const yard_tolerance_t> tolerances);

// Returns null if the op has no kernel with that id.
const registry::Kernel* find_kernel(const registry::OpRecord& op_record, std::string_view id);
// Returns the reference kernel of highest priority, or null. Its results are correct by definition.
const registry::Kernel* reference_kernel(const registry::OpRecord& op_record);

}  // namespace yard::verification
