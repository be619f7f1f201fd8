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
#include "functions/declarations.h"
#include "functions/functions.h"

namespace yard::functions {
namespace {

constexpr const char* kFloatStateChanged = "it changed the floating-point control state";

bool same_answer(const Answer& a, const Answer& b) {
  return a.accepted == b.accepted && a.verdict.reason == b.verdict.reason &&
         std::memcmp(a.verdict.figures, b.verdict.figures, sizeof a.verdict.figures) == 0;
}

std::string described(const Implementation& i, const Answer& a) {
  return a.accepted ? "yes" : "no, " + i.text_of(a.verdict.reason, a.verdict.figures);
}

// On two threads at once, in the same scope. An answer that differs from `first`, if there is one.
Answer ask_elsewhere(const Implementation& i, const detail::ThreadHead& thread,
                     const detail::FunctionArgs& args, const Answer& first) {
  Answer answers[2];
  const auto ask = [&](Answer& to) {
    base::ThreadRecord& other = base::this_thread();
    const detail::ScopeOfCaller scope(other, thread.scope_state);
    to = ask_once(i, other, args);
  };
  std::thread one([&] { ask(answers[0]); }), two([&] { ask(answers[1]); });
  one.join(), two.join();
  return answers[0].broken.empty() && same_answer(first, answers[0]) ? answers[1] : answers[0];
}

// Twice on this thread, then on two other threads at once. Different answers, and a reason without a text, make the
// verifier broken.
Answer ask_checked(const Implementation& i, const detail::ThreadHead& thread,
                   const detail::FunctionArgs& args) {
  Answer first = ask_once(i, thread, args);
  if (i.verify == nullptr || !first.broken.empty()) return first;
  const Answer second = ask_once(i, thread, args);
  const Answer elsewhere = ask_elsewhere(i, thread, args, first);
  const auto differs = [&](const char* when, const Answer& other) {
    return fmt::format("inconsistent answers: {}; {}: {}", described(i, first), when,
                       other.broken.empty() ? described(i, other) : other.broken);
  };
  if (!same_answer(first, second) || !second.broken.empty())
    first.broken = differs("asked again", second);
  else if (!same_answer(first, elsewhere) || !elsewhere.broken.empty())
    first.broken = differs("on another thread", elsewhere);
  else if (!first.accepted && !i.has_text(first.verdict.reason))
    first.broken = "it refuses for a reason that is not in its list of texts";
  if (!first.broken.empty()) first.accepted = false;
  return first;
}

constexpr size_t kMaxProblems = 8;  // reported of one verifier

// What the sample calls of a function show about one backend's code for it.
class Examination {
 public:
  Examination(std::shared_ptr<const registry::Function> record, std::string name,
              const Verification& what)
      : record_(std::move(record)), what_(what) {
    to_.function = std::move(name), to_.backend = record_->backend;
  }

  // Asks the verifier about all samples: those of the program, declared with the function, and those of the plugin.
  FunctionReport of_verifier() && {
    const registry::Function& h = *record_;
    implementation_ = Implementation::make(record_);
    constexpr const char* kThrew = "making a sample call threw: ";
    bool declared = h.d.samples != nullptr;
    if (declared)
      take_of_plugin(kThrew, [&](const yard_sample_t& sample) { ask(args_of(sample)); });
    for (const detail::FunctionSite* site : declared_sites(h.group, h.name)) {
      const auto samples = site->samples.load(std::memory_order_acquire);
      if (samples == nullptr || site->signature != h.signature) continue;
      declared = true;
      const auto take = [](void* self, const detail::FunctionArgs& args) {
        auto& me = *static_cast<Examination*>(self);
        me.begin_sample();
        me.ask(args);
      };
      guarded(kThrew,
              [&] { site->take_samples.load(std::memory_order_relaxed)(samples, take, this); });
    }
    return finish(declared ? "makes no sample call" : "declares no sample arguments");
  }

  // Runs the function with the sample calls of its plugin, which state what is expected of it.
  FunctionReport of_results(const registry::Backend& backend, const yard_host_t* host) && {
    const registry::Function& h = *record_;
    if (h.d.samples == nullptr) {
      // The code of a plugin counts as verified only if it was run.
      if (what_.keep != nullptr) return finish("declares no sample calls");
      to_.state = FunctionReport::State::kNoVerifier;
      return std::move(to_);
    }
    const registry::DeviceProbe& probe =
        backend.probe({std::max(backend.d.device_type, 1), 0}, host);
    if (!probe.available)
      return finish(fmt::format("is of a backend that is not available: {}", probe.text));
    take_of_plugin("it threw: ", [&](const yard_sample_t& sample) {
      // Twice: the second run finds what the first has left behind.
      for (const char* const run : {"", ", when run again"}) {
        yard_verdict_t unused{};
        const base::FloatState before;
        const int32_t code = sample.ask(sample.self, h.d.function, h.d.self, &unused);
        if (before.restore()) return problem(kFloatStateChanged);
        if (code != YARD_OK) return problem(fmt::format("unexpected result{}", run));
      }
      ++to_.accepted;
    });
    return finish("makes no sample call");
  }

 private:
  static detail::FunctionArgs args_of(const yard_sample_t& sample) {
    detail::FunctionArgs args{};
    args.tuple = &sample;
    args.ask = [](const void* s, const detail::ThreadHead& thread, const detail::FunctionRow& row,
                  yard_verdict_t& v) {
      const auto& of = *static_cast<const yard_sample_t*>(s);
      v = {YARD_REASON_NONE, detail::scope_flags(thread), {0, 0, 0}};
      return of.ask(of.self, row.verify, row.self, &v);
    };
    return args;
  }

  void ask(const detail::FunctionArgs& args) {
    const Answer a = ask_checked(*implementation_, base::this_thread(), args);
    if (!a.broken.empty())
      problem(a.broken);
    else
      ++(a.accepted ? to_.accepted : to_.refused);
  }

  // Calls f(sample) for each of the plugin's sample calls.
  template <class F>
  void take_of_plugin(const char* threw, const F& f) {
    struct Taker {
      Examination& me;
      const F& f;
    } taker{*this, f};
    const yard_samples_t to{
        sizeof to, 0, &taker, [](void* self, const yard_sample_t* sample) {
          const Taker& t = *static_cast<const Taker*>(self);
          t.me.begin_sample();
          if (sample == nullptr || sample->size < sizeof *sample || sample->ask == nullptr)
            return t.me.problem("invalid sample call: its size or its ask function is missing");
          t.f(*sample);
        }};
    const base::FloatState restored;
    guarded(threw, [&] { record_->d.samples(record_->d.self, &to); });
  }

  void begin_sample() {
    ++to_.samples;
    if (what_.watch) what_.watch(to_.function, to_.backend, to_.samples);
  }

  // Code that makes sample calls may throw.
  template <class F>
  void guarded(const char* threw, const F& make) {
    try {
      make();
    } catch (...) {
      problem(threw + base::current_exception_text());
    }
  }

  void problem(const std::string& text) {
    ++to_.broken;
    if (to_.problems.size() < kMaxProblems)
      to_.problems.push_back(fmt::format("sample {}: {}", to_.samples, text));
  }

  FunctionReport finish(std::string why_none) {
    if (to_.broken > 0)
      to_.state = FunctionReport::State::kBroken;
    else if (to_.samples > 0)
      to_.state = FunctionReport::State::kPassed;
    else
      to_.why = std::move(why_none);
    return std::move(to_);
  }

  const std::shared_ptr<const registry::Function> record_;
  const Verification& what_;
  std::shared_ptr<const Implementation> implementation_;  // of a function with a verifier
  FunctionReport to_;
};

}  // namespace

std::vector<FunctionReport> Service::verify(const Verification& what) const {
  const auto s = core_.snapshot();
  std::vector<FunctionReport> to;
  for (const auto& f : s->state->functions) {
    std::string name = f->group + "/" + f->name;
    if ((what.keep != nullptr && f->keep.get() != what.keep) ||
        (!what.backend.empty() && f->backend != what.backend) ||
        (!what.function.empty() && name != what.function))
      continue;
    Examination examination(f, std::move(name), what);
    to.push_back(
        f->d.verify != nullptr
            ? std::move(examination).of_verifier()
            : std::move(examination).of_results(*backend_of(*s->state, f->backend), core_.host));
  }
  std::sort(to.begin(), to.end(), [](const FunctionReport& a, const FunctionReport& b) {
    return std::tie(a.function, a.backend) < std::tie(b.function, b.backend);
  });
  base::reclaimer().collect();
  return to;
}

}  // namespace yard::functions

namespace yard {

const char* to_string(FunctionReport::State state) noexcept {
  switch (state) {
    case FunctionReport::State::kPassed: return "passed";
    case FunctionReport::State::kBroken: return "broken";
    case FunctionReport::State::kNotChecked: return "not_checked";
    case FunctionReport::State::kNoVerifier: return "no_verifier";
  }
  return "?";
}

}  // namespace yard
