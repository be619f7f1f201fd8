// SPDX-License-Identifier: Apache-2.0
// Compares functions with a raw call through a function pointer. The function is accepted by the
// first backend, refused by three, has no backend, or is called under the master switch. Active
// backends belong to the process or a scope, or form a chain. Prints JSON.
#include <fmt/format.h>
#include <yard/function.h>
#include <yard/yard.h>
#include <yard/plugin.hpp>

#include <cstdlib>

#include "bench/timing.h"

namespace {

using namespace yard;

[[gnu::noinline]] int64_t raw(int64_t x) {
  asm volatile("" : "+r"(x));
  return x;
}
[[gnu::noinline]] Verdict fits(int64_t x) {
  return x >= 0 ? Verdict(Accept()) : Reject("{0} is negative", x);
}
[[gnu::noinline]] Verdict refuses(int64_t x) {
  return x < 0 ? Verdict(Accept()) : Reject("{0} is not negative", x);
}
int64_t (*volatile g_raw)(int64_t) = raw;
Verdict (*volatile g_fits)(int64_t) = fits;
Verdict (*volatile g_refuses)(int64_t) = refuses;

const Function<int64_t(int64_t)> g_alone{"bench", "alone", raw}, g_taken{"bench", "taken", raw},
    g_free{"bench", "free", raw}, g_refused{"bench", "refused", raw};
const Function<int64_t(int64_t)> g_active{"bench", "active"}, g_chain{"bench", "chain"};

int64_t through(const Function<int64_t(int64_t)>& f, int64_t x) {
  return f.call_or([x] { return g_raw(x); }, x);
}

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

// The setting `off` stays in force after the measurement.
std::vector<double> measure(const std::vector<tool::Path>& paths, double seconds, bool off) {
  Policy p;
  p.reference_only = off;
  Runtime::shared().set_policy(p).or_throw();
  return tool::in_turn(paths, seconds);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 3;
  Changes c;
  for (const char* name : {"bench_a", "bench_b", "bench_c"}) {
    c.add_backend(plugin::Backend(name).d);
    implement(c, g_refused, name, raw, refuses);
  }
  implement(c, g_taken, "bench_a", raw, fits);
  implement(c, g_free, "bench_a", raw);
  implement(c, g_active, "bench_a", raw);
  implement(c, g_chain, "bench_a", [](Next<int64_t(int64_t)> next, int64_t x) { return next(x); },
            {}, {.priority = 1});
  implement(c, g_chain, "bench_b", raw);
  Runtime::shared().apply(std::move(c)).or_throw();
  for (const char* name : {"bench_a", "bench_b"})
    Runtime::shared().functions().activate(name).or_throw();
  const Scope scope = Scope().backend("bench_a");

  const std::vector<tool::Path> paths = {
      {"raw", "", loop([](int64_t x) { return g_raw(x); }), kBatch},
      {"raw_and_verifier", "", loop([](int64_t x) { return g_fits(x).accepted() ? g_raw(x) : x; }),
       kBatch},
      {"raw_and_three_verifiers", "", loop([](int64_t x) {
         for (int i = 0; i < 3; ++i)
           if (g_refuses(x).accepted()) return x;
         return g_raw(x);
       }),
       kBatch},
      {"no_backend", "", loop([](int64_t x) { return g_alone(x); }), kBatch},
      {"accepted", "", loop([](int64_t x) { return g_taken(x); }), kBatch},
      {"without_verifier", "", loop([](int64_t x) { return g_free(x); }), kBatch},
      {"refused_by_three", "", loop([](int64_t x) { return g_refused(x); }), kBatch},
      {"active", "", loop([](int64_t x) { return through(g_active, x); }), kBatch},
      {"chain_of_two", "", loop([](int64_t x) { return through(g_chain, x); }), kBatch},
      {"in_scope", "",
       [&](int64_t n) {
         const ScopedPolicy in(scope);
         loop([](int64_t x) { return through(g_active, x); })(n);
       },
       kBatch},
  };
  const std::vector<double> ns = measure(paths, seconds, false);
  const std::vector<double> off = measure({paths[0], paths[4]}, seconds / 3, true);
  std::string json;
  for (size_t i = 0; i < paths.size(); ++i)
    json += fmt::format("  \"{}_ns\": {:.2f},\n", paths[i].key, ns[i]);
  json += fmt::format("  \"master_switch_ns\": {:.2f},\n", off[1]);
  json += fmt::format("  \"accepted_over_raw_and_verifier_ns\": {:.2f},\n", ns[4] - ns[1]);
  json += fmt::format("  \"refused_by_three_over_raw_and_verifiers_ns\": {:.2f},\n", ns[6] - ns[2]);
  json += fmt::format("  \"master_switch_over_raw_ns\": {:.2f}\n", off[1] - off[0]);
  fmt::print("{{\n{}}}\n", json);
  return 0;
}
