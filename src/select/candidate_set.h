// SPDX-License-Identifier: Apache-2.0
// The kernels of one op under one policy, with everything that does not depend on the call. A
// CandidateSet is immutable and made for each snapshot entry. Threads may select from it at once.
//
// The selector reads only what the set lists of a call: predicates, fields of verifiers and cost
// hints, and rules. Keys of plans are compiled from them, so a cached plan equals a fresh one.
#pragma once

#include "health/health_snapshot.h"
#include "op/call.h"
#include "policy/process.h"
#include "registry/changes.h"
#include "registry/interfaces.h"

namespace yard::select {

Device device_of(const yard_value_t* args, uint32_t count) noexcept;
// Returns the call as a CallSpec without alignment.
std::string call_text(const op::Program& program, const yard_value_t* args);

// A limit on every tensor is listed once for each tensor.
struct Limit {
  op::Predicate predicate;
  uint32_t index;  // in registry::Kernel::limits; beyond these, in its own parameters
  int32_t reason;  // YARD_REASON_* of calls that fail it
  uint32_t arg;    // the argument of a limit on tensors; else 0
};

// A breaker of calls that have its key's device and dtypes, and sizes that pass `sizes`.
struct KeyBreaker {
  const health::BreakerStatus* status;
  std::vector<op::Predicate> sizes;
};

// The parts of a call that foreign code may read: integer fields and whole arguments.
struct Reads {
  std::vector<op::Field> fields;  // in the order of the names; without sources if not integers
  std::vector<uint8_t> args;      // read whole

  // If `names` is null, returns all arguments.
  static Reads resolve(const op::Program& program, const std::vector<std::string>* names);
};

struct NeededTransform {
  uint32_t param;  // of the kernel's own
  uint32_t kinds;  // a mask of op::Transform
  DType from;
  double ns;  // estimated
};

struct KernelCandidate {
  std::shared_ptr<const registry::Kernel> kernel;
  std::vector<Limit> limits;
  Reads verify_reads;
  std::vector<op::Field> cost_fields;
  std::vector<uint32_t> transformable;  // the kernel's own parameters with requirements
  yard_verdict_t fixed{};               // why policy or the machine excludes it from all calls
  std::vector<uint32_t> device_needs;   // in registry::Kernel::needs: features of the device
  // Breakers from OpSettings::health: for all calls (null if closed), and for some kinds of calls.
  const health::BreakerStatus* breaker = nullptr;
  std::vector<KeyBreaker> key_breakers;
  // Sizes of kinds of calls that are counting (health/health_snapshot.h). Selection ignores them.
  std::vector<std::vector<op::Predicate>> counting;

  // Returns the open or half-open breaker that a call is subject to, or null.
  const health::BreakerStatus* breaker_for(const op::Program& program, Device device,
                                           const yard_value_t* args) const noexcept;
  std::vector<NeededTransform> needed_transforms(const yard_value_t* args) const;
};

// Index -1 asks whether any device of the type has the feature. Processor features are detected.
bool has_feature(const yard_host_t* host, Device device, const std::string& name);

struct ProcessState {
  const yard_host_t* host = nullptr;
  bool forked = false;  // a forked child, where backends that do not survive fork() are excluded
};

struct OpSettings {
  // Objects that observe the calls. Each may be null.
  struct Watch {
    std::shared_ptr<const policy::Rollout> rollout;            // a rollout of other rules
    std::shared_ptr<registry::ResultChecker> checker;          // runs before and after kernels
    std::shared_ptr<const registry::CallObservers> observers;  // are called after every call

    bool any() const noexcept { return rollout != nullptr || checker != nullptr; }
  } watch;
  struct Cache {
    bool enabled = true;                   // whether plans are kept
    size_t plans = 0;                      // most plans to keep; 0 means the runtime's default
    std::chrono::nanoseconds lifetime{0};  // of a plan; 0 means until something changes
  } cache;
  op::Labels labels;                                     // of every call; rules may read them
  std::shared_ptr<const health::HealthSnapshot> health;  // null if all breakers are closed
  std::optional<size_t> fallbacks;  // most kernels after the first; unset means all
};

struct CandidateParts {
  std::shared_ptr<const registry::OpRecord> op_record;
  policy::ClauseSources sources;
  ProcessState process;
  OpSettings settings = {};
};

class CandidateSet {
 public:
  explicit CandidateSet(CandidateParts parts);
  // Returns an equal set, but for the clauses that the other sources give.
  CandidateSet with(policy::ClauseSources sources) const {
    return CandidateSet({record_, std::move(sources), process_, settings_});
  }

  const registry::OpRecord& op_record() const noexcept { return *record_; }
  const op::Program& program() const noexcept { return *record_->op->program; }
  const std::vector<KernelCandidate>& all() const noexcept { return all_; }  // by id
  // The call must fit the program.
  health::CallKind kind_of(const yard_value_t* args) const;
  // Tells calls of one kind apart.
  uint64_t sizes_hash(const yard_value_t* args) const noexcept;
  const yard_host_t* host() const noexcept { return process_.host; }
  const policy::Clauses& clauses() const noexcept { return clauses_; }
  const policy::ModeSettings& mode() const noexcept { return clauses_.sources().mode; }
  const OpSettings& settings() const noexcept { return settings_; }
  bool strict() const noexcept { return clauses_.sources().policy.strict.value_or(false); }
  // Inputs that a kernel may overwrite are then copied before it runs.
  bool saves_inputs() const noexcept { return saves_inputs_; }
  // Rules may read labels, and a mode of the program can read everything.
  bool reads_labels() const noexcept;
  // A call then needs a permit before it runs a kernel whose breaker is half-open.
  bool half_open() const noexcept { return half_open_; }
  // Returns the half-open breaker that a call of this kernel is subject to, or null.
  const health::BreakerStatus* half_open_breaker(const registry::Kernel& kernel,
                                                 const yard_value_t* args) const;
  const Reads& mode_reads() const noexcept { return mode_reads_; }
  // Returns whether the mode is static and the op has no static kernel.
  bool unmapped() const noexcept { return mode().is_static_only() && clauses_.mapped().empty(); }

 private:
  void read_kernel(KernelCandidate& c) const;
  void read_health();

  std::shared_ptr<const registry::OpRecord> record_;
  OpSettings settings_;
  policy::Clauses clauses_;
  std::vector<op::Field> dims_;
  ProcessState process_;
  bool saves_inputs_, half_open_ = false;
  std::vector<KernelCandidate> all_;
  Reads mode_reads_;
};

inline void reject(yard_verdict_t& v, int32_t reason, int64_t a = 0, int64_t b = 0, int64_t c = 0) {
  v.reason = reason;
  v.figures[0] = a, v.figures[1] = b, v.figures[2] = c;
}
// `clause` excludes a kernel. The first figure of the verdict is its index.
yard_verdict_t verdict_of(const policy::Clauses& clauses, uint32_t clause) noexcept;
// Returns why the machine or the process excludes a kernel from all calls.
yard_verdict_t machine_verdict(const registry::Kernel& kernel, const ProcessState& process);
policy::KernelFacts facts_of(const registry::Kernel& kernel) noexcept;
// Returns why policy excludes a whole backend (by vendor or switch), or NONE.
int32_t backend_reason(const Policy& policy, const registry::Backend& backend);

}  // namespace yard::select
