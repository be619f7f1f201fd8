// SPDX-License-Identifier: Apache-2.0
// Sample calls, by which `yard verify` and yard::verify() check verifiers and functions.
#include <fmt/format.h>
#include <yard/plugin.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <tuple>

#include "base/float_state.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "dispatch/scope.h"
#include "functions/functions.h"

namespace yard::functions {
namespace {

constexpr size_t kMaxProblems = 8;  // reported of one implementation
constexpr const char* kNoSamples = "makes no sample call";

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
  if (!first.broken.empty()) return first;
  Answer others[2];
  const auto ask = [&](Answer& to) {
    const ScopeOfCaller scope(base::this_thread(), thread.scope_state);
    to = ask_once(i, base::this_thread(), args);
  };
  std::thread one([&] { ask(others[0]); }), two([&] { ask(others[1]); });
  one.join(), two.join();
  for (const Answer& other : others) compare("on another thread", other);
  if (first.broken.empty() && !first.accepted && !i.has_text(first.verdict.reason))
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

// A sample call of a plugin, as the arguments of a call. It is given the verifier, or the function if there is none.
FunctionArgs args_of(const yard_sample_t& sample) {
  FunctionArgs args{};
  args.tuple = &sample;
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
  const Verification& what;
  FunctionReport report;

  void take(const FunctionArgs& args) {
    begin_sample();
    const Implementation& i = *implementation;
    const Answer a = i.verify != nullptr ? ask_checked(i, args) : run_twice(i, args);
    if (!a.broken.empty()) return problem(a.broken);
    ++(a.accepted ? report.accepted : report.refused);
  }
  void begin_sample() {
    ++report.samples;
    if (what.watch) what.watch(report.function, report.backend, report.samples);
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
  // The samples of the plugin. Returns false if it has none.
  bool take_own() {
    const yard_function_t& d = implementation->record->d;
    if (d.samples == nullptr) return false;
    const yard_samples_t to{
        sizeof to, 0, this, [](void* self, const yard_sample_t* sample) {
          auto& me = *static_cast<Examination*>(self);
          if (sample != nullptr && sample->size >= sizeof *sample && sample->ask != nullptr)
            return me.take(args_of(*sample));
          me.begin_sample();
          me.problem("invalid sample call: its size or its ask function is missing");
        }};
    make_samples([&] { d.samples(d.self, &to); });
    return true;
  }
  // The samples of the program, declared with the function. Returns false if it has none.
  bool take_declared() {
    bool any = false;
    const registry::Function& f = *implementation->record;
    for (const FunctionSite* site : declared_sites(f.group, f.name)) {
      const auto samples = site->samples.load(std::memory_order_acquire);
      if (samples == nullptr || site->signature != f.signature) continue;
      any = true;
      const auto take_one = [](void* self, const FunctionArgs& args) {
        static_cast<Examination*>(self)->take(args);
      };
      make_samples(
          [&] { site->take_samples.load(std::memory_order_relaxed)(samples, take_one, this); });
    }
    return any;
  }
  FunctionReport finish(std::string why_none) {
    if (report.samples == 0 && report.broken == 0) report.why = std::move(why_none);
    if (report.samples > 0) report.state = FunctionReport::State::kPassed;
    if (report.broken > 0) report.state = FunctionReport::State::kBroken;
    return std::move(report);
  }

  FunctionReport check_verifier() {
    const bool own = take_own(), declared = take_declared();
    return finish(own || declared ? kNoSamples : "declares no sample arguments");
  }
  // Runs the function with the sample calls of its plugin, which state what is expected of it.
  FunctionReport check_results(const registry::Backend& backend, const yard_host_t* host) {
    if (implementation->record->d.samples == nullptr) {
      // The code of a plugin counts as verified only if it was run.
      if (what.keep != nullptr) return finish("declares no sample calls");
      report.state = FunctionReport::State::kNoVerifier;
      return finish("");
    }
    const auto& probe = backend.probe({std::max(backend.d.device_type, 1), 0}, host);
    if (!probe.available)
      return finish(fmt::format("is of a backend that is not available: {}", probe.text));
    take_own();
    return finish(kNoSamples);
  }
};

}  // namespace

std::vector<FunctionReport> Service::verify(const Verification& what) const {
  const auto s = core_.snapshot();
  std::vector<FunctionReport> to;
  for (const auto& f : s->state->functions) {
    const std::string name = f->group + "/" + f->name;
    if ((what.keep != nullptr && f->keep.get() != what.keep) ||
        (!what.backend.empty() && f->backend != what.backend) ||
        (!what.function.empty() && name != what.function))
      continue;
    Examination e{Implementation::make(f), what, {}};
    e.report.function = name, e.report.backend = f->backend;
    to.push_back(f->d.verify != nullptr
                     ? e.check_verifier()
                     : e.check_results(*backend_of(*s->state, f->backend), core_.host));
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
