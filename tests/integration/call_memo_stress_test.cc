// SPDX-License-Identifier: Apache-2.0
// Threads repeat calls through memos while another thread changes which kernel is selected. Every
// call must run a kernel that was allowed between its start and its end, and never a released one.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "ledger.h"
#include "testing.h"

namespace yard::testing {
namespace {

constexpr Op<void(Out, In)> live{"live"};

int32_t typed_version(yard_call_t* call, const yard_tensor_t* out, const yard_tensor_t* x) {
  yard_value_t args[2] = {};
  args[0].tag = args[1].tag = YARD_TAG_TENSOR;
  args[0].u.tensor = out, args[1].u.tensor = x;
  return Version::run(call, args, 2);
}
yard_kernel_t versioned(const char* id, const std::shared_ptr<Version>& v, int32_t priority = 0) {
  yard_kernel_t k = kernel_of("live", id, 0, priority);
  k.self = v.get(), k.run = Version::run;
  k.typed = reinterpret_cast<void (*)()>(typed_version), k.typed_signature = "tt";
  return k;
}

// Sixteen forms over the memory of one thread: apart, in place, rows of a larger buffer,
// interleaved.
struct SixteenForms {
  alignas(64) int64_t memory[2][512] = {};
  std::deque<std::pair<TensorView, TensorView>> of;

  SixteenForms() {
    for (int64_t n = 1; n <= 4; ++n) {
      const TensorView a(memory[0], DType::i64, {n, 4}), b(memory[1], DType::i64, {n, 4});
      const TensorView rows(memory[0], DType::i64, {n, 4}, {16, 1});
      const TensorView left(memory[0], DType::i64, {n, 4}, {8, 1});
      const TensorView right(memory[0] + 4, DType::i64, {n, 4}, {8, 1});
      of.emplace_back(a, b);
      of.emplace_back(a, a);
      of.emplace_back(rows, b);
      of.emplace_back(left, right);
    }
  }
};

class CallMemoStress : public ::testing::Test {
 protected:
  static constexpr int kCallers = 3;
  CallMemoStress() : bare_("live(out!: i64[n, m], x: i64[n, m]) where out may_alias x", 4) {}

  void call(unsigned seed) {
    std::mt19937 random(seed);
    SixteenForms forms;
    const auto on = live.on(bare_.runtime);
    const Scope scope = Scope().deny_kernels({"unknown"});
    uint64_t count = 0;
    while (!stop_) {
      const auto& [out, x] = forms.of[random() % forms.of.size()];
      std::optional<ScopedPolicy> in;
      if (random() % 8 == 0) in.emplace(scope);
      for (int i = 0; i < 4; ++i) {
        auto& result = *static_cast<int64_t*>(out.data());
        result = kNone;
        const uint64_t from = ledger_.before_call();
        const Status s = random() % 2 == 0 ? on(out, x) : bare_.runtime.call("live", {out, x});
        if (!s.ok() && s.code() != Code::kNoKernel) ++failures_;
        mismatches_ += !ledger_.allows(from, s.ok() ? result : kNone);
        ++count;
      }
    }
    calls_ += count;
  }

  // Calls `change` with 1, 2, ... until the time is over.
  void run(const std::function<void(int64_t)>& change) {
    std::vector<std::thread> callers;
    for (unsigned i = 0; i < kCallers; ++i) callers.emplace_back([this, i] { call(i); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(1000);
    std::mt19937 random(99);
    int64_t changes = 0;
    while (std::chrono::steady_clock::now() < end) {
      change(++changes);
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
    }
    stop_ = true;
    for (std::thread& t : callers) t.join();
    EXPECT_EQ(mismatches_, 0u);
    EXPECT_EQ(failures_, 0u);
    EXPECT_EQ(Version::g_dead_touched, 0u);
    EXPECT_GT(calls_, 1000u);
    EXPECT_GT(changes, 20);
    RecordProperty("calls", std::to_string(calls_.load()));
    RecordProperty("changes", std::to_string(changes));
  }
  void add(const char* id, int64_t number, int32_t priority) {
    auto v = std::make_shared<Version>(number);
    bare_.add(versioned(id, v, priority), v).or_throw();
  }

  Bare bare_;
  Ledger ledger_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> calls_{0}, mismatches_{0}, failures_{0};
};

TEST_F(CallMemoStress, WhileKernelsAreReplacedAndRemoved) {
  ledger_.begin(kNone), ledger_.end();
  bool there = false;
  run([&](int64_t i) {
    auto v = std::make_shared<Version>(i);
    Changes c;
    const bool remove = there && i % 5 == 0;
    if (remove)
      c.remove_kernel("live", "k");
    else if (there)
      c.replace_kernel(versioned("k", v), v);
    else
      c.add_kernel(versioned("k", v), v);
    v.reset();
    ledger_.begin(remove ? kNone : i);
    bare_.runtime.apply(std::move(c)).or_throw();
    ledger_.end();
    there = !remove;
  });
}

TEST_F(CallMemoStress, WhilePolicyChanges) {
  add("a", 0, 20), add("b", 1, 10);
  ledger_.begin(0), ledger_.end();
  run([&](int64_t i) {
    Policy p;
    if (i % 2 == 1) p.deny_kernels = {"a"};
    ledger_.begin(i % 2);
    bare_.runtime.set_policy(p).or_throw();
    ledger_.end();
  });
}

TEST_F(CallMemoStress, WhileABreakerOpensAndCloses) {
  add("a", 0, 20), add("b", 1, 10);
  ledger_.begin(0), ledger_.end();
  run([&](int64_t i) {
    ledger_.begin(i % 2);
    if (i % 2 == 1)
      bare_.runtime.health().open("live", "a").or_throw();
    else
      bare_.runtime.health().reset("live", "a").or_throw();
    ledger_.end();
  });
}

// Every size has its own class and the cache holds four plans, so plans are evicted all the time.
TEST_F(CallMemoStress, WhilePlansAreEvicted) {
  auto v = std::make_shared<Version>(5);
  yard_kernel_t k = versioned("k", v);
  static const char* const kReads[] = {"n", "m", nullptr};
  k.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_OK; };
  k.verify_reads = kReads;
  bare_.add(k, v).or_throw();
  ledger_.begin(5), ledger_.end();
  alignas(64) int64_t memory[2][64] = {};
  const auto on = live.on(bare_.runtime);
  run([&](int64_t i) {
    const TensorView out(memory[0], DType::i64, {1 + i % 8, 1 + i % 7}),
        x(memory[1], DType::i64, {1 + i % 8, 1 + i % 7});
    on(out, x).or_throw();
  });
  EXPECT_LE(bare_.runtime.stats(false).plans, 8u);
}

TEST_F(CallMemoStress, WhileOverlaysAreReleased) {
  add("a", 0, 20);
  ledger_.begin(0), ledger_.end();
  alignas(64) int64_t memory[2][64] = {};
  const auto on = live.on(bare_.runtime);
  const TensorView out(memory[0], DType::i64, {2, 4}), x(memory[1], DType::i64, {2, 4});
  run([&](int64_t i) {
    Options o;
    o.deny = {"z" + std::to_string(i % 500)};
    on.with(o)(out, x).or_throw();
  });
}

}  // namespace
}  // namespace yard::testing
