// SPDX-License-Identifier: Apache-2.0
// Checking verifiers by sample calls: those that a program declares with a function, and those that a plugin brings
// with its implementation.
#include <fmt/format.h>
#include <yard/plugin.h>

#include <algorithm>
#include <tuple>

#include "base/reclaimer.h"
#include "base/thread_record.h"
#include "function/check.h"
#include "function/registry.h"
#include "registry/function_sites.h"

namespace yard::function {
namespace {

constexpr size_t kMostKept = 8;  // problems of one verifier

// Asks one verifier about one sample after the other.
class Examination {
 public:
  Examination(const Registry& registry, std::shared_ptr<const registry::Hook> hook,
              const Verification& what)
      : core_(registry.core()),
        what_(what),
        implementation_(Implementation::make(std::move(hook))) {
    const registry::Hook& h = *implementation_->hook;
    to_.function = h.group + "/" + h.name, to_.backend = h.backend;
  }

  FunctionReport run() && {
    const registry::Hook& h = *implementation_->hook;
    if (h.d.verify == nullptr) {
      to_.state = FunctionReport::State::kNoVerifier;
      return std::move(to_);
    }
    bool declared = false;
    if (h.d.samples != nullptr) declared = true, guarded([&] { ask_plugin(h); });
    for (const detail::FunctionSite* site : registry::function_sites(h.group, h.name)) {
      const auto samples = site->samples.load(std::memory_order_acquire);
      if (samples == nullptr || site->signature != h.signature) continue;
      declared = true;
      guarded([&] {
        site->take_samples.load(std::memory_order_relaxed)(
            samples, [](void* me, const auto& args) { static_cast<Examination*>(me)->take(args); },
            this);
      });
    }
    if (to_.broken > 0)
      to_.state = FunctionReport::State::kBroken;
    else if (to_.samples > 0)
      to_.state = FunctionReport::State::kPassed;
    else
      to_.why = declared ? "its sample calls are none" : "declares no sample arguments";
    return std::move(to_);
  }

 private:
  void take(const detail::FunctionArgs& args) {
    ++to_.samples;
    if (what_.watch) what_.watch(to_.function, to_.backend, to_.samples);
    const Answer a = ask_checked(*implementation_, base::this_thread(), args, &core_);
    if (!a.broken.empty())
      problem(a.broken);
    else
      ++(a.accepted ? to_.accepted : to_.refused);
  }

  void ask_plugin(const registry::Hook& h) {
    const yard_samples_t to{sizeof to, 0, this, [](void* me, const yard_sample_t* sample) {
                              static_cast<Examination*>(me)->take_sample(sample);
                            }};
    h.d.samples(h.d.self, &to);
  }

  void take_sample(const yard_sample_t* sample) {
    if (sample == nullptr || sample->size < sizeof *sample || sample->ask == nullptr) {
      ++to_.samples;
      return problem("it is no sample call: its size or the function that asks is missing");
    }
    detail::FunctionArgs args{};
    args.tuple = sample;
    args.ask = [](const void* s, const detail::ThreadHead& thread, const detail::FunctionRow& row,
                  yard_verdict_t& v) {
      const auto& of = *static_cast<const yard_sample_t*>(s);
      v = {YARD_REASON_NONE, detail::scope_flags(thread), {0, 0, 0}};
      return of.ask(of.self, row.verify, row.self, &v);
    };
    args.visit = [](const void* s, detail::SeeBytes see, void* to) {
      const auto& of = *static_cast<const yard_sample_t*>(s);
      if (of.visit != nullptr) of.visit(of.self, see, to);
    };
    take(args);
  }

  // What makes sample calls may throw, too.
  template <class F>
  void guarded(const F& make) {
    try {
      make();
    } catch (const std::exception& e) {
      problem(fmt::format("making a sample call threw: {}", e.what()));
    } catch (...) {
      if (detail::thread_is_unwinding()) throw;
      problem("making a sample call threw something that is no std::exception");
    }
  }

  void problem(const std::string& text) {
    ++to_.broken;
    if (to_.problems.size() < kMostKept)
      to_.problems.push_back(fmt::format("sample {}: {}", to_.samples, text));
  }

  const detail::Core& core_;
  const Verification& what_;
  const std::shared_ptr<const Implementation> implementation_;
  FunctionReport to_;
};

}  // namespace

std::vector<FunctionReport> Registry::verify(const Verification& what) {
  const auto s = core_.snapshot();
  std::vector<FunctionReport> to;
  for (const auto& hook : s->state->functions) {
    if (what.keep != nullptr && hook->keep.get() != what.keep) continue;
    if (!what.backend.empty() && hook->backend != what.backend) continue;
    if (!what.function.empty() && hook->group + "/" + hook->name != what.function) continue;
    to.push_back(Examination(*this, hook, what).run());
  }
  std::sort(to.begin(), to.end(), [](const FunctionReport& a, const FunctionReport& b) {
    return std::tie(a.function, a.backend) < std::tie(b.function, b.backend);
  });
  base::reclaimer().collect();
  return to;
}

}  // namespace yard::function

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
