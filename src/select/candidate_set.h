// SPDX-License-Identifier: Apache-2.0
// A candidate set: the kernels of one op under one policy, with everything that does not depend on the call. Immutable;
// made for each snapshot entry; threads may select from it at once.
//
// The selector reads of a call only what a set lists: predicates, fields of verifiers and cost hints, rules. The keys of
// the plan cache are compiled from the same lists, so a cached plan is the plan that a fresh selection would give.
#pragma once

#include <yard/options.h>
#include <yard/policy.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "health/health_snapshot.h"
#include "op/call.h"
#include "op/predicate.h"
#include "op/program.h"
#include "policy/process.h"
#include "policy/rollout.h"
#include "registry/changes.h"
#include "registry/interfaces.h"
#include "registry/records.h"

namespace yard::select {

// Of a call that fits the program. `dims` are those of its CandidateSet.
health::CallKind call_kind(const op::Program& program, const std::vector<op::Field>& dims,
                           const yard_value_t* args);
// The device of the first tensor of a call.
Device device_of(const yard_value_t* args, uint32_t count) noexcept;
// A hash of the call's sizes, for calls of one kind.
uint64_t sizes_hash(const std::vector<op::Field>& dims, const yard_value_t* args) noexcept;
// The call as a CallSpec, without alignment.
std::string call_text(const op::Program& program, const yard_value_t* args);

// A limit of a kernel; one on every tensor is listed once for each.
struct Limit {
  op::Predicate predicate;
  uint32_t index;  // into registry::Kernel::limits; beyond these, into its own parameters
  int32_t reason;  // YARD_REASON_* of calls that fail it
  uint32_t arg;    // the argument that a limit on tensors is about; else 0
};

// A breaker of calls with the device and dtypes of its key, and with sizes that pass these.
struct KeyBreaker {
  const health::BreakerStatus* status;
  std::vector<op::Predicate> sizes;
};

// What foreign code is given of a call: integer fields, and arguments as they are.
struct Reads {
  std::vector<op::Field> fields;  // in the order of the names; others than integers have no sources
  std::vector<uint8_t> args;      // read whole

  // All arguments if there are no names.
  static Reads resolve(const op::Program& program, const std::vector<std::string>* names);
};

struct NeededTransform {
  uint32_t param;  // of the kernel's own
  uint32_t kinds;  // op::Transform
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
  std::vector<uint32_t> device_needs;   // of a call's device, into registry::Kernel::needs
  // Of OpSettings::health: the breaker of all its calls (null: closed), and those of some kinds of calls.
  const health::BreakerStatus* breaker = nullptr;
  std::vector<KeyBreaker> key_breakers;
  // The sizes of the kinds of calls that are counting (health/health_snapshot.h). The selection does not depend on them.
  std::vector<std::vector<op::Predicate>> counting;

  // The breaker that a call is subject to; null if none is open or half-open.
  const health::BreakerStatus* breaker_for(const op::Program& program, Device device,
                                           const yard_value_t* args) const noexcept;
  std::vector<NeededTransform> needed_transforms(const yard_value_t* args) const;
};

// Whether a device has a feature, or any device of that type if the index is -1. For the processor it is detected.
bool has_feature(const yard_host_t* host, Device device, const std::string& name);

struct ProcessState {
  const yard_host_t* host = nullptr;
  bool forked = false;  // a forked child, where backends that do not survive fork() are excluded
};

// What decides how calls of the op are served, besides clauses.
struct OpSettings {
  // What observes the calls; null if there is none.
  struct Watch {
    std::shared_ptr<const policy::Rollout> rollout;            // of other rules
    std::shared_ptr<registry::ResultChecker> checker;          // runs before and after kernels
    std::shared_ptr<const registry::CallObservers> observers;  // are called after every call

    bool any() const noexcept { return rollout != nullptr || checker != nullptr; }
  } watch;
  struct Cache {
    bool enabled = true;                   // whether plans are kept
    size_t plans = 0;                      // how many; 0: the runtime's default
    std::chrono::nanoseconds lifetime{0};  // of a plan; 0: until something changes
  } cache;
  op::Labels labels;                                     // of every call; rules may read them
  std::shared_ptr<const health::HealthSnapshot> health;  // null: all breakers of the op are closed
  std::optional<size_t> fallbacks;                       // kernels after the first; unset: all
};

class CandidateSet {
 public:
  CandidateSet(std::shared_ptr<const registry::OpRecord> op_record, policy::ClauseSources sources,
               const ProcessState& process, OpSettings settings = {});

  const registry::OpRecord& op_record() const noexcept { return *record_; }
  const op::Program& program() const noexcept { return *record_->op->program; }
  const std::vector<KernelCandidate>& all() const noexcept { return all_; }  // by id
  const std::vector<op::Field>& dims() const noexcept { return dims_; }
  const yard_host_t* host() const noexcept { return host_; }
  const policy::Clauses& clauses() const noexcept { return clauses_; }
  const policy::ModeSettings& mode() const noexcept { return clauses_.sources().mode; }
  const OpSettings& settings() const noexcept { return settings_; }
  bool strict() const noexcept { return clauses_.sources().policy.strict.value_or(false); }
  // Inputs that a kernel may overwrite are copied before it runs.
  bool saves_inputs() const noexcept { return saves_inputs_; }
  // Whether labels of a call may matter: rules read them, or a mode of the program, which can read everything.
  bool reads_labels() const noexcept;
  // Whether a breaker is half-open. Calls need a permit before they run its kernel.
  bool half_open() const noexcept { return half_open_; }
  // The half-open breaker that a call of this kernel is subject to; null: none.
  const health::BreakerStatus* half_open_breaker(const registry::Kernel& kernel,
                                                 const yard_value_t* args) const;
  const Reads& mode_reads() const noexcept { return mode_reads_; }
  // Static mode without a static kernel.
  bool unmapped() const noexcept { return mode().is_static_only() && clauses_.mapped().empty(); }

 private:
  void read_kernel(KernelCandidate& c) const;
  void read_health();

  std::shared_ptr<const registry::OpRecord> record_;
  OpSettings settings_;
  policy::Clauses clauses_;
  std::vector<op::Field> dims_;
  const yard_host_t* host_;
  bool saves_inputs_, half_open_ = false;
  std::vector<KernelCandidate> all_;
  Reads mode_reads_;
};

inline void reject(yard_verdict_t& v, int32_t reason, int64_t a = 0, int64_t b = 0, int64_t c = 0) {
  v.reason = reason;
  v.figures[0] = a, v.figures[1] = b, v.figures[2] = c;
}
// A clause that excludes a kernel, as a verdict: the first figure is its index.
yard_verdict_t verdict_of(const policy::Clauses& clauses, uint32_t clause) noexcept;
// Why the machine or the process excludes a kernel from all calls.
yard_verdict_t machine_verdict(const registry::Kernel& kernel, const ProcessState& process);
policy::KernelFacts facts_of(const registry::Kernel& kernel) noexcept;
// Why policy rules out all that a backend provides: its vendor, or its switch; NONE if it does not.
int32_t backend_reason(const Policy& policy, const registry::Backend& backend);

}  // namespace yard::select
