// SPDX-License-Identifier: Apache-2.0
// Tests that each setting of a rule file has an effect. Each setting gets two values, and the test
// observes a difference from outside. The table of settings is compared with the one in
// docs/reference/rules.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "base/testing_files.h"
#include "fault.h"
#include "plugin_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr Op<void(Out, In)> step{"step"};
// Long enough for everything that happens at once.
constexpr std::chrono::milliseconds kLong = 400ms;

// A runtime with a rule file of these settings. Its first kernel fails on command.
class Under {
 public:
  explicit Under(const std::string& settings, const std::string& more = "") {
    RuntimeSettings s;
    s.environment = false;
    s.builtin_backends = false;
    s.plugins.installed = false;
    s.plugins.state_directory = plugins.path();
    runtime.emplace(s);
    Changes c;
    c.add_backend(backend_of("test")).add_op(op_of("step(out!: T[n], x: T[n])"));
    c.add_backend(backend.descriptor()).add_kernel(bad.descriptor());
    c.add_kernel(kernel_of("step", "default.b", 2, 200));
    c.add_kernel(kernel_of("step", "default.c", 3, 100));
    runtime->apply(std::move(c)).or_throw();
    write(settings, more);
    runtime->rules().load(file).or_throw();
  }
  ~Under() { EXPECT_TRUE(runtime->reset().ok()); }

  void write(const std::string& settings, const std::string& more = "") {
    base::replace(file, "version: '1.0'\nsettings: {" + settings + "}\n" + more);
  }
  // Makes a call and returns the number of the kernel that ran, or -1 for an error. Kernel 1 may
  // fail.
  intptr_t call(int64_t n = 4) {
    std::vector<float> to(static_cast<size_t>(n)), from(to.size());
    t_ran = 1;
    const Status status = step.on(*runtime)(TensorView(to.data(), DType::f32, {n}),
                                            TensorView(from.data(), DType::f32, {n}));
    return status.ok() ? t_ran : -1;
  }
  void fault(int times, int64_t n = 4) {
    bad.set({.code = YARD_FAULT});
    for (int i = 0; i < times; ++i) call(n);
  }
  KernelHealth health() const {
    for (KernelHealth& k : runtime->health().report().kernels)
      if (k.kernel == "fault.bad") return k;
    return {};
  }
  KernelHealth::Breaker breaker() const {
    return health().open.empty() ? KernelHealth::Breaker() : health().open[0];
  }
  HealthReport::Breakers totals() const { return runtime->health().report().breakers; }
  bool half_open() const {
    return base::eventually([&] { return breaker().state == BreakerState::kHalfOpen; });
  }
  void close() {
    bad.set({.rate = 0});
    ASSERT_TRUE(half_open());
    EXPECT_TRUE(base::eventually([&] { return call(), totals().closed > 0; }));
  }
  // Opens the breaker `times` times: first by faults, then by failed probes.
  void open(int times) {
    fault(5);
    for (int i = 1; i < times; ++i) {
      ASSERT_TRUE(half_open());
      const uint64_t before = totals().opened;
      ASSERT_TRUE(base::eventually([&] { return call(), totals().opened > before; }));
    }
  }
  std::chrono::nanoseconds rest() const {
    return breaker().until ? *breaker().until - Clock::now() : std::chrono::nanoseconds(-1);
  }
  // Returns how many of `most` nested calls can be made.
  int nested_calls(int most) {
    static Under* under;
    static int left, made;
    under = this, left = most, made = 0;
    yard_kernel_t deep = kernel_of("step", "default.deep", 4, 900);
    deep.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t {
      ++made;
      return --left == 0 || under->call() != -1 ? YARD_OK : YARD_FAULT;
    };
    Changes c;
    c.add_kernel(deep);
    runtime->apply(std::move(c)).or_throw();
    call();
    return made;
  }
  uint64_t kept_state_bytes() {
    static char state;
    yard_kernel_t holding = kernel_of("step", "default.holding", 5, 900);
    holding.create = [](yard_call_t*, const yard_named_value_t*, uint32_t, void** to) -> int32_t {
      return *to = &state, YARD_OK;
    };
    holding.destroy = [](void*, void*) {};
    holding.state_bytes = [](void*, const void*) { return int64_t{100}; };
    Changes c;
    c.add_kernel(holding);
    runtime->apply(std::move(c)).or_throw();
    call();
    return runtime->stats(false).state_bytes;
  }
  std::string chosen() { return runtime->resolve("step(f32[4])").value().kernel; }
  bool follows() {
    runtime->rules().watch(file, {20ms, 10ms}).or_throw();
    std::this_thread::sleep_for(settling);
    write("", "kernel_locks: {step: default.c}\n");
    base::eventually([&] { return chosen() == "default.c"; }, patience);
    runtime->rules().unwatch();
    return chosen() == "default.c";
  }

  std::chrono::milliseconds patience = kLong;  // how long to wait for an effect
  std::chrono::milliseconds settling = 100ms;  // time for the first look of the watcher
  Folder plugins;
  base::TempFolder folder;
  const std::string file = folder / "rules.yaml";
  fault::FaultBackend backend;
  fault::FaultKernel bad{{.op = "step", .id = "fault.bad", .priority = 300}, {.rate = 0}};
  std::optional<Runtime> runtime;
};

struct Row {
  const char* setting;
  const char* one;                    // a value in the file
  const char* other;                  // another value
  std::function<bool(Under&)> holds;  // true under `one`, false under `other`
  const char* more = "";
};

const std::vector<Row>& rows() {
  static const char* const rule = "dispatch_rules: [{operation: step, kernel: default.c}]\n";
  static const char* const classes =
      "dispatch_rules: [{operation: step, kernel: default.c, conditions: {n_in: [1, 2, 3, 4, 5, 6, "
      "7, 8, 9, 10, 11, 12, 13, 14, 15, 16]}}]\n";
  static const std::vector<Row> all = {
      {"mode", "mode: dynamic", "mode: config", [](Under& u) { return u.chosen() == "fault.bad"; },
       rule},
      {"modes", "modes: {step: dynamic}", "modes: {step: config}",
       [](Under& u) { return u.chosen() == "fault.bad"; }, rule},
      {"mode_fallback", "mode: static, mode_fallback: [dynamic]", "mode: static",
       [](Under& u) { return u.runtime->resolve("step(f32[4])").ok(); }},
      {"cache.enabled", "cache: {enabled: false}", "cache: {enabled: true}",
       [](Under& u) { return u.call(), u.runtime->stats(false).plans == 0; }},
      {"cache.size", "cache: {size: 8}", "cache: {size: 100}",
       [](Under& u) {
         for (int64_t n = 1; n < 16; ++n) u.call(n);
         return u.runtime->stats(false).plans <= 8;
       },
       classes},
      {"cache.lifetime", "cache: {lifetime: 20ms}", "cache: {lifetime: 1h}",
       [](Under& u) {
         u.call();
         return base::eventually([&] { return u.runtime->stats(false).plans == 0; }, u.patience);
       }},
      {"max_fallback_attempts", "max_fallback_attempts: 0", "max_fallback_attempts: 1",
       [](Under& u) { return u.bad.set({.code = YARD_FAULT}), u.call() == -1; }},
      {"max_call_depth", "max_call_depth: 8", "max_call_depth: 9",
       [](Under& u) { return u.nested_calls(9) == 8; }},
      {"state_bytes", "state_bytes: 100", "state_bytes: 50",
       [](Under& u) { return u.kept_state_bytes() == 100; }},
      {"labels", "labels: [region]", "labels: [pool]",
       [](Under& u) { return u.runtime->problems().empty(); },
       "dispatch_rules: [{operation: step, kernel: default.c, conditions: {label.region: eu}}]\n"},
      // The program asks for a poll interval of 20 ms and a debounce of 10 ms.
      {"reload.poll_interval", "reload: {poll_interval: 10ms}", "reload: {poll_interval: 1h}",
       [](Under& u) { return u.follows(); }},
      {"reload.debounce", "reload: {debounce: 20ms}", "reload: {debounce: 30s}",
       [](Under& u) { return u.follows(); }},
      {"plugins.require_verified", "plugins: {require_verified: true}",
       "plugins: {require_verified: false}",
       [](Under& u) { return !u.runtime->plugins().load(u.plugins.put("answer")).ok(); }},
      {"telemetry.record", "telemetry: {record: calls.txt}", "",
       [](Under& u) {
         u.call();
         u.runtime->recording().stop().or_throw();
         return std::filesystem::exists(u.folder / "calls.txt");
       }},
      {"events", "events: events.txt", "",
       [](Under& u) {
         u.runtime->rules().load("no such file").ignore();
         return base::eventually(
             [&] {
               std::ifstream file(u.folder / "events.txt");
               const std::string text(std::istreambuf_iterator<char>(file), {});
               return text.find("no such file") != std::string::npos;
             },
             u.patience);
       }},
      {"breaker.enabled", "breaker: {enabled: true}", "breaker: {enabled: false}",
       [](Under& u) { return u.fault(50), u.totals().opened > 0; }},
      {"breaker.failure_threshold", "breaker: {failure_threshold: 2}",
       "breaker: {failure_threshold: 3}",
       [](Under& u) { return u.fault(2), u.totals().opened == 1; }},
      {"breaker.failure_percent", "breaker: {failure_threshold: 1000, failure_min_calls: 10}",
       "breaker: {failure_threshold: 1000, failure_min_calls: 10, failure_percent: 0}",
       [](Under& u) { return u.fault(20), u.totals().opened == 1; }},
      {"breaker.failure_min_calls", "breaker: {failure_threshold: 1000, failure_min_calls: 20}",
       "breaker: {failure_threshold: 1000, failure_min_calls: 21}",
       [](Under& u) { return u.fault(20), u.totals().opened == 1; }},
      {"breaker.failure_window",
       "breaker: {failure_threshold: 1000, failure_min_calls: 10, failure_window: 1h}",
       "breaker: {failure_threshold: 1000, failure_min_calls: 10, failure_window: 5ms}",
       [](Under& u) {
         u.fault(6);
         std::this_thread::sleep_for(20ms);
         return u.fault(6), u.totals().opened == 1;
       }},
      {"breaker.cooldown", "breaker: {cooldown: 5m}", "breaker: {cooldown: 1m}",
       [](Under& u) { return u.fault(5), u.rest() > 2min; }},
      {"breaker.cooldown_growth", "breaker: {cooldown: 50ms, cooldown_growth: 100}",
       "breaker: {cooldown: 50ms, cooldown_growth: 1}",
       [](Under& u) { return u.open(2), u.rest() > 1s; }},
      {"breaker.cooldown_cap", "breaker: {cooldown: 50ms, cooldown_growth: 100, cooldown_cap: 1h}",
       "breaker: {cooldown: 50ms, cooldown_growth: 100, cooldown_cap: 60ms}",
       [](Under& u) { return u.open(2), u.rest() > 1s; }},
      {"breaker.success_threshold",
       "breaker: {cooldown: 50ms, success_threshold: 1, half_open_max_calls: 1}",
       "breaker: {cooldown: 50ms, success_threshold: 100, half_open_max_calls: 1}",
       [](Under& u) {
         u.open(1);
         u.bad.set({.rate = 0});
         EXPECT_TRUE(u.half_open());
         const uint64_t before = u.bad.calls();
         EXPECT_TRUE(base::eventually([&] { return u.call(), u.bad.calls() > before; }));
         return base::eventually([&] { return u.totals().closed == 1; }, u.patience);
       }},
      {"breaker.half_open_max_calls",
       "breaker: {cooldown: 1s, success_threshold: 100, half_open_max_calls: 1}",
       "breaker: {cooldown: 1s, success_threshold: 100, half_open_max_calls: 4}",
       [](Under& u) {
         u.open(1);
         u.bad.set({.rate = 0});
         EXPECT_TRUE(u.half_open());
         const uint64_t before = u.bad.calls();
         EXPECT_TRUE(base::eventually([&] { return u.call(), u.bad.calls() > before; }));
         for (int i = 0; i < 10; ++i) u.call();  // within the same second
         return u.bad.calls() == before + 1;
       }},
  };
  return all;
}

class EachSetting : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Of, EachSetting, ::testing::Range<size_t>(0, rows().size()),
                         [](const auto& row) {
                           std::string name = rows()[row.param].setting;
                           for (char& c : name)
                             if (c == '.') c = '_';
                           return name;
                         });

TEST_P(EachSetting, HasItsDocumentedEffect) {
  const Row& row = rows()[GetParam()];
  bool held = false;
  for (int i = 0; i < 3 && !held; ++i) {
    Under one(row.one, row.more);
    one.patience = 60s;
    held = row.holds(one);
  }
  EXPECT_TRUE(held) << row.one;
  bool holds = true;
  for (const auto settling : {100ms, 1000ms, 5000ms}) {
    Under other(row.other, row.more);
    other.settling = settling;
    holds = row.holds(other);
    if (!holds) break;
  }
  EXPECT_FALSE(holds) << row.other;
}

// LayerZero documents eight settings that its code never reads.
TEST(PeersDefects, EightSettingsAreNeverRead) {
  std::ifstream page(std::string(YARD_SOURCE_DIR) + "/docs/reference/rules.md");
  ASSERT_TRUE(page.is_open());
  std::set<std::string> documented, tried;
  bool here = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) here = line == "## Settings";
    if (here && line.starts_with("| `")) documented.insert(line.substr(3, line.find('`', 3) - 3));
  }
  for (const Row& row : rows()) tried.insert(row.setting);
  EXPECT_EQ(tried, documented);
}

}  // namespace
}  // namespace yard::testing
