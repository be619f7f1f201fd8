// SPDX-License-Identifier: Apache-2.0
// yard bench dispatch: measures the overhead of a call.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "arguments.h"
#include "bench/measure.h"
#include "commands.h"
#include "json.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

void print_dispatch(const DispatchFigures& f) {
  const double raw = f.rows[0].ns;
  Table t("way to call|time>|raw +>|raw x>|");
  const auto add = [&](const char* name, double ns, const char* meaning) {
    t.add({{name, Paint::kBold},
           {duration(ns)},
           {duration(ns - raw)},
           {fmt::format("{:.1f}", ns / raw)},
           {meaning, Paint::kDim}});
  };
  for (const DispatchFigures::Row& r : f.rows) add(r.key, r.ns, r.meaning);
  add("with_1000_kernels", f.with_1000_kernels_ns, "dynamic, beside 1,000 kernels of other ops");
  print_out("An op on three tensors whose kernels do nothing, 8 candidates:\n\n{}", t.text(2));
  print_out("\n{} threads make {:.2f} times the dynamic calls of one, {:.2f} times the raw ones.\n",
            f.threads, f.dynamic_speedup, f.raw_speedup);
}

}  // namespace

void add_bench_dispatch(CLI::App& bench, Action& action) {
  struct Question {
    double seconds = 2;
    int threads = default_threads();
    bool json = false;
  };
  const auto run = [](const Question& q) {
    const DispatchFigures f = measure_dispatch(q.seconds, q.threads);
    if (q.json)
      print_json(Json::parse("{" + json_members(f) + "}"));
    else
      print_dispatch(f);
    return kOk;
  };
  const auto [c, q] =
      add_command<Question>(bench, action, "dispatch", "Measure the overhead of a call", run);
  add_value(*c, "--seconds", q->seconds, "SECONDS", "Approximate duration (2)")
      ->check(between(0.0, 3600.0));
  add_value(*c, "--threads", q->threads, "N",
            "Threads that call concurrently (one for each processor, at least 2)")
      ->check(between(2, 1024));
}

}  // namespace yard::tool
