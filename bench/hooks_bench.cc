// SPDX-License-Identifier: Apache-2.0
// What a hook costs beside a raw call through a function pointer: not engaged, engaged for the process, for a device
// and for a scope, chosen, and through a chain. Measured in turn in one process. Prints JSON.
#include <fmt/format.h>
#include <yard/yard.h>

#include <cstdlib>

#include "bench/timing.h"

namespace {

using namespace yard;

[[gnu::noinline]] int64_t raw(int64_t x) {
  asm volatile("" : "+r"(x));
  return x;
}
int64_t (*volatile g_raw)(int64_t) = raw;

const Hook<int64_t(int64_t)> g_idle{"bench.idle"}, g_engaged{"bench.engaged"},
    g_elsewhere{"bench.elsewhere"}, g_chain{"bench.chain"};

constexpr int64_t kBatch = 20000;

template <class F>
tool::Loop loop(const F& f) {
  return [f](int64_t n) {
    int64_t x = 0;
    for (int64_t i = 0; i < n; ++i) {
      x = f(x);
      asm volatile("" : "+r"(x));
    }
  };
}

int64_t through(const Hook<int64_t(int64_t)>& hook, int64_t x) {
  return call_or(
      hook, [x] { return g_raw(x); }, x);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  Hooks hooks = Runtime::shared().hooks();
  hooks.add(HookSet("bench").add(g_engaged, [](int64_t x) { return raw(x); })).or_throw();
  hooks.add(HookSet("there").add(g_elsewhere, [](int64_t x) { return raw(x); })).or_throw();
  HookSet first("first");
  first.add(
      g_chain, [](Next<int64_t(int64_t)> next, int64_t x) { return next(x); }, 1);
  hooks.add(first).or_throw();
  hooks.add(HookSet("second").add(g_chain, raw)).or_throw();
  for (const char* backend : {"bench", "first", "second"}) hooks.activate(backend).or_throw();
  hooks.activate("there", {2, 0}).or_throw();
  const HookScope scope = hooks.scope("there").value();
  const auto chosen = choose(g_engaged, raw);

  const std::vector<tool::Path> paths = {
      {"raw", "", loop([](int64_t x) { return g_raw(x); }), kBatch},
      {"not_engaged", "", loop([](int64_t x) { return through(g_idle, x); }), kBatch},
      {"engaged_elsewhere", "", loop([](int64_t x) { return through(g_elsewhere, x); }), kBatch},
      {"engaged", "", loop([](int64_t x) { return through(g_engaged, x); }), kBatch},
      {"chosen", "", loop([&](int64_t x) { return chosen(x); }), kBatch},
      {"on_device", "",
       [](int64_t n) {
         const ScopedDevice on({2, 0});
         loop([](int64_t x) { return through(g_elsewhere, x); })(n);
       },
       kBatch},
      {"in_scope", "",
       [&](int64_t n) {
         const ScopedHooks in(scope);
         loop([](int64_t x) { return through(g_elsewhere, x); })(n);
       },
       kBatch},
      {"chain_of_two", "", loop([](int64_t x) { return through(g_chain, x); }), kBatch},
  };
  const std::vector<double> ns = tool::in_turn(paths, seconds);
  std::string json;
  for (size_t i = 0; i < paths.size(); ++i)
    json += fmt::format("  \"{}_ns\": {:.2f},\n", paths[i].key, ns[i]);
  json += fmt::format("  \"not_engaged_over_raw_ns\": {:.2f},\n  \"engaged_over_raw_ns\": {:.2f}\n",
                      ns[1] - ns[0], ns[3] - ns[0]);
  fmt::print("{{\n{}}}\n", json);
  return 0;
}
