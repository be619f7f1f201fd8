// SPDX-License-Identifier: Apache-2.0
// A candidate set: the kernels of one op under one policy, with all that can be settled before a call is
// known. Immutable; made for each snapshot entry; any thread may run calls through it.
//
// What a candidate set may read of a call is exactly what it lists (limits, verifier and cost fields): the
// cache's key is compiled from the same lists, which is why a cached plan is the plan a fresh selection
// would give.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <yard/options.h>
#include <yard/policy.h>
#include "health/health_snapshot.h"
#include "op/call.h"
#include "op/predicate.h"
#include "policy/file_rules.h"
#include "policy/modes.h"
#include "policy/rollout.h"
#include "registry/call_observer.h"
#include "registry/changes.h"
#include "registry/inspector.h"

namespace yard::select {

// A limit of a kernel; one on every tensor is listed once for each.
struct Limit {
  op::Predicate predicate;
  uint32_t index;  // into registry::Kernel::limits
  int32_t reason;  // YARD_REASON_* of calls that fail it
  uint32_t arg;    // the argument that a limit on tensors is about; else 0
};

// A breaker of one kind of call: device and dtypes are those of its key, and sizes pass these.
struct KeyBreaker {
  const health::BreakerStatus* status;
  std::vector<op::Predicate> sizes;

  bool concerns(Device device, uint64_t dtypes, const yard_value_t* args) const noexcept;
};

struct KernelCandidate {
  std::shared_ptr<const registry::Kernel> kernel;
  std::vector<Limit> limits;
  std::vector<op::Field> verify_fields;  // in the order of verify_reads; no sources: not an integer
  std::vector<int> verify_args;          // arguments it reads whole
  std::vector<op::Field> cost_fields;
  yard_verdict_t fixed{};  // why policy or the machine rules it out, whatever the call
  int tier = 0;            // by lock, order or kind; lower is better
  double priority = 0;     // adjusted
  // Of OpSettings::health: the breaker of all its calls (null: closed), and those of some kinds of calls.
  const health::BreakerStatus* breaker = nullptr;
  std::vector<KeyBreaker> key_breakers;

  // The breaker that a call is subject to; null if none is open or half-open.
  const health::BreakerStatus* breaker_for(const op::Program& program, Device device,
                                           const yard_value_t* args) const noexcept;
};

// The process the candidates are judged in.
struct Surroundings {
  const yard_host_t* host = nullptr;
  bool forked = false;  // in a forked child: backends that cannot survive one are out
};

// What one call adds to the policy in force.
struct CallConstraints {
  std::string force;
  std::vector<std::string> deny;
};

// What mode and rule file say about the op.
struct OpSettings {
  Mode mode = Mode::kAuto;
  const char* mode_by = nullptr;                       // who said so; null: nobody
  std::shared_ptr<const policy::FileRules> file;       // null: none
  std::shared_ptr<const policy::OpRules> rules;        // of the file; null: none
  std::string mapped;                                  // its static kernel; empty: none
  std::string mapped_by;                               // where that stands, in words
  std::shared_ptr<const policy::Modes> modes;          // that the program has added; null: none
  std::shared_ptr<const policy::ProgramMode> program;  // the one of Mode::kProgram
  std::vector<std::string> chain;  // what is tried after the first choice, in order
  std::string chain_by;            // where that stands, in words
  op::Labels labels;               // of every call: rules may read them
  std::shared_ptr<const health::HealthSnapshot> health;  // null: nothing of the op is held back
  bool watched = false;                                  // somebody looks at every call
  std::shared_ptr<const policy::Rollout> rollout;        // other rules are in rollout; null: none
  std::shared_ptr<registry::Inspector> inspector;        // looks at what kernels do; null: nobody
  std::shared_ptr<registry::CallObserver> observer;      // who is told of every call; null: nobody
  bool cache = true;                                     // whether plans are kept ...
  size_t plans = 0;                                      // ... and how many; 0: as the runtime says
  std::chrono::nanoseconds lifetime{0};                  // of a plan; 0: as long as nothing changes
  std::optional<size_t> fallbacks;                       // kernels after the first; unset: all

  // Whether rules have a say.
  bool by_rules() const noexcept {
    return rules != nullptr && !rules->empty() && mode != Mode::kStatic && mode != Mode::kDynamic &&
           mode != Mode::kProgram;
  }
  // Whether a call's labels may make a difference: rules read them, or a mode that can read everything.
  bool reads_labels() const noexcept {
    return program != nullptr || (rules != nullptr && rules->reads_labels());
  }
  // Whether the static kernel has.
  bool by_map() const noexcept {
    return !mapped.empty() && (mode == Mode::kStatic || mode == Mode::kAuto);
  }
};

class CandidateSet {
 public:
  // Requires that `op_record` holds the op's program.
  static CandidateSet make(std::shared_ptr<const registry::OpRecord> op_record,
                           const Policy& policy, const CallConstraints& constraints,
                           const Surroundings& where, OpSettings settings = {});

  const registry::OpRecord& op_record() const noexcept { return *record_; }
  const op::Program& program() const noexcept { return *record_->op->program; }
  const std::vector<KernelCandidate>& all() const noexcept { return all_; }  // by id
  const yard_host_t* host() const noexcept { return host_; }
  // The first choice or its error.
  bool strict() const noexcept { return strict_; }
  // Inputs that a kernel may write over are copied before it runs.
  bool saves_inputs() const noexcept { return saves_inputs_; }
  const OpSettings& settings() const noexcept { return settings_; }
  // Some kernel is half-open: its calls ask before they run it.
  bool half_open() const noexcept { return half_open_; }
  // The half-open breaker that a call of this kernel must ask; null: none.
  const health::BreakerStatus* half_open_breaker(const registry::Kernel& kernel,
                                                 const yard_value_t* args) const;
  // Candidates that a kernel of OpRules::kernels() names, and those of the fallback chain in its order.
  const std::vector<uint16_t>& named_by(uint32_t kernel) const noexcept { return named_[kernel]; }
  const std::vector<uint16_t>& chain() const noexcept { return chain_; }
  // What the program's mode reads, in its order; one that is no integer field of the op has no sources.
  const std::vector<op::Field>& mode_fields() const noexcept { return mode_fields_; }
  // In static mode, and no kernel is mapped.
  bool unmapped() const noexcept {
    return settings_.mode == Mode::kStatic && settings_.mapped.empty();
  }

 private:
  void read_settings();
  void read_health();

  std::shared_ptr<const registry::OpRecord> record_;
  std::vector<KernelCandidate> all_;
  const yard_host_t* host_ = nullptr;
  bool strict_ = false, saves_inputs_ = false, half_open_ = false;
  OpSettings settings_;
  std::vector<std::vector<uint16_t>> named_;
  std::vector<uint16_t> chain_;
  std::vector<op::Field> mode_fields_;
};

// Why policy rules out all that a backend provides: its vendor, or its switch; NONE if it does not.
int32_t backend_reason(const Policy& policy, const registry::Backend& backend);

}  // namespace yard::select
