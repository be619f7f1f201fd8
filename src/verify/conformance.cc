// SPDX-License-Identifier: Apache-2.0
#include "verify/conformance.h"

#include "verify/parsed_call.h"
#include "verify/report_builder.h"

namespace yard::verification {
namespace {

using Verdict = Outcome::Verdict;

constexpr size_t kTriesPerCase = 16;   // to generate a usable call
constexpr size_t kMostRejected = 200;  // calls in a row, before no more are made for a kernel
constexpr size_t kSmokeCases = 4;      // that each kernel accepts
constexpr int kRepeats = 3;            // runs of a kernel that is flagged as deterministic
constexpr int64_t kSmokeElements = 2048;

// A case with tensors for the kernel under test, and others for the reference kernel.
struct CaseRun {
  CaseRun(const op::Program& program, Case c, std::unique_ptr<TestInstance> used = nullptr)
      : call(std::move(c.call)),
        parsed(parsed_call(program, call)),
        found(parsed, c.seed, c.contents),
        expected(parsed, c.seed, c.contents),
        instance(std::move(used)) {
    if (instance != nullptr) {
      instance->load(found.args());
      where.options = instance->options, where.weights = instance->loaded;
    }
    where.call = parsed.text, where.contents = c.contents, where.seed = c.seed;
  }
  exec::States* states() const { return instance != nullptr ? &instance->states : nullptr; }

  op::Call call;
  ParsedCall parsed;
  CallTensors found, expected;
  KernelReport::Case where;
  std::unique_ptr<TestInstance> instance;  // null for plain calls
  Status reference;                        // of the reference kernel
};

Outcome failure(std::string what) { return {Verdict::kFailed, kInfinity, "", std::move(what)}; }

Outcome judge_failure(const KernelRunner& k, const CaseRun& t, const Status& status) {
  if (k.has_flag(YARD_KERNEL_FAILS_BEFORE_WRITING))
    if (const std::string damage = t.found.damage(true); !damage.empty())
      return failure(fmt::format("failed, promised to fail before writing, and {}", damage));
  if (status.error_class() == ErrorClass::kDeclined)
    return {Verdict::kDeclined, 0, "", std::string(status.message())};
  return failure(std::string(status.message()));
}

// Says how results differ if the kernel runs again over other garbage. Empty if they do not.
std::string differs_when_repeated(const KernelRunner& k, const CaseRun& t) {
  const std::vector<char> bits = t.found.bits();
  for (int i = 1; i < kRepeats; ++i) {
    t.found.restore();
    t.found.scramble();
    if (const Status s = k.run(t.call.flags(), t.found, t.states()); !s.ok())
      return fmt::format("succeeds at first and fails when repeated: {}", s.message());
    if (t.found.bits() != bits)
      return fmt::format("claims to be deterministic, but run {} gave other bits", i + 1);
  }
  return "";
}

Outcome judge(const KernelRunner& k, const CaseRun& t, const registry::Op& op) {
  if (auto refused = k.refusal(t.call)) return *std::move(refused);
  if (!t.reference.ok())
    return {Verdict::kSkipped, 0, "no_reference",
            "the reference kernel fails: " + std::string(t.reference.message())};
  t.found.restore();
  const Status status = k.run(t.call.flags(), t.found, t.states());
  if (std::string damage = t.found.damage(); !damage.empty()) return failure(std::move(damage));
  if (!status.ok()) return judge_failure(k, t, status);
  const Difference d = compare_results(op, t.found.written(), t.expected, op.tolerances);
  if (d.within && k.has_flag(YARD_KERNEL_DETERMINISTIC))
    if (std::string what = differs_when_repeated(k, t); !what.empty())
      return failure(std::move(what));
  Outcome outcome{d.within ? Verdict::kPassed : Verdict::kFailed, d.ratio};
  if (!d.worst.empty())
    outcome.what = fmt::format("{} is {} where the reference has {}", d.worst,
                               format_element(d.worst_found), format_element(d.worst_expected));
  return outcome;
}

// Returns a seed for an op or kernel that does not depend on which others are tested.
uint64_t seed_of(const std::string& name, uint64_t seed) {
  for (const char c : name) seed = seed * 31 + static_cast<unsigned char>(c);
  return seed;
}

enum class Made { kRan, kRejected, kEnded };

// Gives cases to run(case) until `cases` have run, tries end, or it returns kEnded.
template <class F>
void run_cases(Generator generator, size_t cases, const F& run) {
  for (size_t tries = 0, done = 0; done < cases && tries < kTriesPerCase * cases; ++tries) {
    std::optional<Case> c = generator.next();
    if (!c) return;
    const Made one = run(*std::move(c));
    if (one == Made::kEnded) return;
    done += one == Made::kRan ? 1 : 0;
  }
}

class Run {
 public:
  Run(const OpUnderTest& op, const VerifyOptions& options)
      : op_(op), record_(*op.op_record), options_(options) {
    if (const registry::Kernel* k = reference_kernel(record_)) reference_.emplace(op, *k);
  }

 protected:
  const op::Program& program() const { return *record_.op->program; }
  const registry::Kernel& kernel(const std::string& id) const {
    return *record_.kernels.find(id)->second;
  }
  uint64_t seed() const { return seed_of(program().name(), options_.seed); }
  Generator generator(uint64_t seed, int64_t elements, const CallLimits* limits = nullptr) const {
    return Generator(program(), &record_.op->d, seed, elements, limits);
  }
  void watch(const registry::Kernel& kernel, const CaseRun& run) const {
    if (options_.watch) options_.watch(kernel.op, kernel.id, run.where);
  }

  const OpUnderTest& op_;
  const registry::OpRecord& record_;
  const VerifyOptions& options_;
  std::optional<KernelRunner> reference_;
};

class ConformanceRun : Run {
 public:
  ConformanceRun(const OpUnderTest& op, const VerifyOptions& options, std::vector<bool>& used,
                 const VerifyOptions::Progress& progress)
      : Run(op, options),
        given_(!options.options.empty() || !options.weights.empty()),
        progress_(progress) {
    for (const std::string& id : op.kernels)
      kernels_.push_back({KernelRunner(op, kernel(id)),
                          ReportBuilder(report_of(kernel(id)), options.expectations, used), false});
  }

  void run() {
    for (UnderTest& k : kernels_) {
      const std::string why = k.runner.unavailable();
      k.available = why.empty();
      if (!k.available) k.report.add({Verdict::kSkipped, 0, "unavailable", why}, {});
    }
    if (!reference_) return skip_all("the op has no reference kernel");
    if (const std::string why = reference_->unavailable(); !why.empty())
      return skip_all("the reference kernel cannot run: " + why);
    if (!op_.calls.empty()) return given_calls();
    progress_.cases = options_.cases;
    for (const UnderTest& k : kernels_)
      if (k.available && !is_reference(k)) progress_.cases += options_.cases;
    schema_calls();
    if (progress_.done == 0 && !cancelled_)
      skip_all("no call could be made that the reference kernel takes" +
               (rejected_.empty() ? "" : ": " + rejected_));
    for (UnderTest& k : kernels_)
      if (k.available && !is_reference(k) && !cancelled_) kernel_calls(k);
  }

  VerifyReport finish() && {
    VerifyReport to;
    to.cancelled = cancelled_;
    for (UnderTest& k : kernels_) to.kernels.push_back(std::move(k.report).finish(!cancelled_));
    return to;
  }

 private:
  struct UnderTest {
    KernelRunner runner;
    ReportBuilder report;
    bool available;
  };

  bool is_reference(const UnderTest& k) const {
    return &k.runner.kernel() == &reference_->kernel();
  }

  // Returns an instance with the given options and weights, including weights that calls load, or
  // null if none are given.
  std::unique_ptr<TestInstance> given_instance(const op::Call& call, uint64_t seed) const {
    const bool loaded = (call.flags() & YARD_CALL_LOADED) != 0;
    if (!given_ && !loaded) return nullptr;
    auto to = InstanceGenerator(reference_->kernel(), reference_->kernel(), options_)
                  .next(program(), call, seed, nullptr);
    if (loaded)
      for (const UnderTest& k : kernels_) to->add_arguments(k.runner.kernel(), program());
    return to;
  }

  // Runs calls from the schema on all kernels.
  void schema_calls() {
    run_cases(generator(seed(), options_.max_elements), options_.cases, [&](Case c) {
      if (const auto why = reference_->refusal(c.call)) {
        rejected_ = why->what;
        return Made::kRejected;
      }
      auto instance = given_instance(c.call, c.seed);
      CaseRun run(program(), std::move(c), std::move(instance));
      return run_case(run, kernels_);
    });
  }

  // Runs calls from the limits of one kernel on that kernel alone.
  void kernel_calls(UnderTest& k) {
    const uint64_t seed = seed_of(k.runner.kernel().id, this->seed());
    const CallLimits limits = k.runner.limits();
    InstanceGenerator instances(k.runner.kernel(), reference_->kernel(), options_);
    Random random(seed);
    size_t rejected = 0;
    run_cases(generator(seed, options_.max_elements, &limits), options_.cases, [&](Case c) {
      if (reference_->refusal(c.call)) return Made::kRejected;
      if (const auto why = k.runner.refusal(c.call)) {
        if (++rejected == kMostRejected) return Made::kEnded;
        KernelReport::Case where;
        where.call = op::to_string(c.call.to_spec(program()));
        k.report.add(*why, std::move(where));
        return Made::kRejected;
      }
      rejected = 0;
      auto instance =
          instances.needed() ? instances.next(program(), c.call, c.seed, &random) : nullptr;
      CaseRun run(program(), std::move(c), std::move(instance));
      return run_case(run, {&k, 1});
    });
  }

  // Runs the calls that the caller gave, each with all kinds of contents.
  void given_calls() {
    progress_.cases = op_.calls.size() * all_contents().size();
    for (const op::Call& call : op_.calls) {
      const ParsedCall parsed = parsed_call(program(), call);
      std::optional<Outcome> why = reference_->refusal(call);
      if (const Status s = CallTensors::check(parsed, 2); !s.ok())
        why = Outcome{Verdict::kSkipped, 0, "not_made", std::string(s.message())};
      for (const Contents contents : all_contents()) {
        if (why) {
          skip(*why, parsed.text);
          continue;
        }
        CaseRun run(program(), {call, contents, options_.seed},
                    given_instance(call, options_.seed));
        const Made one = run_case(run, kernels_);
        if (one == Made::kEnded) return;
        if (one == Made::kRejected)
          skip({Verdict::kSkipped, 0, "no_reference",
                "the reference kernel rejects it as invalid: " + rejected_},
               parsed.text);
      }
    }
  }

  // Returns kRejected if the reference kernel rejects the call as invalid.
  Made run_case(CaseRun& run, std::span<UnderTest> kernels) {
    watch(reference_->kernel(), run);
    run.reference = reference_->run(run.call.flags(), run.expected, run.states());
    if (run.reference.error_class() == ErrorClass::kCaller) {
      rejected_ = std::string(run.reference.message());
      return Made::kRejected;
    }
    cancelled_ = options_.progress && !options_.progress(progress_);
    if (cancelled_) return Made::kEnded;
    for (UnderTest& k : kernels) judge_one(k, run);
    ++progress_.done;
    return Made::kRan;
  }

  void judge_one(UnderTest& k, const CaseRun& run) {
    if (!k.available) return;
    watch(k.runner.kernel(), run);
    const Outcome o = is_reference(k) && !run.reference.ok()
                          ? failure(std::string(run.reference.message()))
                          : judge(k.runner, run, *record_.op);
    progress_.failed += o.verdict == Verdict::kFailed ? 1 : 0;
    k.report.add(o, run.where);
  }

  void skip(const Outcome& why, const std::string& call) {
    KernelReport::Case where;
    where.call = call;
    for (UnderTest& k : kernels_)
      if (k.available) k.report.add(why, where);
  }

  void skip_all(const std::string& why) { skip({Verdict::kSkipped, 0, "no_reference", why}, ""); }

  const bool given_;  // options or weights are given
  std::vector<UnderTest> kernels_;
  VerifyOptions::Progress progress_;
  bool cancelled_ = false;
  std::string rejected_;  // why the reference kernel rejected the last call that it rejected
};

class SmokeTest : Run {
 public:
  using Run::Run;

  std::vector<KernelReport> all() {
    std::vector<KernelReport> to;
    for (const std::string& id : op_.kernels) to.push_back(report_of(kernel(id)));
    for (KernelReport& r : to) {
      one(KernelRunner(op_, kernel(r.id)), r);
      if (r.failed > 0) break;
    }
    return to;
  }

 private:
  void one(const KernelRunner& kernel, KernelReport& report) {
    if (const std::string why = kernel.unavailable(); !why.empty())
      return note(report, "unavailable", why);
    size_t left = kSmokeCases;
    const auto run_one = [&](Case c) {
      const Made made = exercise(kernel, std::move(c), report);
      left -= made == Made::kRan ? 1 : 0;
      return made;
    };
    run_cases(generator(seed(), kSmokeElements), left, run_one);
    // Few calls of the schema may be within the kernel's limits.
    const CallLimits limits = kernel.limits();
    if (report.failed == 0) run_cases(generator(seed(), kSmokeElements, &limits), left, run_one);
  }

  Made exercise(const KernelRunner& kernel, Case c, KernelReport& report) {
    if (kernel.refusal(c.call)) return Made::kRejected;
    CaseRun run(program(), std::move(c));
    // If the reference kernel rejects the call as invalid, other kernels may do anything.
    if (reference_ && !reference_->refusal(run.call)) {
      watch(reference_->kernel(), run);
      if (reference_->run(run.call.flags(), run.expected).error_class() == ErrorClass::kCaller)
        return Made::kRejected;
    }
    watch(kernel.kernel(), run);
    bool changed_float_state = false;
    const Status status = kernel.run(run.call.flags(), run.found, nullptr, &changed_float_state);
    run.where.what =
        run.found.damage(!status.ok() && kernel.has_flag(YARD_KERNEL_FAILS_BEFORE_WRITING));
    if (run.where.what.empty() && changed_float_state)
      run.where.what = "it changed the floating-point control state of its thread";
    if (run.where.what.empty()) {
      const bool declined = status.error_class() == ErrorClass::kDeclined;
      report.passed += status.ok() ? 1 : 0, report.declined += declined ? 1 : 0;
      if (!status.ok()) note(report, declined ? "declined" : "failed", status.message());
      return Made::kRan;
    }
    run.where.error = kInfinity;
    report.failed = 1, report.worst = run.where, report.failures = {run.where};
    return Made::kEnded;
  }
};

}  // namespace

VerifyReport check_conformance(const OpUnderTest& op, const VerifyOptions& options,
                               std::vector<bool>& used, VerifyOptions::Progress progress) {
  ConformanceRun run(op, options, used, progress);
  run.run();
  return std::move(run).finish();
}

std::vector<KernelReport> run_smoke_test(const OpUnderTest& op, const VerifyOptions& options) {
  return SmokeTest(op, options).all();
}

}  // namespace yard::verification
