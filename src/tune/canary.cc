// SPDX-License-Identifier: Apache-2.0
#include "tune/canary.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/log.h"
#include "op/call.h"
#include "tune/call_copy.h"
#include "tune/canary_dump.h"
#include "tune/case_run.h"

namespace yard::tune {
namespace {

// Set while this thread runs a call for the second time: ops that this calls are not looked at.
thread_local bool t_checking = false;
class Checking {
 public:
  Checking() noexcept { t_checking = true; }
  ~Checking() { t_checking = false; }
  Checking(const Checking&) = delete;
  Checking& operator=(const Checking&) = delete;
};

// Kernels of one op under one rule each.
struct Watch {
  const registry::Kernel* kernel;
  CanaryRule rule;
  std::shared_ptr<CanaryTally> tally;
  std::shared_ptr<const Candidate> against;  // null: outputs are to be finite
  std::vector<yard_tolerance_t> tolerances;
};

// A call that is looked at. What it refers to is held by the call.
class Look : public registry::Inspection {
 public:
  Look(CanaryState& state, const Watch& watch, const op::Program& program, const yard_value_t* args,
       op::Call call)
      : state_(state), w_(watch), program_(program), args_(args), call_(std::move(call)) {}

  Status judge(bool& repaired) final {
    try {
      return look(repaired);
    } catch (const std::exception& e) {
      // Results that are in place of wrong ones are right, whether that can be told or not.
      state_.skip(*w_.tally, e.what(), false);
      return {};
    }
  }

 protected:
  virtual Status look(bool& repaired) = 0;

  Status found(CanaryMismatch m, const CallCopy* copy) {
    m.op = program_.name(), m.kernel = w_.kernel->id;
    m.call = op::to_string(call_.to_spec(program_));
    m.when = std::chrono::system_clock::now();
    w_.tally->mismatches.fetch_add(1, std::memory_order_relaxed);
    const std::string text = fmt::format("canary: {} in {}", to_string(m), m.call);
    std::unique_ptr<DumpOrder> order;
    if (copy != nullptr && !w_.rule.dump.empty()) order = dump_of(*copy);
    state_.record(std::move(m), std::move(order));
    return Status(Code::kKernelFailed, ErrorClass::kFault, text);
  }

  std::unique_ptr<DumpOrder> dump_of(const CallCopy& copy) const {
    auto order = std::make_unique<DumpOrder>();
    order->folder = w_.rule.dump, order->most = static_cast<size_t>(w_.rule.dump_most);
    order->dump.rtol = w_.rule.rtol, order->dump.atol = w_.rule.atol;
    order->dump.inputs = copy.inputs();
    uint64_t bytes = 0;
    for (const TensorBytes& t : order->dump.inputs) bytes += t.bytes.size();
    if (bytes <= kMostDumpBytes) return order;
    state_.problem(program_.name(), fmt::format("inputs of {} MiB are not dumped; at most {} are",
                                                bytes >> 20, kMostDumpBytes >> 20));
    return nullptr;
  }

  CanaryState& state_;
  const Watch& w_;
  const op::Program& program_;
  const yard_value_t* args_;
  op::Call call_;
};

class ValuesLook final : public Look {
 public:
  ValuesLook(CanaryState& state, const Watch& watch, const op::Program& program,
             const yard_value_t* args, op::Call call)
      : Look(state, watch, program, args, std::move(call)), copy_(program, args, true) {
    if (!watch.rule.dump.empty()) copy_.remember();
  }

 private:
  Status look(bool& repaired) override {
    const Status ran = run();
    if (!ran.ok()) {
      state_.skip(*w_.tally, ran.message(), false);
      return {};
    }
    const std::vector<WrittenTensor> right = copy_.copied();
    const Difference d = compare(copy_.original(), right, w_.tolerances);
    telemetry::count(base::this_thread(), w_.tally->checked.id());
    if (d.within) return {};
    copy_.write_back();
    repaired = true;
    CanaryMismatch m;
    m.against = w_.against->kernel().id, m.worst = d.worst, m.error = d.ratio;
    m.found = d.worst_found, m.expected = d.worst_expected;
    Status s = found(std::move(m), &copy_);
    say(s);
    return s;
  }

  Status run() const {
    const Checking checking;
    return w_.against->run(copy_.args(), copy_.count(),
                           call_.flags() & ~static_cast<uint32_t>(YARD_CALL_ALIASED));
  }

  // The call succeeds, so nobody else says so.
  void say(const Status& s) const {
    uint64_t left_out = 0;
    if (!base::log_enabled("tune", LogLevel::kWarn) ||
        !w_.tally->said.admits(std::chrono::steady_clock::now(), left_out))
      return;
    base::log(LogLevel::kWarn, "tune",
              fmt::format("Implementation '{}' failed for op '{}': {}{}", w_.kernel->id,
                          program_.name(), s.message(),
                          left_out == 0 ? "" : fmt::format(" [and {} times before]", left_out)));
  }

  CallCopy copy_;
};

class FiniteLook final : public Look {
 public:
  FiniteLook(CanaryState& state, const Watch& watch, const op::Program& program,
             const yard_value_t* args, op::Call call)
      : Look(state, watch, program, args, std::move(call)) {
    if (!watch.rule.dump.empty()) copy_.emplace(program, args, false);
  }

 private:
  Status look(bool&) override {
    CanaryMismatch m;
    telemetry::count(base::this_thread(), w_.tally->checked.id());
    if (writes_finite(program_, args_, m.worst, m.found)) return {};
    m.expected = std::numeric_limits<double>::quiet_NaN();
    m.error = std::numeric_limits<double>::infinity();
    return found(std::move(m), copy_ ? &*copy_ : nullptr);
  }

  std::optional<CallCopy> copy_;
};

class Canary final : public registry::Inspector {
 public:
  Canary(std::vector<Watch> watches, std::shared_ptr<CanaryState> state)
      : watches_(std::move(watches)), state_(std::move(state)) {}

  std::unique_ptr<registry::Inspection> begin(const registry::Kernel& kernel,
                                              const op::Program& program, const yard_value_t* args,
                                              uint32_t flags) override {
    if (t_checking || (flags & (YARD_CALL_TRACING | YARD_CALL_CAPTURING)) != 0) return nullptr;
    for (const Watch& w : watches_) {
      if (w.kernel != &kernel || !w.tally->is_due(static_cast<uint64_t>(w.rule.one_in))) continue;
      if (auto look = make(w, program, args, flags)) return look;
    }
    return nullptr;
  }

 private:
  std::unique_ptr<registry::Inspection> make(const Watch& w, const op::Program& program,
                                             const yard_value_t* args, uint32_t flags) {
    const auto skip = [&](std::string_view why, bool problem) {
      state_->skip(*w.tally, why, problem);
      return nullptr;
    };
    try {
      if (!on_host(program, args)) return skip("their tensors are not in memory of the host", true);
      const bool copies = w.against != nullptr || !w.rule.dump.empty();
      if (copies && copy_bytes(program, args) > kMostCopyBytes)
        return skip("their tensors reach over more than 1 GiB", true);
      op::Call call = op::Call::capture(program, args, flags);
      if (w.against == nullptr) {
        if (!reads_finite(program, args)) return skip("an input is not finite", false);
        return std::make_unique<FiniteLook>(*state_, w, program, args, std::move(call));
      }
      Outcome why;
      if (!w.against->takes(call, &why))
        return skip(fmt::format("'{}' does not take them: {}", w.against->kernel().id, why.what),
                    false);
      return std::make_unique<ValuesLook>(*state_, w, program, args, std::move(call));
    } catch (const std::exception& e) {
      return skip(e.what(), false);
    }
  }

  const std::vector<Watch> watches_;
  const std::shared_ptr<CanaryState> state_;
};

// Makes the watches of one op.
class Maker {
 public:
  Maker(const Config& config, const std::shared_ptr<const registry::OpRecord>& op_record,
        const select::ProcessState& where, CanaryState& state)
      : config_(config), record_(op_record), where_(where), state_(state) {}

  std::vector<Watch> all() {
    std::vector<Watch> to;
    for (const CanaryCheck check : {CanaryCheck::kValues, CanaryCheck::kFinite})
      for (const auto& [id, kernel] : record_->kernels)
        if (const CanaryRule* rule = rule_for(id, check)) add(*kernel, *rule, to);
    return to;
  }

 private:
  const CanaryRule* rule_for(const std::string& kernel, CanaryCheck check) const {
    for (const CanaryRule& r : config_.canary)
      if (r.check == check && r.one_in >= 1 && glob_matches(r.op, record_->op->name) &&
          glob_matches(r.kernel, kernel))
        return &r;
    return nullptr;
  }

  void add(const registry::Kernel& kernel, const CanaryRule& rule, std::vector<Watch>& to) {
    const std::string& op = record_->op->name;
    Watch w{&kernel, rule, nullptr, nullptr, tolerances_of(*record_->op, rule.rtol, rule.atol)};
    if (rule.check == CanaryCheck::kValues) {
      const registry::Kernel* against = find(rule.against);
      if (against == &kernel) return;
      if (against == nullptr)
        return state_.problem(
            op, rule.against == "reference"
                    ? fmt::format("calls of kernel '{}' are not looked at: the op has no reference "
                                  "kernel; expected 'against' with the id of another",
                                  kernel.id)
                    : fmt::format("calls of kernel '{}' are not looked at: there is no kernel '{}'",
                                  kernel.id, rule.against));
      auto& candidate = candidates_[against];
      if (candidate == nullptr)
        candidate = std::make_shared<Candidate>(Subject{record_, {}, where_}, *against);
      w.against = candidate;
    }
    w.tally = state_.tally(op, kernel.id, rule.check);
    w.tally->told = false;
    to.push_back(std::move(w));
  }

  const registry::Kernel* find(const std::string& against) const {
    if (against == "reference") return oracle_of(*record_);
    const auto it = record_->kernels.find(against);
    return it != record_->kernels.end() ? it->second.get() : nullptr;
  }

  const Config& config_;
  const std::shared_ptr<const registry::OpRecord>& record_;
  const select::ProcessState& where_;
  CanaryState& state_;
  std::map<const registry::Kernel*, std::shared_ptr<const Candidate>> candidates_;
};

}  // namespace

std::vector<yard_tolerance_t> tolerances_of(const registry::Op& op, std::optional<double> rtol,
                                            std::optional<double> atol) {
  std::vector<yard_tolerance_t> to;
  if (rtol || atol)
    for (const DType t :
         {DType::f32, DType::f16, DType::bf16, DType::f64, DType::f8e4m3, DType::f8e5m2})
      to.push_back({static_cast<uint32_t>(t), 0, rtol.value_or(0), atol.value_or(0)});
  to.insert(to.end(), op.tolerances.begin(), op.tolerances.end());
  return to;
}

std::shared_ptr<registry::Inspector> make_canary(
    const Config& config, const std::shared_ptr<const registry::OpRecord>& op_record,
    const select::ProcessState& where, const std::shared_ptr<CanaryState>& state) {
  state->forget_problems(op_record->op->name);
  std::vector<Watch> watches = Maker(config, op_record, where, *state).all();
  if (watches.empty()) return nullptr;
  return std::make_shared<Canary>(std::move(watches), state);
}

}  // namespace yard::tune
