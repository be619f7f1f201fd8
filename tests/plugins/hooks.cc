// SPDX-License-Identifier: Apache-2.0
// A plugin that implements functions, some of them for active backends only. The build gives NAME, VERSION and
// ANSWER; WIDER compiles it with another size of a struct that it shares with the program.
#include "hooks.h"

#include <yard/plugin_function.hpp>

#include <atomic>

#ifndef NAME
#define NAME "hooked"
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
int32_t small_only(int64_t x, yard_verdict_t* verdict) {
  if (x > 99) verdict->reason = YARD_REASON_OWN, verdict->figures[0] = x;
  return YARD_OK;
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
  static const char* const reasons[] = {"{0} is more than 99"};
  static const Plugin plugin =
      Plugin(NAME, VERSION)
#ifdef WITH_SAMPLES
          .add(function<plugged>("hooked_group", "plugged", "hooked").results<plugged_samples>())
          .add(function<chained>("hooked_group", "chained", "hooked")
                   .results<chained_samples, identity>())
          .add(function<held>("hooked_group", "held", "hooked").results<held_samples>());
  (void)small_only, (void)reasons;
#else
          .add(function<plugged>("hooked_group", "plugged", "hooked"))
          .add(function<chained>("hooked_group", "chained", "hooked"))
#ifdef WITH_TARGET
          .add(function<described>("hooked_group", "described", "hooked"))
#endif
          .add(function<held>("hooked_group", "held", "hooked"))
          .add(function<plugged>("plugged_group", "plugged", "hooked")
                   .verify<small_only>()
                   .reasons(reasons)
                   .priority(7));
#endif
  (void)described;
  return plugin.get();
}

#ifdef WITH_SAMPLES
YARD_MANIFEST(NAME, VERSION, YARD_MANIFEST_FUNCTIONS("hooked_group"));
#else
YARD_MANIFEST(NAME, VERSION, YARD_MANIFEST_FUNCTIONS("hooked_group plugged_group"));
#endif
