// SPDX-License-Identifier: Apache-2.0
// Runs the sample calls with which `yard verify` and yard::verify() check verifiers and functions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/float_state.h"
#include "base/text.h"
#include "functions/functions.h"

namespace yard::functions {
namespace {

constexpr size_t kMaxProblems = 8;  // reported for one implementation

// Asks twice on this thread, then on two others at once. All answers must be equal.
Answer ask_checked(const Implementation& i, const FunctionArgs& args) {
  const ScopeState* const scope = base::this_thread().scope_state;
  Answer answers[4];
  const auto ask = [&](Answer& to) {
    base::ThreadRecord& thread = base::this_thread();
    const ScopeOfCaller inside(thread, scope);
    to = ask_once(i, thread, args);
  };
  ask(answers[0]), ask(answers[1]);
  std::thread one(ask, std::ref(answers[2])), two(ask, std::ref(answers[3]));
  one.join(), two.join();
  const auto described = [&](const Answer& a) {
    if (!a.broken.empty()) return a.broken;
    return a.accepted() ? "yes" : "no, " + i.text_of(a.verdict);
  };
  Answer first = answers[0];
  for (const Answer& a : answers) {
    const bool same = a.verdict.reason == first.verdict.reason &&
                      std::ranges::equal(a.verdict.figures, first.verdict.figures);
    if (!same && first.broken.empty())
      first.broken =
          fmt::format("inconsistent answers: {}; {}: {}", described(first),
                      &a == &answers[1] ? "asked again" : "on another thread", described(a));
  }
  if (first.broken.empty() && first.verdict.reason >= YARD_REASON_OWN &&
      i.own_text(first.verdict.reason) == nullptr)
    first.broken = "it refuses for a reason that is not in its list of texts";
  return first;
}

// Runs a function that has no verifier. The second run meets whatever the first one left behind.
Answer run_twice(const Implementation& i, const FunctionArgs& args) {
  Answer a;
  for (const char* const run : {"", ", when run again"}) {
    a = ask_once(i, base::this_thread(), args);
    if (a.broken.empty() && !a.accepted()) a.broken = fmt::format("unexpected result{}", run);
    if (!a.broken.empty()) break;
  }
  return a;
}

// Asks a plugin's verifier or, without one, its function. `ask` is null for an invalid sample.
FunctionArgs args_of(const yard_sample_t* sample) {
  FunctionArgs args{};
  if (sample == nullptr || sample->size < sizeof *sample || sample->ask == nullptr) return args;
  args.tuple = sample;
  args.ask = [](const void* s, const ThreadHead& thread, const FunctionRow& row,
                yard_verdict_t& v) {
    const auto& of = *static_cast<const yard_sample_t*>(s);
    v = {YARD_REASON_NONE, scope_flags(thread), {0, 0, 0}};
    return of.ask(of.self, row.verify != nullptr ? row.verify : row.run, row.self, &v);
  };
  return args;
}

struct Examination {
  const std::shared_ptr<const Implementation> implementation;
  const VerifyOptions& options;
  FunctionReport report;
  const FunctionSamples* program = nullptr;  // null while the plugin's samples run

  static void take(void* self, const FunctionArgs& args) {
    auto& e = *static_cast<Examination*>(self);
    ++e.report.samples;
    if (e.options.watch_function)
      e.options.watch_function(e.report.function, e.report.backend, e.report.samples);
    if (args.ask == nullptr)
      return e.problem("invalid sample call: its size or its ask function is missing");
    const Implementation& i = *e.implementation;
    const bool asks = i.verify != nullptr || e.program != nullptr;
    const Answer a = asks ? ask_checked(i, args) : run_twice(i, args);
    if (!a.broken.empty()) return e.problem(a.broken);
    ++(a.accepted() ? e.report.accepted : e.report.refused);
    if (a.accepted() && e.program != nullptr) e.compare(args.tuple);
  }
  void compare(const void* tuple) {
    std::vector<long double> expected, found;
    const char* running = "the original";
    try {
      const base::FloatState restored;
      program->result(program->original, program->self, tuple, expected);
      running = "the implementation";
      const bool rounded = program->result(implementation->run, implementation->self, tuple, found);
      const double tolerance = rounded ? 1e-3 : 0;
      const int digits = rounded ? 7 : 20;
      const auto same = [&](long double a, long double b) {
        const bool close = std::abs(a - b) <= tolerance * (std::abs(b) + 1e-2);
        return a == b || close || (std::isnan(a) && std::isnan(b));
      };
      const size_t both = std::min(found.size(), expected.size());
      size_t at = 0;
      while (at < both && same(found[at], expected[at])) ++at;
      if (found.size() != expected.size())
        problem(fmt::format("the result has {} numbers where the original has {}", found.size(),
                            expected.size()));
      else if (at < both)
        problem(fmt::format("the result{} is {:.{}g} where the original has {:.{}g}",
                            both > 1 ? fmt::format("[{}]", at) : "", found[at], digits,
                            expected[at], digits));
    } catch (...) {
      problem(fmt::format("{} threw: {}", running, base::current_exception_text()));
    }
  }
  void problem(const std::string& text) {
    ++report.broken;
    if (report.problems.size() < kMaxProblems)
      report.problems.push_back(fmt::format("sample {}: {}", report.samples, text));
  }
  template <class F>
  void make_samples(const F& make) {
    const base::FloatState restored;
    try {
      make();
    } catch (...) {
      problem("making a sample call threw: " + base::current_exception_text());
    }
  }

  // Asks a verifier about all samples, and runs a function without one on the plugin's samples,
  // which state what they expect. The program's samples compare a function with the original.
  void examine(const registry::Backend& backend, const yard_host_t* host) {
    const registry::Function& f = *implementation->record;
    const bool has_verifier = f.d.verify != nullptr;
    bool declares_samples = f.d.samples != nullptr;
    const auto& probe = backend.probe({backend.d.device_type, 0}, host);
    if (declares_samples && !has_verifier && !probe.available) {
      report.why = fmt::format("is of a backend that is not available: {}", probe.text);
      return;
    }
    if (declares_samples) {
      const auto take_sample = [](void* self, const yard_sample_t* sample) {
        take(self, args_of(sample));
      };
      const yard_samples_t to{sizeof to, 0, this, take_sample};
      make_samples([&] { f.d.samples(f.d.self, &to); });
    }
    for (const FunctionSite* site : declared_sites(f.group, f.name)) {
      const FunctionSamples* const samples = site->samples.load(std::memory_order_acquire);
      const bool comparable = samples != nullptr && samples->result != nullptr && probe.available &&
                              site->selection == Selection::kEnabled && !implementation->takes_next;
      if (samples == nullptr || site->signature != f.signature || !(has_verifier || comparable))
        continue;
      declares_samples = true;
      program = comparable ? samples : nullptr;
      make_samples([&] { samples->make(samples->function, &take, this); });
      program = nullptr;
    }
    if (report.broken > 0 || report.samples > 0)
      report.state =
          report.broken > 0 ? FunctionReport::State::kBroken : FunctionReport::State::kPassed;
    else if (declares_samples)
      report.why = "makes no sample call";
    else
      report.why = has_verifier ? "declares no sample arguments" : "declares no sample calls";
  }
};

}  // namespace

std::vector<FunctionReport> Service::verify(const VerifyOptions& o, const void* keep) const {
  const auto s = core_.snapshot();
  std::vector<FunctionReport> to;
  for (const auto& f : s->state->functions) {
    const std::string name = f->group + "/" + f->name;
    if ((keep != nullptr && f->keep.get() != keep) ||
        (!o.backend.empty() && f->backend != o.backend) ||
        (!o.function.empty() && name != o.function))
      continue;
    Examination e{Implementation::make(f), o, {}};
    e.report.function = name, e.report.backend = f->backend;
    e.examine(*backend_of(*s->state, f->backend), core_.host);
    // If a single plugin is verified (`keep`), a function that was not run counts as not checked.
    if (f->d.verify == nullptr && f->d.samples == nullptr && keep == nullptr &&
        e.report.state == FunctionReport::State::kNotChecked)
      e.report.state = FunctionReport::State::kNoVerifier, e.report.why.clear();
    to.push_back(std::move(e.report));
  }
  std::ranges::sort(to, {},
                    [](const FunctionReport& r) { return std::tie(r.function, r.backend); });
  base::reclaimer().collect();
  return to;
}

}  // namespace yard::functions

namespace yard {

const char* to_string(FunctionReport::State state) noexcept {
  constexpr const char* kNames[] = {"passed", "broken", "not_checked", "no_verifier"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace yard
