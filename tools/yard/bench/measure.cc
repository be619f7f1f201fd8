// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "bench/timing.h"

namespace yard::tool {
namespace {

constexpr int kRounds = 7;  // minimum
// Threads run together for much longer than it takes to start them, and for less than a time slice.
constexpr double kTogetherNs = 1.5e6;
constexpr int kTogetherBatches = 5;
constexpr auto kSpin = std::chrono::microseconds(100);

// Waits for a condition that will hold soon: spins first, then yields the processor.
template <class Condition>
void spin_until(Condition&& holds) {
  const auto start = Clock::now();
  while (!holds())
    if (Clock::now() - start > kSpin) std::this_thread::yield();
}

// Starts a loop at the same moment on the caller's thread and on others. The others sleep at other
// times, so that they do not disturb what the caller measures alone.
class Team {
 public:
  explicit Team(int threads) : others_(threads - 1) {
    for (int i = 0; i < others_; ++i) threads_.emplace_back([this, i] { work(i + 1); });
  }
  ~Team() {
    loops_ = nullptr;
    wake();
    for (std::thread& t : threads_) t.join();
  }
  // Runs loops[0] here and the others on their threads, n times each. Returns the seconds this
  // took.
  double together(const std::vector<Loop>& loops, int64_t n) {
    loops_ = &loops, n_ = n;
    ready_ = 0, done_ = 0;
    wake();
    await(ready_);
    const auto start = Clock::now();
    started_.store(round_, std::memory_order_release);
    loops[0](n);
    await(done_);
    return seconds_since(start);
  }

 private:
  void wake() {
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }
  void await(const std::atomic<int>& count) const {
    spin_until([&] { return count.load(std::memory_order_acquire) == others_; });
  }
  void work(int index) {
    for (int round = 1;; ++round) {
      round_.wait(round - 1, std::memory_order_acquire);
      if (loops_ == nullptr) return;
      ready_.fetch_add(1);
      spin_until([&] { return started_.load(std::memory_order_acquire) == round; });
      (*loops_)[static_cast<size_t>(index)](n_);
      done_.fetch_add(1);
    }
  }
  const int others_;
  const std::vector<Loop>* loops_ = nullptr;
  int64_t n_ = 0;
  std::atomic<int> round_{0}, ready_{0}, started_{0}, done_{0};
  std::vector<std::thread> threads_;
};

// One path on every thread. Each thread has its own arguments.
struct Scaling {
  Path path;                // for the caller's thread
  std::vector<Loop> loops;  // one for each thread
  double* speedup;
  int64_t calls = 0;  // enough for some milliseconds, so that the start does not matter
  std::vector<double> rounds;
};

void measure_scaling(std::vector<Scaling> all, int threads, double seconds) {
  Team team(threads);
  for (Scaling& s : all) s.calls = static_cast<int64_t>(kTogetherNs / least(s.path));
  const auto start = Clock::now();
  for (int round = 0; round < kRounds || seconds_since(start) < seconds; ++round)
    for (Scaling& s : all) {
      double one = 1e9, together = 1e9;
      for (int i = 0; i < kTogetherBatches; ++i) {
        const auto alone = Clock::now();
        s.path.loop(s.calls);
        one = std::min(one, seconds_since(alone));
        together = std::min(together, team.together(s.loops, s.calls));
      }
      s.rounds.push_back(threads * one / together);
    }
  for (Scaling& s : all) *s.speedup = median(std::move(s.rounds));
}

void scale(BenchCall& call, const OtherPaths& other, double seconds, DispatchFigures& f) {
  std::vector<std::unique_ptr<BenchCall>> calls;
  for (int i = 1; i < f.threads; ++i) calls.push_back(std::make_unique<BenchCall>());
  std::vector<Scaling> all;
  const auto add = [&](double& speedup, Path path, auto&& on_thread) {
    Scaling s{path, {path.loop}, &speedup, 0, {}};
    for (auto& c : calls) s.loops.push_back(on_thread(*c).loop);
    all.push_back(std::move(s));
  };
  add(f.raw_speedup, call.raw(), [](BenchCall& c) { return c.raw(); });
  add(f.dynamic_speedup, call.dynamic(), [](BenchCall& c) { return c.dynamic(); });
  if (!f.other.empty())
    add(f.other_speedup, other().at(0), [&](BenchCall&) { return other().at(0); });
  measure_scaling(std::move(all), f.threads, seconds);
}

void measure_with_others(BenchCall& call, DispatchFigures& f) {
  const Path path = call.dynamic();
  std::vector<double> with, without;
  for (int round = 0; round < kRounds; ++round) {
    path.loop(path.batch);
    without.push_back(least(path));
    add_other_kernels().or_throw();
    path.loop(path.batch);
    with.push_back(least(path));
    remove_other_kernels().or_throw();
  }
  f.with_1000_kernels_ns = median(std::move(with));
  f.without_1000_kernels_ns = median(std::move(without));
}

}  // namespace

int default_threads() { return std::max(2, static_cast<int>(std::thread::hardware_concurrency())); }

DispatchFigures measure_dispatch(double seconds, int threads, const OtherPaths& other) {
  BenchCall::prepare().or_throw();
  BenchCall call;
  std::vector<Path> paths = call.paths();
  const size_t ours = paths.size();
  if (other)
    for (Path& p : other()) paths.push_back(std::move(p));
  const std::vector<double> ns = in_turn(paths, seconds * 0.5);
  DispatchFigures f;
  for (size_t i = 0; i < paths.size(); ++i)
    (i < ours ? f.rows : f.other).push_back({paths[i].key, paths[i].meaning, ns[i]});
  f.threads = threads;
  measure_with_others(call, f);
  scale(call, other, seconds * 0.4, f);
  return f;
}

std::string json_members(const DispatchFigures& f) {
  std::string out;
  for (const DispatchFigures::Row& r : f.rows)
    out += fmt::format("  \"{}_ns\": {:.3f},\n", r.key, r.ns);
  return out + fmt::format(
                   "  \"with_1000_kernels_ns\": {:.3f},\n"
                   "  \"threads\": {},\n"
                   "  \"raw_speedup\": {:.3f},\n"
                   "  \"dynamic_speedup\": {:.3f},\n"
                   "  \"without_1000_kernels_ns\": {:.3f}",
                   f.with_1000_kernels_ns, f.threads, f.raw_speedup, f.dynamic_speedup,
                   f.without_1000_kernels_ns);
}

}  // namespace yard::tool
