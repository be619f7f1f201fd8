// SPDX-License-Identifier: Apache-2.0
// Sample calls, by which `yard verify` and yard::verify() check verifiers and functions.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/float_state.h"
#include "base/text.h"
#include "functions/functions.h"

namespace yard::functions {
namespace {

constexpr size_t kMaxProblems = 8;  // reported of one implementation

// Asks twice on this thread, then on two other threads at once in the same scope. Different answers, and a reason without a
// text, make the verifier broken.
Answer ask_checked(const Implementation& i, const FunctionArgs& args) {
  base::ThreadRecord& thread = base::this_thread();
  Answer first = ask_once(i, thread, args);
  const auto described = [&](const Answer& a) {
    if (!a.broken.empty()) return a.broken;
    return a.accepted ? "yes" : "no, " + i.text_of(a.verdict);
  };
  const auto compare = [&](const char* when, const Answer& a) {
    const bool same =
        a.broken.empty() && a.accepted == first.accepted &&
        a.verdict.reason == first.verdict.reason &&
        std::memcmp(a.verdict.figures, first.verdict.figures, sizeof a.verdict.figures) == 0;
    if (!same && first.broken.empty())
      first.broken =
          fmt::format("inconsistent answers: {}; {}: {}", described(first), when, described(a));
  };
  compare("asked again", ask_once(i, thread, args));
  Answer others[2];
  const auto ask = [&](Answer& to) {
    const ScopeOfCaller scope(base::this_thread(), thread.scope_state);
    to = ask_once(i, base::this_thread(), args);
  };
  std::thread one([&] { ask(others[0]); }), two([&] { ask(others[1]); });
  one.join(), two.join();
  for (const Answer& other : others) compare("on another thread", other);
  if (first.broken.empty() && !first.accepted && first.verdict.reason >= YARD_REASON_OWN &&
      i.own_text(first.verdict.reason) == nullptr)
    first.broken = "it refuses for a reason that is not in its list of texts";
  return first;
}

// Runs a function without a verifier. Twice: the second run finds what the first has left behind.
Answer run_twice(const Implementation& i, const FunctionArgs& args) {
  Answer a;
  for (const char* const run : {"", ", when run again"}) {
    a = ask_once(i, base::this_thread(), args);
    if (a.broken.empty() && !a.accepted) a.broken = fmt::format("unexpected result{}", run);
    if (!a.broken.empty()) break;
  }
  return a;
}

// A sample call of a plugin, as the arguments of a call. It is given the verifier, or the function if there is none. An invalid
// sample has no `ask`.
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

// What the sample calls of a function show about one backend's code for it.
struct Examination {
  const std::shared_ptr<const Implementation> implementation;
  const VerifyOptions& options;
  FunctionReport report;

  static void take(void* self, const FunctionArgs& args) {
    auto& e = *static_cast<Examination*>(self);
    ++e.report.samples;
    if (e.options.watch_function)
      e.options.watch_function(e.report.function, e.report.backend, e.report.samples);
    if (args.ask == nullptr)
      return e.problem("invalid sample call: its size or its ask function is missing");
    const Implementation& i = *e.implementation;
    const Answer a = i.verify != nullptr ? ask_checked(i, args) : run_twice(i, args);
    if (!a.broken.empty()) return e.problem(a.broken);
    ++(a.accepted ? e.report.accepted : e.report.refused);
  }
  void problem(const std::string& text) {
    ++report.broken;
    if (report.problems.size() < kMaxProblems)
      report.problems.push_back(fmt::format("sample {}: {}", report.samples, text));
  }
  // Code that makes sample calls may throw.
  template <class F>
  void make_samples(const F& make) {
    const base::FloatState restored;
    try {
      make();
    } catch (...) {
      problem("making a sample call threw: " + base::current_exception_text());
    }
  }

  // A verifier is asked about the samples of plugin and program. A function without a verifier is run with those of its
  // plugin, which state what is expected.
  void examine(const registry::Backend& backend, const yard_host_t* host) {
    const registry::Function& f = *implementation->record;
    const bool has_verifier = f.d.verify != nullptr;
    bool declares_samples = f.d.samples != nullptr;
    if (declares_samples && !has_verifier) {
      const auto& probe = backend.probe({std::max(backend.d.device_type, 1), 0}, host);
      if (!probe.available) {
        report.why = fmt::format("is of a backend that is not available: {}", probe.text);
        return;
      }
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
      if (!has_verifier || samples == nullptr || site->signature != f.signature) continue;
      declares_samples = true;
      make_samples([&] { samples->make(samples->function, &take, this); });
    }
    if (report.broken > 0)
      report.state = FunctionReport::State::kBroken;
    else if (report.samples > 0)
      report.state = FunctionReport::State::kPassed;
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
    // The code of a plugin counts as verified only if it was run.
    if (f->d.verify == nullptr && f->d.samples == nullptr && keep == nullptr)
      e.report.state = FunctionReport::State::kNoVerifier;
    else
      e.examine(*backend_of(*s->state, f->backend), core_.host);
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
