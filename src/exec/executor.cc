// SPDX-License-Identifier: Apache-2.0
// Makes plans, runs their kernels, and falls back after failures.
#include "exec/executor.h"

#include <fmt/format.h>

#include <cstring>
#include <new>

#include "base/stopwatch.h"
#include "base/text.h"
#include "exec/mapped_call.h"

namespace yard::exec {
namespace {

// The message may lack the NUL.
std::string message_text(const char* message) {
  const std::string_view text(message, strnlen(message, kErrorBytes));
  return text.empty() ? "it left no message" : base::printable(text);
}

// A kernel must not mark the host as lost, which would disable all other kernels.
ErrorClass class_of(int32_t code, const registry::Kernel& k) {
  const bool known = code > YARD_OK && code <= YARD_FATAL;
  const bool host = k.backend == nullptr || k.backend->d.device_type <= Device{}.type;
  return known && !(code == YARD_DEVICE_LOST && host) ? static_cast<ErrorClass>(code)
                                                      : ErrorClass::kFault;
}

bool inputs_at_risk(const Request& r) {
  return r.writes_inputs || (r.flags & YARD_CALL_ALIASED) != 0;
}

bool fails_before_writing(const registry::Kernel& k) {
  return (k.d.flags & YARD_KERNEL_FAILS_BEFORE_WRITING) != 0;
}

template <class F>
void for_each_tensor(const op::Program& program, const yard_value_t* args, const F& f) {
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const yard_value_t& v = args[i];
    const op::Param& p = program.schema().params[i];
    if (v.tag == YARD_TAG_TENSOR && v.u.tensor != nullptr) f(p, *v.u.tensor);
    for (uint32_t k = 0; v.tag == YARD_TAG_LIST && k < v.count; ++k) f(p, *v.u.list[k]);
  }
}

using SavedInputs = std::vector<std::pair<const yard_tensor_t*, std::unique_ptr<std::byte[]>>>;

// Copies `~` arguments and inputs that share memory with outputs. Returns nullopt if it cannot.
std::optional<SavedInputs> copy_inputs(const op::Program& program, const yard_value_t* args) {
  SavedInputs to;
  bool all = true;
  for_each_tensor(program, args, [&](const op::Param& p, const yard_tensor_t& t) {
    bool at_risk = p.access == op::Access::kReadWrite;
    if (p.access == op::Access::kRead)
      for_each_tensor(program, args, [&](const op::Param& other, const yard_tensor_t& w) {
        at_risk |= other.is_written() && op::overlap(t, w) != op::Overlap::kNone;
      });
    const uint64_t bytes = compact_bytes(t);
    if (!all || !at_risk || bytes == 0) return;
    std::unique_ptr<std::byte[]> copy;
    if (t.device.type == Device{}.type) copy.reset(new (std::nothrow) std::byte[bytes]);
    all = copy != nullptr;
    if (!all) return;
    copy_compact(t, copy.get(), false);
    to.emplace_back(&t, std::move(copy));
  });
  return all ? std::optional(std::move(to)) : std::nullopt;
}

struct PlanRun {
  base::ThreadRecord& thread;
  const Plan& plan;
  const Request& r;
  Outcome& outcome;
  ResultRecord* const record = r.record != nullptr    ? r.record
                               : r.options != nullptr ? r.options->result
                                                      : nullptr;
  std::optional<SavedInputs> saved = {};
  // A nested call was refused. Another kernel would double the calls at each level of nesting.
  bool refused = false;

  Status run(size_t at) {
    for (; at < plan.attempt_count; ++at) {
      const Attempt& a = plan.attempts[at];
      if (r.options != nullptr && r.options->deadline &&
          std::chrono::steady_clock::now() >= *r.options->deadline)
        return with_notes(
            Status(Code::kDeadline, fmt::format("op '{}': the call's deadline has passed", r.op)));
      // The last attempt runs even if it is not admitted, because no other is left.
      const bool is_last = outcome.failures.empty() && at + 1 == plan.attempt_count;
      if (r.admission != nullptr && !r.admission->admits(at) && !is_last) continue;
      if (record != nullptr) {
        note_kernel(*record, a.kernel->id);
        record->mode = plan.modes[at];
      }
      const auto check = begin_check(*a.kernel, at);
      save_inputs(a, at, check != nullptr);
      CallFrame frame(r.host, r.flags, a.kernel->d.self);
      int32_t code = timed(*a.kernel, frame);
      outcome.changed_float_state |= frame.changed_float_state;
      const bool returned_ok = code == YARD_OK;
      bool repaired = false;
      if (returned_ok && check != nullptr)
        if (const Status s = check_timed([&] { return check->judge(repaired); }); !s.ok())
          code = frame.fail(YARD_FAULT, s.message());
      if (code == YARD_OK) {
        outcome.checked = check != nullptr && check->judged();
        outcome.unjudged = check != nullptr && !outcome.checked;
        outcome.served = &a;
        if ((outcome.series = plan.series_of(at)) != nullptr) {
          base::count(thread, outcome.series->calls.id());
          if (!outcome.failures.empty()) outcome.series->add_fallback();
        }
        if (!outcome.failures.empty()) log_fallback(a);
        return {};
      }
      const ErrorClass c = add_failure(a, code, frame.error, returned_ok);
      if (repaired) return {};
      if (!may_try_next(a, c, returned_ok, frame.wrote_buffers_only && !returned_ok))
        return finish(outcome.failures.size() >= plan.tries);
      if (saved)
        for (const auto& [tensor, bytes] : *saved) copy_compact(*tensor, bytes.get(), true);
    }
    return finish(true);
  }

  ErrorClass add_failure(const Attempt& a, int32_t code, const char* message, bool wrong = false) {
    refused = !wrong && thread.failed_by_refusal(true);
    const ErrorClass c = class_of(code, *a.kernel);
    if (health::Series* const s = plan.series_of(static_cast<size_t>(&a - plan.attempts)))
      s->add_failure(c);
    if (record != nullptr && record->fallback_from == 0)
      record->fallback_from = static_cast<uint8_t>(c);
    if (outcome.failures.empty()) outcome.failures.reserve(plan.attempt_count);
    outcome.failures.push_back({&a, c, code, message_text(message), wrong});
    return c;
  }
  Status status(const Failure& f) const {
    return kernel_failure(r.op, *f.attempt->kernel, f.code, f.message.c_str());
  }

  // `intact` means that the kernel wrote to buffers only. A kernel that returned YARD_OK with wrong
  // results has written, even if it is declared to fail before writing.
  bool may_try_next(const Attempt& failed, ErrorClass c, bool returned_ok, bool intact) const {
    if (r.strict || refused || outcome.failures.size() >= plan.tries) return false;
    if (c == ErrorClass::kCaller || c == ErrorClass::kFatal || c == ErrorClass::kDeviceLost)
      return false;
    if (!inputs_at_risk(r) || saved || intact) return true;
    return fails_before_writing(*failed.kernel) && !returned_ok;
  }

  // `all` is false if another kernel may not be tried.
  Status finish(bool all) const {
    // Return the reason itself. Wrapping it at each level of nested calls would cut it off.
    if (refused) return Status(Code::kWouldDeadlock, thread.nesting.why);
    const std::vector<Failure>& failures = outcome.failures;
    if (failures.size() == 1) return status(failures[0]);
    return with_notes(
        Status(Code::kKernelFailed, failures.back().error,
               fmt::format("op '{}': {} kernels were tried and failed{}", r.op, failures.size(),
                           all ? "" : ", and another may not be tried after the last")));
  }

  template <class F>
  std::invoke_result_t<const F&> check_timed(const F& f) {
    if (!r.time_checks) return f();
    const int64_t start = base::steady_ns();
    auto to = f();
    outcome.checking_ns += static_cast<uint64_t>(base::steady_ns() - start);
    return to;
  }

  // Always check probes: a probe without a check proves nothing about a kernel with wrong results.
  std::unique_ptr<registry::ResultCheck> begin_check(const registry::Kernel& k, size_t at) {
    if (r.checker == nullptr) return nullptr;
    const bool always = r.check_always || (r.admission != nullptr && r.admission->is_probe(at));
    return check_timed([&] {
      return r.checker->begin({k, *r.program, r.args, r.flags, r.labels, r.options, always});
    });
  }

  // Saves inputs if the kernel may fail after writing, or is checked, and another can be tried.
  void save_inputs(const Attempt& a, size_t at, bool checked) {
    if (!r.save || saved || r.strict || !inputs_at_risk(r)) return;
    if ((fails_before_writing(*a.kernel) && !checked) || at + 1 >= plan.attempt_count) return;
    saved = copy_inputs(*r.program, r.args);
  }

  void log_fallback(const Attempt& served) const {
    if (!base::log_enabled("exec", LogLevel::kWarn)) return;
    const auto log = [](base::LogLimit& limit, const auto& text) {
      uint64_t left_out = 0;
      if (!limit.admits(std::chrono::steady_clock::now(), left_out)) return;
      const auto more = left_out == 0 ? "" : fmt::format(" [and {} times before]", left_out);
      base::log(LogLevel::kWarn, "exec", text() + more);
    };
    for (const Failure& f : outcome.failures)
      log(f.attempt->stats->failed, [&] {
        return fmt::format("Kernel '{}' failed for op '{}': {}", f.attempt->kernel->id, r.op,
                           f.message);
      });
    const Failure& first = outcome.failures.front();
    log(served.stats->fell_back, [&] {
      return fmt::format("Op '{}' fallback to '{}' ({} after '{}')", r.op, served.kernel->id,
                         to_string(first.error), first.attempt->kernel->id);
    });
  }

  Status with_notes(Status s) const {
    for (const Failure& f : outcome.failures) s.note(std::string(status(f).message()));
    return s;
  }

  int32_t timed(const registry::Kernel& k, CallFrame& frame) {
    if (record == nullptr) return run_kernel(thread, k, frame, r);
    const int64_t copied = record->pre_ns + record->post_ns;
    frame.record = record;
    ++record->attempts;
    if (record == r.record) return run_kernel(thread, k, frame, r);
    const int64_t start = base::steady_ns();
    const int32_t code = run_kernel(thread, k, frame, r);
    record->run_ns += base::steady_ns() - start - (record->pre_ns + record->post_ns - copied);
    return code;
  }
};

}  // namespace

Plan::Ptr Plan::make(uint64_t hash, std::span<const uint64_t> key,
                     std::span<const Attempt> attempts) {
  void* memory = ::operator new(sizeof(Plan) + key.size_bytes());
  Ptr plan(new (memory) Plan);
  plan->hash = hash;
  plan->key_words = static_cast<uint16_t>(key.size());
  if (!key.empty()) std::memcpy(static_cast<void*>(plan.get() + 1), key.data(), key.size_bytes());
  plan->attempt_count = static_cast<uint8_t>(std::min(attempts.size(), kMaxAttempts));
  plan->tries = plan->attempt_count;
  std::copy_n(attempts.begin(), plan->attempt_count, plan->attempts);
  std::fill_n(plan->modes, kMaxAttempts, Mode::kDynamic);
  const registry::Kernel& first = *attempts[0].kernel;
  plan->run = first.d.run;
  plan->self = first.d.self;
  const bool in_order = first.d.create == nullptr && (first.map == nullptr || first.map->in_order);
  plan->direct = in_order && first.d.workspace == nullptr;
  plan->only_workspace = in_order && first.d.workspace != nullptr;
  return plan;
}

void note_kernel(ResultRecord& record, const std::string& id) noexcept {
  const size_t n = std::min(id.size(), sizeof record.kernel - 1);
  std::memcpy(record.kernel, id.data(), n);
  record.kernel[n] = '\0';
}

Status execute(base::ThreadRecord& thread, const Plan& plan, const Request& request,
               Outcome& outcome) {
  return PlanRun{thread, plan, request, outcome}.run(0);
}

Status execute_after_failure(base::ThreadRecord& thread, const Plan& plan, const Request& request,
                             int32_t code, const char* message, Outcome& outcome) {
  PlanRun run{thread, plan, request, outcome};
  const ErrorClass c = run.add_failure(plan.attempts[0], code, message);
  if (plan.attempt_count > 1 && run.may_try_next(plan.attempts[0], c, false, false))
    return run.run(1);
  return run.finish(false);
}

Status kernel_failure(const char* op, const registry::Kernel& kernel, int32_t code,
                      const char* message) {
  const ErrorClass c = class_of(code, kernel);
  std::string text = fmt::format("kernel '{}' failed for op '{}' ({}): {}", kernel.id, op,
                                 to_string(c), message_text(message));
  if (code < 0 || code > YARD_FATAL) text += fmt::format(" [it returned {}]", code);
  if (code == YARD_DEVICE_LOST && c == ErrorClass::kFault)
    text += " [it returned device_lost, and the host cannot be lost]";
  return Status(c == ErrorClass::kCaller ? Code::kInvalidArgument : Code::kKernelFailed, c,
                std::move(text));
}

}  // namespace yard::exec
