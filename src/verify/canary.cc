// SPDX-License-Identifier: Apache-2.0
#include "verify/canary.h"

#include <fmt/format.h>

#include "base/text.h"
#include "dispatch/overlay.h"
#include "verify/kernel_runner.h"
#include "verify/parsed_call.h"

namespace yard::verification {
namespace {

constexpr double kMostCopyBytes = 1 << 30;  // calls whose tensors span more are not checked
constexpr uint64_t kMostDumpBytes = uint64_t{256} << 20;  // of the tensors of one dump

// Set during the second run of a call. Ops that it calls are not checked.
thread_local bool t_checking = false;

// The place and value of the first float that is not finite in what a call reads, or writes.
std::optional<std::pair<std::string, double>> not_finite_arg(const op::Program& program,
                                                             const yard_value_t* args,
                                                             bool written) {
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const op::Param& p = program.schema().params[i];
    int item = p.kind == op::Kind::kTensorList ? 0 : -1;
    if (written ? !p.is_written() : p.is_output()) continue;
    for (const yard_tensor_t* t : op::tensors_of(args[i])) {
      const std::string name = tensor_name(p.name, item++);
      if (const auto first = first_not_finite(TensorView(*t)))
        return {{fmt::format("{}[{}]", name, fmt::join(first->index, ",")), first->value}};
    }
  }
  return std::nullopt;
}

struct CheckedKernel {
  const registry::Kernel* kernel;
  CanaryRule rule;
  std::shared_ptr<CanaryCounters> counters;
  std::shared_ptr<const KernelRunner> against;  // if null, outputs must be finite
  const registry::Op* op;
  std::vector<yard_tolerance_t> tolerances;

  bool dumps() const noexcept { return !rule.dump.empty(); }
  bool copies() const noexcept { return against != nullptr || dumps(); }
};

// The check of one call, whose entry keeps alive what this refers to.
class CallCheck final : public registry::ResultCheck {
 public:
  CallCheck(CanaryState& state, const CheckedKernel& kernel, const op::Program& program,
            const yard_value_t* args, op::Call call)
      : state_(state), k_(kernel), program_(program), args_(args), call_(std::move(call)) {
    if (k_.copies()) copy_.emplace(parsed_call(program, call_), args);
    for (uint32_t i = 0; i < program.arg_count(); ++i)
      if (program.schema().params[i].is_written())
        for (const yard_tensor_t* t : op::tensors_of(args[i])) written_.emplace_back(*t);
  }

  Status judge(bool& repaired) override {
    try {
      return k_.against != nullptr ? check_values(repaired) : check_finite();
    } catch (const std::exception& e) {
      // If the results were already repaired, they are right.
      state_.skip(*k_.counters, base::exception_text(e), false);
      return {};
    }
  }
  bool judged() const noexcept override { return judged_; }

 private:
  Status check_values(bool& repaired) {
    if (const Status ran = run_other(); !ran.ok()) {
      state_.skip(*k_.counters, ran.message(), false);
      return {};
    }
    std::vector<CallTensors::Written> found = copy_->written();
    for (size_t i = 0; i < found.size(); ++i) found[i].view = &written_[i];
    const Difference d = compare_results(*k_.op, found, *copy_, k_.tolerances);
    count_check();
    if (d.within) return {};
    for (size_t i = 0; i < found.size(); ++i) copy_elements(*copy_->written()[i].view, written_[i]);
    repaired = true;
    CanaryReport::Mismatch m;
    m.against = k_.against->kernel().id, m.worst = d.worst, m.error = d.ratio;
    m.found = d.worst_found, m.expected = d.worst_expected;
    Status s = report(std::move(m));
    log(s);
    return s;
  }

  Status check_finite() {
    count_check();
    const auto wrong = not_finite_arg(program_, args_, true);
    if (!wrong) return {};
    CanaryReport::Mismatch m;
    m.worst = wrong->first, m.found = wrong->second;
    m.expected = std::numeric_limits<double>::quiet_NaN();
    m.error = std::numeric_limits<double>::infinity();
    return report(std::move(m));
  }

  Status run_other() const {
    struct Checking {
      Checking() noexcept { t_checking = true; }
      ~Checking() { t_checking = false; }
    } const checking;
    return k_.against->run(call_.flags() & ~static_cast<uint32_t>(YARD_CALL_ALIASED), *copy_);
  }

  void count_check() {
    base::count(base::this_thread(), k_.counters->checked.id());
    judged_ = true;
  }

  Status report(CanaryReport::Mismatch m) {
    m.op = program_.name(), m.kernel = k_.kernel->id;
    m.call = op::to_string(call_.to_spec(program_));
    m.when = std::chrono::system_clock::now();
    k_.counters->mismatches.fetch_add(1, std::memory_order_relaxed);
    Status s(Code::kKernelFailed, ErrorClass::kFault,
             fmt::format("canary: {} in {}", to_string(m), m.call));
    state_.record(std::move(m), k_.dumps() ? make_dump() : nullptr);
    return s;
  }

  std::unique_ptr<DumpRequest> make_dump() const {
    auto request = std::make_unique<DumpRequest>();
    request->folder = k_.rule.dump, request->most = static_cast<size_t>(k_.rule.dump_most);
    request->dump.rtol = k_.rule.tolerance.rtol, request->dump.atol = k_.rule.tolerance.atol;
    request->dump.inputs = copy_->inputs();
    uint64_t bytes = 0;
    for (const TensorBytes& t : request->dump.inputs) bytes += t.bytes.size();
    if (bytes <= kMostDumpBytes) return request;
    state_.problem(program_.name(), fmt::format("inputs of {} MiB not dumped: the limit is {} MiB",
                                                bytes >> 20, kMostDumpBytes >> 20));
    return nullptr;
  }

  // The repaired call succeeds, so the executor does not log the failure.
  void log(const Status& s) const {
    uint64_t left_out = 0;
    if (!base::log_enabled("verify", LogLevel::kWarn) ||
        !k_.counters->log_limit.admits(std::chrono::steady_clock::now(), left_out))
      return;
    base::log(LogLevel::kWarn, "verify",
              fmt::format("Kernel '{}' failed for op '{}': {}{}", k_.kernel->id, program_.name(),
                          s.message(),
                          left_out == 0 ? "" : fmt::format(" [and {} times before]", left_out)));
  }

  CanaryState& state_;
  const CheckedKernel& k_;
  const op::Program& program_;
  const yard_value_t* args_;
  op::Call call_;
  std::optional<CallTensors> copy_;
  std::vector<TensorView> written_;  // tensors of the call, in the order of copy_->written()
  bool judged_ = false;
};

class Canary final : public registry::ResultChecker {
 public:
  Canary(std::vector<CheckedKernel> kernels, std::shared_ptr<CanaryState> state)
      : kernels_(std::move(kernels)), state_(std::move(state)) {}

  std::unique_ptr<registry::ResultCheck> begin(const registry::CheckedCall& call) override {
    if (t_checking || (call.flags & (YARD_CALL_TRACING | YARD_CALL_CAPTURING)) != 0) return nullptr;
    bool skipped = false;
    for (const CheckedKernel& k : kernels_) {
      if (k.kernel != &call.kernel) continue;
      const auto one_in = call.always ? uint64_t{1} : static_cast<uint64_t>(k.rule.one_in);
      if (!k.counters->sample(one_in)) continue;
      if (auto check = make_check(k, call)) return check;
      skipped = true;
    }
    return skipped && call.always ? std::make_unique<registry::ResultCheck>() : nullptr;
  }

 private:
  static op::Labels labels_of(const registry::CheckedCall& call) {
    const op::Labels known = call.labels != nullptr ? *call.labels : op::Labels();
    return call.options != nullptr ? dispatch::labels_over(call.options->labels, known) : known;
  }

  std::unique_ptr<registry::ResultCheck> make_check(const CheckedKernel& k,
                                                    const registry::CheckedCall& checked) {
    const op::Program& program = checked.program;
    const yard_value_t* const args = checked.args;
    const auto skip = [&](std::string_view why, bool permanent) {
      state_->skip(*k.counters, why, permanent);
      return nullptr;
    };
    try {
      bool on_host = true;
      double bytes = 0;  // of copies with strides
      for (uint32_t i = 0; i < program.arg_count(); ++i)
        for (const yard_tensor_t* t : op::tensors_of(args[i])) {
          on_host &= t->device.type == Device().type;
          bytes += reach_in_bytes(TensorView(*t));
        }
      if (!on_host) return skip("their tensors are not in host memory", true);
      if (k.copies() && bytes > kMostCopyBytes)
        return skip("their tensors span more than 1 GiB", true);
      op::Call call = op::Call::capture(program, args, checked.flags, labels_of(checked));
      if (k.against == nullptr && not_finite_arg(program, args, false))
        return skip("an input is not finite", false);
      if (const auto why = k.against != nullptr ? k.against->refusal(call) : std::nullopt)
        return skip(fmt::format("'{}' does not accept them: {}", k.against->kernel().id, why->what),
                    false);
      return std::make_unique<CallCheck>(*state_, k, program, args, std::move(call));
    } catch (const std::exception& e) {
      return skip(base::exception_text(e), false);
    }
  }

  const std::vector<CheckedKernel> kernels_;
  const std::shared_ptr<CanaryState> state_;
};

}  // namespace

std::vector<yard_tolerance_t> tolerances_of(const registry::Op& op, std::optional<double> rtol,
                                            std::optional<double> atol) {
  std::vector<yard_tolerance_t> to;
  if (rtol || atol)
    for (const FloatType& t : float_types())
      to.push_back({static_cast<uint32_t>(t.dtype), 0, rtol.value_or(0), atol.value_or(0)});
  to.insert(to.end(), op.tolerances.begin(), op.tolerances.end());
  return to;
}

std::shared_ptr<registry::ResultChecker> make_canary(
    const std::vector<CanaryRule>& rules,
    const std::shared_ptr<const registry::OpRecord>& op_record, const select::ProcessState& where,
    const std::shared_ptr<CanaryState>& state) {
  const registry::Op& op = *op_record->op;
  state->clear_problems(op.name);
  std::map<const registry::Kernel*, std::shared_ptr<const KernelRunner>> runners;
  std::vector<CheckedKernel> checked;
  const auto add = [&](const registry::Kernel& kernel, const CanaryRule& rule) {
    CheckedKernel k{&kernel, rule, nullptr,
                    nullptr, &op,  tolerances_of(op, rule.tolerance.rtol, rule.tolerance.atol)};
    if (rule.check == CanaryRule::Check::kValues) {
      const bool reference = rule.against == "reference";
      const registry::Kernel* const against =
          reference ? reference_kernel(*op_record) : find_kernel(*op_record, rule.against);
      if (against == &kernel) return;
      if (against == nullptr)
        return state->problem(
            op.name,
            fmt::format("calls of kernel '{}' are not checked: {}", kernel.id,
                        reference
                            ? "the op has no reference kernel; expected 'against' with the id of "
                              "another"
                            : fmt::format("there is no kernel '{}'", rule.against)));
      auto& runner = runners[against];
      if (runner == nullptr)
        runner = std::make_shared<KernelRunner>(OpUnderTest{op_record, {}, where}, *against);
      k.against = runner;
    }
    k.counters = state->counters(op.name, kernel.id, rule.check);
    k.counters->problem_reported = false;
    checked.push_back(std::move(k));
  };
  for (const CanaryRule::Check check : {CanaryRule::Check::kValues, CanaryRule::Check::kFinite})
    for (const auto& entry : op_record->kernels) {
      const registry::Kernel& kernel = *entry.second;
      const auto first = std::ranges::find_if(rules, [&](const CanaryRule& r) {
        return r.check == check && r.one_in >= 1 && glob_matches(r.op, op.name) &&
               glob_matches(r.kernel, kernel.id);
      });
      if (first != rules.end()) add(kernel, *first);
    }
  if (checked.empty()) return nullptr;
  return std::make_shared<Canary>(std::move(checked), state);
}

CanaryState::~CanaryState() {
  while (write_one()) continue;
}

std::shared_ptr<CanaryCounters> CanaryState::counters(const std::string& op,
                                                      const std::string& kernel,
                                                      CanaryRule::Check check) {
  const std::lock_guard lock(lock_);
  auto& found = counters_[{op, kernel, check}];
  if (found == nullptr) found = std::make_shared<CanaryCounters>(op, kernel, check);
  return found;
}

void CanaryState::skip(CanaryCounters& c, std::string_view why, bool permanent) noexcept try {
  if (c.skipped.fetch_add(1, std::memory_order_relaxed) == 0) {
    const std::lock_guard lock(lock_);
    c.why_skipped = why;
  }
  if (permanent && !c.problem_reported.exchange(true))
    problem(c.op, fmt::format("calls of kernel '{}' are not checked: {}", c.kernel, why));
} catch (const std::exception&) {
  // Out of memory for the text; the call is counted.
}

void CanaryState::record(CanaryReport::Mismatch m, std::unique_ptr<DumpRequest> request) {
  const auto made = std::make_shared<CanaryReport::Mismatch>(std::move(m));
  if (request != nullptr) request->dump.mismatch = *made, request->mismatch = made;
  bool queued = false;
  {
    const std::lock_guard lock(lock_);
    mismatches_.push_back(made);
    if (mismatches_.size() > kMostMismatches) mismatches_.pop_front();
    queued = request != nullptr && waiting_.size() < kMostWaiting;
    if (queued) waiting_.push_back(std::move(request));
  }
  if (queued) {
    if (const Status posted = thread_.post([this] { write_one(); }); !posted.ok()) write_one();
  } else if (request != nullptr) {
    base::log(LogLevel::kWarn, "verify",
              fmt::format("dump of a call of '{}' dropped: {} are waiting to be written",
                          request->dump.mismatch.op, kMostWaiting));
  }
}

// Also runs on a task thread, which no exception may leave.
bool CanaryState::write_one() noexcept try {
  std::unique_ptr<DumpRequest> next;
  {
    const std::lock_guard lock(lock_);
    if (waiting_.empty()) return false;
    next = std::move(waiting_.front());
    waiting_.pop_front();
  }
  const auto path = add_dump(next->folder, next->most, next->dump);
  if (!path.ok()) {
    problem(next->dump.mismatch.op,
            fmt::format("inputs could not be dumped: {}", path.status().message()));
  } else if (path->empty()) {
    base::log(LogLevel::kWarn, "verify",
              fmt::format("{}: has the first {} dumps of an incident; later ones are not written",
                          next->folder, next->most));
  } else {
    const std::lock_guard lock(lock_);
    next->mismatch->dump = *path;
  }
  return true;
} catch (const std::exception& e) {
  base::log_event(LogLevel::kError, "verify", "a dump was not written");
  base::log_event(LogLevel::kError, "verify", e.what());
  return true;
}

void CanaryState::problem(const std::string& op, const std::string& text) {
  {
    const std::lock_guard lock(lock_);
    std::set<std::string>& of_op = problems_[op];
    if (of_op.size() >= kMostProblems || !of_op.insert(text).second) return;
  }
  base::log(LogLevel::kWarn, "verify", fmt::format("canary of op '{}': {}", op, text));
}

void CanaryState::clear_problems(const std::string& op) {
  const std::lock_guard lock(lock_);
  problems_.erase(op);
}

std::vector<std::string> CanaryState::problems() {
  const std::lock_guard lock(lock_);
  std::vector<std::string> to;
  for (const auto& [op, texts] : problems_)
    for (const std::string& text : texts) to.push_back(fmt::format("op '{}': {}", op, text));
  return to;
}

CanaryReport CanaryState::report() {
  CanaryReport to;
  const std::lock_guard lock(lock_);
  for (const auto& [names, c] : counters_)
    to.kernels.push_back({c->op, c->kernel, c->check, c->calls.total(), c->checked.total(),
                          c->mismatches.load(), c->skipped.load(), c->why_skipped});
  for (const auto& m : mismatches_) to.mismatches.push_back(*m);
  return to;
}

}  // namespace yard::verification

std::string yard::to_string(const CanaryReport::Mismatch& m) {
  using verification::format_element;
  const std::string found = format_element(m.found);
  if (m.against.empty()) return fmt::format("{} is {}, and all inputs are finite", m.worst, found);
  std::string text = fmt::format("{} is {} where {} has {}", m.worst, found, m.against,
                                 format_element(m.expected));
  if (std::isfinite(m.error)) text += fmt::format(" ({:.3g} times the tolerance)", m.error);
  return text;
}
