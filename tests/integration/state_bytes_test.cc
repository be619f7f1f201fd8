// SPDX-License-Identifier: Apache-2.0
// States that report how many bytes they hold, and states that hold copies of a call's arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/explain.h>

#include <atomic>
#include <deque>
#include <thread>

#include "base/testing_files.h"
#include "base/testing_fork.h"
#include "test_scale.h"
#include "testing.h"

namespace yard::testing {
namespace {

using base::eventually;
using ::testing::HasSubstr;

std::atomic<int> g_made{0}, g_ended{0};
std::atomic<bool> g_wrong_size{false};

// A state that holds a copy of the weight `w`, as one with packed weights would.
struct Copied {
  explicit Copied(plugin::Named options) : counts(options.integer("counts")) { ++g_made; }
  ~Copied() { ++g_ended; }
  void load(plugin::Call, plugin::Named weights) {
    const plugin::Tensor w = weights.tensor("w");
    values.assign(w.data<float>(), w.data<float>() + w.numel());
  }
  int64_t bytes() const { return g_wrong_size ? -1 : counts; }
  int64_t counts;
  std::vector<float> values;
};

void add_copied(plugin::Call call, plugin::Tensor out, plugin::Tensor x, plugin::Tensor) {
  const auto& w = call.state<const Copied>()->values;
  for (int64_t i = 0; i < x.numel(); ++i)
    out.data<float>()[i] = x.data<float>()[i] + w[static_cast<size_t>(i)];
}

void add_plain(plugin::Call, plugin::Tensor out, plugin::Tensor x, plugin::Tensor w) {
  for (int64_t i = 0; i < x.numel(); ++i)
    out.data<float>()[i] = x.data<float>()[i] + w.data<float>()[i];
}

plugin::Kernel copying() {
  return plugin::with_state<Copied>(plugin::Kernel::of<add_copied>("join", "default.copied")
                                        .backend("test")
                                        .priority(500)
                                        .flags(YARD_KERNEL_FAILS_BEFORE_WRITING),
                                    "counts: int = 100", nullptr, "w: T[n]");
}

struct Loaded {
  Loaded(Runtime& runtime, int64_t counts = 100, int64_t n = 4)
      : weight(n), instance(Instance::make(runtime, "join", {{"counts", counts}}).value()) {
    weight.data.assign(weight.data.size(), 1);
    instance.load({{"w", weight.view}}).or_throw();
  }
  Floats weight;
  Instance instance;
};

class StateBytes : public ::testing::Test {
 protected:
  StateBytes() : bare_("join(out!: T[n], x: T[n], w: T[n])") {
    g_made = g_ended = 0;
    g_wrong_size = false;
    bare_.add(copying()).or_throw();
    bare_.add(plugin::Kernel::of<add_plain>("join", "default.plain").backend("test")).or_throw();
  }
  void bound(int64_t bytes) {
    Config config;
    config.settings.state_bytes = bytes;
    bare_.runtime.rules().set(config).or_throw();
  }
  // Returns the kernel that served a call with this weight.
  std::string call(const Instance& instance, const TensorView& weight) {
    Floats out(weight.numel()), x(weight.numel());
    ResultRecord record;
    Options o;
    o.result = &record;
    const Status s = instance.call({out.view, x.view, weight}, o);
    EXPECT_TRUE(s.ok()) << s.to_string();
    result_ = out.data[0];
    return record.kernel;
  }
  std::string call(const Loaded& l) { return call(l.instance, l.weight.view); }
  RuntimeStats stats() const { return bare_.runtime.stats(false); }

  Bare bare_;
  float result_ = 0;
};

TEST_F(StateBytes, AreReported) {
  Loaded a(bare_.runtime), b(bare_.runtime, 50);
  EXPECT_EQ(call(a), "default.copied");
  EXPECT_EQ(call(b), "default.copied");
  EXPECT_EQ(a.instance.state_bytes(), 100u);
  EXPECT_EQ(b.instance.state_bytes(), 50u);
  EXPECT_EQ(stats().states, 2u);
  EXPECT_EQ(stats().state_bytes, 150u);
  EXPECT_THAT(to_json(stats()), HasSubstr("\"states\": 2, \"state_bytes\": 150"));
}

// The state is created once to learn that it does not fit. Other kernels serve the call.
TEST_F(StateBytes, AStateBeyondTheBoundIsRefusedUntilThereIsRoom) {
  bound(250);
  std::deque<Loaded> all;
  for (int i = 0; i < 3; ++i) all.emplace_back(bare_.runtime);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(call(all[0]), "default.copied");
    EXPECT_EQ(call(all[1]), "default.copied");
    EXPECT_EQ(call(all[2]), "default.plain");
  }
  EXPECT_EQ(g_made, 3);
  EXPECT_TRUE(eventually([] { return g_ended == 1; }));
  EXPECT_EQ(stats().state_bytes, 200u);
  EXPECT_EQ(all[2].instance.states(), 0u);
  Floats out(4), x(4);
  Options o;
  o.force = "default.copied";
  EXPECT_THAT(all[2].instance.call({out.view, x.view, all[2].weight.view}, o).to_string(),
              HasSubstr("its state would hold 100 bytes, and all states together hold at most 250 "
                        "(state_bytes)"));
  // There is room when another state ends or when the bound is raised.
  all.pop_front();
  EXPECT_EQ(call(all[1]), "default.copied");
  EXPECT_EQ(g_made, 4);
  Loaded& last = all.emplace_back(bare_.runtime);
  EXPECT_EQ(call(last), "default.plain");
  bound(300);
  EXPECT_EQ(call(last), "default.copied");
  // Lowering the bound ends no state.
  bound(99);
  EXPECT_EQ(call(last), "default.copied");
  EXPECT_EQ(stats().state_bytes, 300u);
}

TEST_F(StateBytes, AWrongSizeIsAFault) {
  g_wrong_size = true;
  Loaded l(bare_.runtime);
  EXPECT_EQ(call(l), "default.plain");
  EXPECT_TRUE(eventually([] { return g_made == g_ended; }));
  EXPECT_EQ(l.instance.states(), 0u);
}

TEST_F(StateBytes, AHugeSizeIsRefused) {
  Loaded l(bare_.runtime, INT64_MAX), usual(bare_.runtime);
  EXPECT_EQ(call(l), "default.plain");
  EXPECT_EQ(call(usual), "default.copied");
  EXPECT_EQ(stats().state_bytes, 100u);
}

TEST_F(StateBytes, GoWithTheirKernelAndAreMadeAgainWithIt) {
  Loaded l(bare_.runtime);
  call(l);
  bare_.remove("join", "default.copied").or_throw();
  EXPECT_EQ(stats().state_bytes, 0u);
  EXPECT_EQ(g_ended, 1);
  EXPECT_EQ(call(l), "default.plain");
  bare_.add(copying()).or_throw();
  EXPECT_EQ(call(l), "default.copied");
  EXPECT_EQ(stats().state_bytes, 100u);
}

TEST_F(StateBytes, StayWithinTheBoundUnderThreads) {
  constexpr int kThreads = 3;
  bound(1000);
  std::deque<Loaded> all;
  for (int i = 0; i < 30; ++i) all.emplace_back(bare_.runtime);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      Floats out(4), x(4);
      for (int k = 0; k < scaled(2000); ++k) {
        Loaded& l = all[static_cast<size_t>((k * 7 + t * 11) % 30)];
        ASSERT_TRUE(l.instance.call({out.view, x.view, l.weight.view}).ok());
        ASSERT_EQ(out.data[0], 1);
        if (k % 50 == 0) l.instance.load({{"w", l.weight.view}}).or_throw();
        ASSERT_LE(stats().state_bytes, 1000u);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(eventually([&] { return static_cast<size_t>(g_made - g_ended) == stats().states; }));
  EXPECT_EQ(stats().state_bytes, 100 * stats().states);
  all.clear();
  EXPECT_EQ(g_made, g_ended);
  EXPECT_EQ(stats().state_bytes, 0u);
}

#if !defined(YARD_UNDER_TSAN)  // TSan does not survive threads after a fork
TEST_F(StateBytes, OfAForkedChildAreItsOwn) {
  bound(300);
  std::deque<Loaded> all;
  for (int i = 0; i < 5; ++i) call(all.emplace_back(bare_.runtime));
  EXPECT_TRUE(base::true_in_child([&] {
    if (stats().state_bytes != 0) return false;
    for (size_t i = 5; i-- > 0;)
      if (call(all[i]) != (i >= 2 ? "default.copied" : "default.plain")) return false;
    return stats().state_bytes == 300;
  }));
  EXPECT_EQ(stats().state_bytes, 300u);
}
#endif

// A weight with the name of a parameter replaces that argument.
TEST_F(StateBytes, ServeOnlyCallsWithTheWeightThatWasLoaded) {
  Loaded l(bare_.runtime, 100, 8);
  EXPECT_EQ(call(l), "default.copied");
  Floats other(8);
  other.data.assign(8, 5);
  EXPECT_EQ(call(l.instance, other.view), "default.plain");
  EXPECT_EQ(result_, 5);
  // Other views of the same memory do not match the weight.
  EXPECT_EQ(call(l.instance, TensorView(l.weight.data.data(), DType::f32, {4})), "default.plain");
  EXPECT_EQ(call(l.instance, TensorView(l.weight.data.data(), DType::f32, {4}, {2})),
            "default.plain");
  EXPECT_EQ(call(l), "default.copied");
  EXPECT_EQ(g_made, 1);
  Options o;
  o.force = "default.copied";
  Floats out(8), x(8);
  EXPECT_THAT(l.instance.call({out.view, x.view, other.view}, o).to_string(),
              HasSubstr("it was prepared for the 'w' that was loaded"));
}

TEST_F(StateBytes, AWeightThatChangesIsLoadedAgain) {
  Loaded l(bare_.runtime);
  call(l);
  l.weight.data[0] = 7;
  call(l);
  EXPECT_EQ(result_, 1) << "the contents when it was loaded";
  l.instance.load({{"w", l.weight.view}}).or_throw();
  call(l);
  EXPECT_EQ(result_, 7);
}

TEST_F(StateBytes, WithoutLoadedWeightsTheKernelIsNotSelected) {
  Floats out(4), x(4), w(4);
  ResultRecord record;
  Options o;
  o.result = &record;
  const std::initializer_list<Arg> args = {out.view, x.view, w.view};
  ASSERT_TRUE(bare_.runtime.call("join", args, o).ok());
  EXPECT_STREQ(record.kernel, "default.plain");
  EXPECT_EQ(record.attempts, 1);
  Instance empty = Instance::make(bare_.runtime, "join").value();
  EXPECT_EQ(call(empty, w.view), "default.plain");
  EXPECT_EQ(g_made, 0);
  EXPECT_THAT(bare_.runtime.explain("join(f32[4], f32[4])").value().to_text(),
              HasSubstr("not_loaded"));
  EXPECT_EQ(bare_.runtime.explain("join(f32[4], f32[4])@cpu+loaded").value().selected,
            "default.copied");
  // The refusal ends when the weights are loaded, and returns when they are removed.
  empty.load({{"w", w.view}}).or_throw();
  EXPECT_EQ(call(empty, w.view), "default.copied");
  empty.load({}).or_throw();
  EXPECT_EQ(call(empty, w.view), "default.plain");
}

}  // namespace
}  // namespace yard::testing
