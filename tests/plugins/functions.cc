// SPDX-License-Identifier: Apache-2.0
// A plugin that implements functions, some of them only for active backends. The build defines
// NAME, VERSION and ANSWER. WIDER compiles it with another size of a struct that it shares with the
// program.
#include "functions.h"

#include <yard/plugin_function.hpp>

#include <atomic>

#ifndef NAME
#define NAME "plugged"
#endif
#ifndef VERSION
#define VERSION "1.0"
#endif
#ifndef ANSWER
#define ANSWER 1
#endif

namespace {

using namespace yard::plugin;
using yard::testing::Gate;
using yard::testing::Target;

int64_t plugged(int64_t x) { return 10 * x + ANSWER; }
int64_t chained(yard::Next<int64_t(int64_t)> next, int64_t x) { return 100 * next(x) + ANSWER; }
int64_t described(const Target& target, int64_t x) { return target.lanes * x; }
// Runs until the test lets it go.
int64_t held(Gate* gate) {
  gate->inside.store(true);
  while (!gate->open.load()) {
  }
  return ANSWER;
}
constexpr const char* kReasons[] = {"{0} is more than 99"};
yard::Verdict small_only(int64_t x) {
  if (x > 99) return yard::Reject(kReasons[0], x);
  return yard::Accept();
}

#ifdef WITH_SAMPLES
#ifndef EXPECTED
#define EXPECTED 30 + ANSWER
#endif
// [samples]
int64_t identity(int64_t x) { return x; }
void plugged_samples(const ResultSamples<int64_t(int64_t)>& call) { call(EXPECTED, 3); }
void chained_samples(const ResultSamples<int64_t(int64_t)>& call) {
  call(200 + ANSWER, 2);
  call([](int64_t r) { return r < 0; }, -2);
}
// [/samples]
void held_samples(const ResultSamples<int64_t(Gate*)>& call) {
  Gate gate;
  gate.open.store(true);
  call(ANSWER, &gate);
}
#endif

}  // namespace

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  static const Plugin plugin =
      Plugin(NAME, VERSION)
#ifdef WITH_SAMPLES
          .add(function<plugged>("active_group", "plugged", "plugged").results<plugged_samples>())
          .add(function<chained>("active_group", "chained", "plugged")
                   .results<chained_samples, identity>())
          .add(function<held>("active_group", "held", "plugged").results<held_samples>());
  (void)small_only;
#else
          .add(function<plugged>("active_group", "plugged", "plugged"))
          .add(function<chained>("active_group", "chained", "plugged"))
#ifdef WITH_TARGET
          .add(function<described>("active_group", "described", "plugged"))
#endif
          .add(function<held>("active_group", "held", "plugged"))
          .add(function<plugged>("plugged_group", "plugged", "plugged")
                   .verify<small_only>(kReasons)
                   .priority(7));
#endif
  (void)described;
  return plugin.get();
}

#ifdef WITH_SAMPLES
YARD_MANIFEST(NAME, VERSION, YARD_MANIFEST_FUNCTIONS("active_group"));
#else
YARD_MANIFEST(NAME, VERSION, YARD_MANIFEST_FUNCTIONS("active_group plugged_group"));
#endif
