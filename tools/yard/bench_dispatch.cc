// SPDX-License-Identifier: Apache-2.0
// yard bench dispatch: what a call costs before its kernel runs.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "bench_paths.h"
#include "bench_timing.h"
#include "commands.h"
#include "json.h"
#include "table.h"

namespace yard::tool {
namespace {

constexpr double kTogether = 4e6;  // nanoseconds that two threads run side by side

// A second thread that runs a loop whenever it is told to, at the same moment as the caller.
class Partner {
 public:
  Partner() : thread_([this] { work(); }) {}
  ~Partner() {
    quit_ = true;
    go_.fetch_add(1);
    thread_.join();
  }
  // Runs `mine` here and `its` there, n times each; seconds until both are through.
  double together(const Loop& mine, const Loop& its, int64_t n) {
    loop_ = &its, n_ = n;
    const auto start = Clock::now();
    const int turn = go_.fetch_add(1) + 1;
    mine(n);
    while (done_.load(std::memory_order_acquire) != turn) {
    }
    return seconds_since(start);
  }

 private:
  void work() {
    for (int turn = 1;; ++turn) {
      while (go_.load(std::memory_order_acquire) < turn) {
      }
      if (quit_) return;
      (*loop_)(n_);
      done_.store(turn, std::memory_order_release);
    }
  }
  std::atomic<int> go_{0}, done_{0};
  std::atomic<bool> quit_{false};
  const Loop* loop_ = nullptr;
  int64_t n_ = 0;
  std::thread thread_;
};

struct Figures {
  std::vector<Path> paths;
  std::vector<double> ns;
  double with_others_ns = 0, without_others_ns = 0;
  double raw_speedup = 0, dynamic_speedup = 0;
};

// How much more two threads get done than one.
void two_threads(BenchCall& call, double seconds, Figures& out) {
  BenchCall other;
  Partner partner;
  struct Pair {
    Path mine, its;
    int64_t calls = 0;  // some milliseconds: starting together must not matter
    std::vector<double> speedups;
  };
  Pair pairs[2] = {{call.raw(), other.raw(), 0, {}}, {call.dynamic(), other.dynamic(), 0, {}}};
  for (Pair& p : pairs) p.calls = static_cast<int64_t>(kTogether / least(p.mine));
  const auto start = Clock::now();
  for (int round = 0; round < 7 || seconds_since(start) < seconds; ++round)
    for (Pair& p : pairs) {
      const int64_t n = p.calls;
      double one = 1e9, two = 1e9;
      for (int i = 0; i < kBatches; ++i) {
        one = std::min(one, ns_per_call(p.mine.loop, n) * 1e-9 * static_cast<double>(n));
        two = std::min(two, partner.together(p.mine.loop, p.its.loop, n));
      }
      p.speedups.push_back(2 * one / two);
    }
  out.raw_speedup = median(std::move(pairs[0].speedups));
  out.dynamic_speedup = median(std::move(pairs[1].speedups));
}

// The dynamic call beside a thousand kernels that have nothing to do with it, and without them.
void with_others(BenchCall& call, Figures& out) {
  const Path path = call.dynamic();
  std::vector<double> with, without;
  for (int round = 0; round < 7; ++round) {
    path.loop(path.batch);
    without.push_back(least(path));
    add_other_kernels().or_throw();
    path.loop(path.batch);
    with.push_back(least(path));
    remove_other_kernels().or_throw();
  }
  out.with_others_ns = median(std::move(with));
  out.without_others_ns = median(std::move(without));
}

Figures measure_dispatch(double seconds) {
  BenchCall::prepare().or_throw();
  BenchCall call;
  Figures f;
  f.paths = call.paths();
  f.ns = in_turn(f.paths, seconds * 0.5);
  with_others(call, f);
  two_threads(call, seconds * 0.4, f);
  return f;
}

void print_dispatch_json(const Figures& f) {
  Json j;
  for (size_t i = 0; i < f.paths.size(); ++i) j[std::string(f.paths[i].key) + "_ns"] = f.ns[i];
  j["dynamic_2t_speedup"] = f.dynamic_speedup;
  j["raw_2t_speedup"] = f.raw_speedup;
  j["with_1000_kernels_ns"] = f.with_others_ns;
  j["without_1000_kernels_ns"] = f.without_others_ns;
  j["threads"] = std::thread::hardware_concurrency();
  fmt::print("{}\n", j.dump(2));
}

void print_dispatch(const Figures& f) {
  const double raw = f.ns[0];
  Table t({{"way to call"},
           {"time", Align::kRight},
           {"raw +", Align::kRight},
           {"raw x", Align::kRight},
           {""}});
  const auto add = [&](const char* name, double ns, const char* meaning) {
    t.add({{name, Paint::kBold},
           {duration(ns)},
           {duration(ns - raw)},
           {fmt::format("{:.1f}", ns / raw)},
           {meaning, Paint::kDim}});
  };
  for (size_t i = 0; i < f.paths.size(); ++i) add(f.paths[i].key, f.ns[i], f.paths[i].meaning);
  add("dynamic", f.with_others_ns, "the same beside 1,000 kernels of other ops");
  fmt::print("An op on three tensors whose kernels do nothing, 8 candidates:\n\n{}", t.text(2));
  fmt::print(
      "\nTwo threads do {:.2f} times what one does on the dynamic path, {:.2f} times on the raw "
      "one "
      "({} processors).\n",
      f.dynamic_speedup, f.raw_speedup, std::thread::hardware_concurrency());
}

}  // namespace

void add_bench_dispatch(CLI::App& bench, Action& action) {
  struct Question {
    double seconds = 2;
    bool json = false;
  };
  auto q = std::make_shared<Question>();
  CLI::App* c = bench.add_subcommand("dispatch", "What a call costs before its kernel runs");
  c->add_option("--seconds", q->seconds, "How long to measure, about (2)")
      ->type_name("S")
      ->check(CLI::Range(0.0, 3600.0));
  c->add_flag("--json", q->json, "JSON for programs instead of a table");
  c->footer(
      "Registers an op on three tensors with eight kernels that do nothing, and calls it in every "
      "way\n"
      "there is. `raw` is a call through a function pointer with the same arguments: what no\n"
      "dispatcher can beat. Ratios say more than nanoseconds: all are from one run on one "
      "machine.\n"
      "\n"
      "Examples:\n"
      "  yard bench dispatch\n"
      "  yard bench dispatch --seconds 10 --json");
  c->callback([q, &action] {
    action = [q] {
      const Figures f = measure_dispatch(q->seconds);
      if (q->json)
        print_dispatch_json(f);
      else
        print_dispatch(f);
      return kOk;
    };
  });
}

}  // namespace yard::tool
