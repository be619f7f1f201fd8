// SPDX-License-Identifier: Apache-2.0
// A plugin that brings hooks, and an implementation of a dispatched function. The build gives NAME, VERSION and
// ANSWER; WIDER compiles it with another size of a struct that it shares with the program.
#include "hooks.h"

#include <yard/plugin_hooks.hpp>

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
void plugged_samples(const HookSamples<int64_t(int64_t)>& call) { call(EXPECTED, 3); }
void chained_samples(const HookSamples<int64_t(int64_t)>& call) {
  call(200 + ANSWER, 2);
  call([](int64_t r) { return r < 0; }, -2);
}
// [/samples]
void held_samples(const HookSamples<int64_t(Gate*)>& call) {
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
          .add(hook<plugged>("plugged").samples<plugged_samples>().backend("hooked"))
          .add(hook<chained>("chained").samples<chained_samples, identity>().backend("hooked"))
          .add(hook<held>("held").samples<held_samples>().backend("hooked"));
  (void)small_only, (void)reasons;
#else
          .add(hook<plugged>("plugged").backend("hooked"))
          .add(hook<chained>("chained").backend("hooked").flags(YARD_HOOK_DEFINITION))
#ifdef WITH_TARGET
          .add(hook<described>("described").backend("hooked"))
#endif
          .add(hook<held>("held").backend("hooked"))
          .add(function<plugged>("plugged_group", "plugged", "hooked")
                   .verify<small_only>()
                   .reasons(reasons)
                   .priority(7));
#endif
  (void)described;
  return plugin.get();
}

#ifdef WITH_SAMPLES
YARD_MANIFEST(NAME, VERSION, YARD_MANIFEST_HOOKS("plugged chained held"));
#else
YARD_MANIFEST(NAME, VERSION,
              YARD_MANIFEST_HOOKS("plugged chained described held")
                  YARD_MANIFEST_GROUPS("plugged_group"));
#endif
