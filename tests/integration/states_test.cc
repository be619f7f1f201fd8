// SPDX-License-Identifier: Apache-2.0
// Tests kernels with state: states are created from options, loaded, prepared, run and destroyed in
// this order, and each is destroyed once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/bound.h>

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/testing_files.h"
#include "base/testing_fork.h"
#include "test_scale.h"
#include "testing.h"

namespace yard::testing {
namespace {

using base::eventually;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Kept {
  double by = 0;
  std::string mode;
  const yard_tensor_t* bias = nullptr;
  bool prepared = false;
};

struct Log {
  std::atomic<int> created{0}, destroyed{0}, loaded{0}, prepared{0};
  std::atomic<const char*> fail_at{""};
  enum Gate { kOpen, kClosed, kReached };
  std::atomic<Gate> gate{kOpen};  // create() waits until it is open
  std::atomic<bool> destroy_waits{false}, destroy_ends_its_thread{false};

  // Waits for another thread to destroy all states.
  bool all_destroyed() {
    return eventually([this] { return created == destroyed; });
  }
};
Log g_log;

int32_t create(yard_call_t* call, const yard_named_value_t* o, uint32_t n, void** state) {
  if (g_log.fail_at.load() == std::string_view("create"))
    return plugin::Call(call).fail(YARD_TRANSIENT, "no room");
  EXPECT_EQ(n, 2u);
  EXPECT_STREQ(o[0].name, "by");
  if (g_log.gate != Log::kOpen) {
    g_log.gate = Log::kReached;
    while (g_log.gate != Log::kOpen) std::this_thread::yield();
  }
  *state = new Kept{o[0].value.u.f, std::to_string(o[1].value.u.i), nullptr, false};
  ++g_log.created;
  if (g_log.fail_at.load() == std::string_view("throw")) {
    delete static_cast<Kept*>(*state);
    --g_log.created;
    throw std::runtime_error("thrown by create");
  }
  return YARD_OK;
}
int32_t load(yard_call_t* call, const yard_named_value_t* w, uint32_t n) {
  ++g_log.loaded;
  if (g_log.fail_at.load() == std::string_view("load"))
    return plugin::Call(call).fail(YARD_FAULT, "bad weights");
  for (uint32_t i = 0; i < n; ++i)
    if (w[i].name == std::string_view("bias"))
      static_cast<Kept*>(call->state)->bias = w[i].value.u.tensor;
  return YARD_OK;
}
int32_t prepare(yard_call_t* call, const yard_value_t*, uint32_t) {
  ++g_log.prepared;
  if (g_log.fail_at.load() == std::string_view("prepare"))
    return plugin::Call(call).fail(YARD_FAULT, "cannot prepare");
  static_cast<Kept*>(call->state)->prepared = true;
  return YARD_OK;
}
int32_t run(yard_call_t* call, const yard_value_t* a, uint32_t) {
  const auto& kept = *static_cast<const Kept*>(call->state);
  EXPECT_TRUE(kept.prepared);
  const auto* x = static_cast<const float*>(a[1].u.tensor->data);
  auto* out = static_cast<float*>(a[0].u.tensor->data);
  for (int64_t i = 0; i < a[1].u.tensor->shape[0]; ++i) {
    out[i] = x[i] * static_cast<float>(kept.by);
    if (kept.bias != nullptr) out[i] += static_cast<const float*>(kept.bias->data)[0];
  }
  return YARD_OK;
}
void destroy(void*, void* state) {
  while (g_log.destroy_waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  delete static_cast<Kept*>(state);
  ++g_log.destroyed;
  if (g_log.destroy_ends_its_thread) pthread_exit(nullptr);
}

const char* const kFields[] = {"n", nullptr};

yard_kernel_t stateful() {
  yard_kernel_t k = kernel_of("copy", "default.scale", 1, 9);
  k.create = create, k.load = load, k.prepare = prepare, k.run = run, k.destroy = destroy;
  k.state_fields = kFields;
  k.options_schema = "by: float = 2, mode: enum{fast, exact} = fast";
  return k;
}

class States : public ::testing::Test {
 protected:
  States() {
    g_log.created = g_log.destroyed = g_log.loaded = g_log.prepared = 0;
    g_log.fail_at = "";
    bare_.add(stateful()).or_throw();
    for (float& f : x_.data) f = 3;
  }
  Instance instance(std::initializer_list<Arg> options = {}) {
    return Instance::make(bare_.runtime, "copy", options).value();
  }
  Bare bare_;
  Floats out_{4}, x_{4};
};

TEST_F(States, OfPlainCallsHaveTheDefaults) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(bare_.runtime.call("copy", {out_.view, x_.view}).ok());
    EXPECT_EQ(out_.data[0], 6);
  }
  EXPECT_EQ(g_log.created, 1);
  EXPECT_EQ(g_log.loaded, 0);
  EXPECT_EQ(g_log.prepared, 1);
  EXPECT_EQ(g_log.destroyed, 0);
  bare_.remove("copy", "default.scale").or_throw();
  EXPECT_EQ(g_log.destroyed, 1);
}

TEST_F(States, AreMadeFromOptionsAndWeights) {
  float bias = 0.5;
  const TensorView b(&bias, DType::f32, {1});
  {
    Instance by5 = instance({{"by", 5}, {"mode", "exact"}});
    by5.load({{"bias", b}}).or_throw();
    ASSERT_TRUE(by5.call({out_.view, x_.view}).ok());
    EXPECT_EQ(out_.data[0], 15.5f);
    Instance by7 = instance({{"by", 7.0}});
    ASSERT_TRUE(by7.call({out_.view, x_.view}).ok());
    EXPECT_EQ(out_.data[0], 21);
    ASSERT_TRUE(by5.call({out_.view, x_.view}).ok());
    EXPECT_EQ(out_.data[0], 15.5f);
    EXPECT_EQ(g_log.created, 2);
    // Other weights need another state.
    bias = 2;
    by5.load({{"bias", b}}).or_throw();
    EXPECT_EQ(g_log.destroyed, 1);
    ASSERT_TRUE(by5.call({out_.view, x_.view}).ok());
    EXPECT_EQ(out_.data[0], 17);
  }
  EXPECT_EQ(g_log.created, 3);
  EXPECT_EQ(g_log.destroyed, 3);
}

TEST_F(States, AreKeptByTheFieldsTheKernelNames) {
  Instance i = instance();
  const Floats out(4), x(4), out8(8), x8(8);
  for (int k = 0; k < 3; ++k) {
    ASSERT_TRUE(i.call({out.view, x.view}).ok());
    ASSERT_TRUE(i.call({out8.view, x8.view}).ok());
  }
  EXPECT_EQ(g_log.created, 2);
  EXPECT_EQ(i.states(), 2u);
}

TEST_F(States, AreBounded) {
  {
    Instance i = instance();
    for (int64_t n = 1; n <= 200; ++n) {
      const Floats out(n), x(n);
      ASSERT_TRUE(i.call({out.view, x.view}).ok());
    }
    EXPECT_EQ(i.states(), 64u);
    EXPECT_TRUE(eventually([] { return g_log.destroyed == 200 - 64; }));
  }
  EXPECT_TRUE(g_log.all_destroyed());
}

// There are more hanging destroy() calls than threads for them.
TEST_F(States, ADestroyThatHangsStopsNoCallAndNoRuntime) {
  g_log.destroy_waits = true;
  const auto begin = steady_clock::now();
  {
    Bare other;
    other.add(stateful()).or_throw();
    for (int64_t n = 1; n <= 100; ++n) {
      const Floats out(n), x(n);
      ASSERT_TRUE(other.runtime.call("copy", {out.view, x.view}).ok());
    }
    Instance of_another = instance();
    ASSERT_TRUE(of_another.call({out_.view, x_.view}).ok());
    EXPECT_EQ(g_log.destroyed, 0);
  }
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(20)) << "64 states end with it";
  g_log.destroy_waits = false;
  EXPECT_TRUE(g_log.all_destroyed());
  EXPECT_EQ(g_log.destroyed, 101);
}

TEST_F(States, ADestroyMayEndItsThread) {
  g_log.destroy_ends_its_thread = true;
  {
    Instance i = instance();
    for (int64_t n = 1; n <= 100; ++n) {
      const Floats out(n), x(n);
      ASSERT_TRUE(i.call({out.view, x.view}).ok());
    }
    EXPECT_TRUE(eventually([] { return g_log.destroyed == 100 - 64; }));
  }
  EXPECT_TRUE(g_log.all_destroyed());
  g_log.destroy_ends_its_thread = false;
  const auto removed =
      bare_.runtime.apply(std::move(Changes().remove_kernel("copy", "default.scale")));
  EXPECT_TRUE(removed.value().wait(std::chrono::seconds(20)).ok());
}

TEST_F(States, EndAlsoWhenALaterStepFails) {
  for (const char* at : {"create", "throw", "load", "prepare"}) {
    const int created = g_log.created, destroyed = g_log.destroyed;
    g_log.fail_at = at;
    float bias = 1;
    Instance i = instance();
    i.load({{"bias", TensorView(&bias, DType::f32, {1})}}).or_throw();
    const Status s = i.call({out_.view, x_.view});
    EXPECT_FALSE(s.ok()) << at;
    EXPECT_TRUE(eventually([&] { return g_log.created - created == g_log.destroyed - destroyed; }))
        << at;
    EXPECT_EQ(i.states(), 0u);
  }
}

TEST_F(States, AnotherKernelServesWhatOneDeclines) {
  yard_kernel_t plain = kernel_of("copy", "default.plain", 2, 1);
  bare_.add(plain).or_throw();
  g_log.fail_at = "prepare";
  ASSERT_TRUE(bare_.runtime.call("copy", {out_.view, x_.view}).ok());
  EXPECT_EQ(t_ran, 2);
  EXPECT_TRUE(g_log.all_destroyed());
}

TEST_F(States, AWrongEnumOptionListsTheAllowedWords) {
  const auto why = [&](const char* word) {
    return Instance::make(bare_.runtime, "copy", {{"mode", word}}).status().to_string();
  };
  EXPECT_THAT(why("exotic"),
              HasSubstr("invalid option 'mode': expected fast or exact, got \"exotic\""));
  EXPECT_THAT(why("exakt"), HasSubstr("did you mean 'exact'?"));
}

TEST_F(States, AMisspeltWeightIsAnError) {
  yard_kernel_t k = stateful();
  k.id = "default.declares", k.weights_schema = "bias?: f32[n], scale?: f32[n]";
  bare_.remove("copy", "default.scale").or_throw();
  bare_.add(k).or_throw();
  Instance i = instance();
  const Status s = i.load({{"bais", x_.view}});
  EXPECT_EQ(s.code(), Code::kInvalidArgument);
  EXPECT_THAT(s.to_string(), HasSubstr("default.declares: it has no weight 'bais'; did you mean "
                                       "'bias'?"));
  ASSERT_TRUE(i.call({out_.view, x_.view}).ok());
  EXPECT_EQ(g_log.loaded, 0) << "nothing was loaded";
  EXPECT_TRUE(i.load({{"bias", x_.view}}).ok());
}

TEST_F(States, AKernelWithoutTheWeightDeclines) {
  yard_kernel_t other = stateful();
  other.id = "default.other", other.priority = 500, other.weights_schema = "scale?: f32[n]";
  bare_.add(other).or_throw();
  Instance i = instance();
  ASSERT_TRUE(i.load({{"bias", x_.view}}).ok()) << "default.scale declares nothing";
  ResultRecord record;
  Options o;
  o.result = &record;
  ASSERT_TRUE(i.call({out_.view, x_.view}, o).ok());
  EXPECT_STREQ(record.kernel, "default.scale");
}

TEST_F(States, WrongOptionsAreNamed) {
  const auto why = [&](std::initializer_list<Arg> o) {
    return Instance::make(bare_.runtime, "copy", o).status().to_string();
  };
  EXPECT_THAT(why({{"bye", 5}}), HasSubstr("did you mean 'by'?"));
  EXPECT_THAT(why({{"by", "five"}}), HasSubstr("invalid option 'by': expected a float"));
  EXPECT_THAT(why({{"by", 5}, {"by", 6}}), HasSubstr("twice"));
  EXPECT_THAT(why({{"by", x_.view}}), HasSubstr("weights"));
  EXPECT_THAT(Instance::make(bare_.runtime, "copi").status().to_string(), HasSubstr("copy"));
}

TEST_F(States, DescriptorsThatCannotWorkAreRefused) {
  const auto why = [&](auto change) {
    yard_kernel_t k = stateful();
    k.id = "default.other";
    change(k);
    return bare_.add(k).to_string();
  };
  EXPECT_THAT(why([](auto& k) { k.destroy = nullptr; }), HasSubstr("never end"));
  EXPECT_THAT(why([](auto& k) { k.create = nullptr; }), HasSubstr("no create"));
  EXPECT_THAT(why([](auto& k) { k.create = nullptr, k.destroy = nullptr; }), HasSubstr("load"));
  EXPECT_THAT(why([](auto& k) {
                k.create = nullptr, k.destroy = nullptr, k.load = nullptr, k.prepare = nullptr;
                k.state_fields = nullptr, k.options_schema = nullptr;
                k.state_bytes = [](void*, const void*) { return int64_t{0}; };
              }),
              HasSubstr("state_bytes but no create"));
  EXPECT_THAT(why([](auto& k) { k.options_schema = "by: flaot"; }), HasSubstr("options_schema"));
  EXPECT_THAT(why([](auto& k) { k.options_schema = "x: T[n]"; }), HasSubstr("weights"));
  static const char* const fields[] = {"m", nullptr};
  EXPECT_THAT(why([](auto& k) { k.state_fields = fields; }), HasSubstr("state_fields"));
}

TEST_F(States, EndWhenTheirKernelIsRemovedAndNoCallUsesThem) {
  Instance i = instance();
  ASSERT_TRUE(i.call({out_.view, x_.view}).ok());
  Changes c;
  c.remove_kernel("copy", "default.scale");
  const Ticket t = bare_.runtime.apply(std::move(c)).value();
  EXPECT_EQ(g_log.destroyed, 1);
  EXPECT_TRUE(t.done());
  EXPECT_EQ(i.call({out_.view, x_.view}).code(), Code::kNoKernel);
}

TEST_F(States, RemovalFinishesThoughACallCreatesItsStateDuringIt) {
  Instance i = instance();
  for (const bool plain : {false, true}) {
    if (plain) bare_.add(stateful()).or_throw();
    g_log.gate = Log::kClosed;
    std::thread caller([&] {
      if (plain)
        EXPECT_TRUE(bare_.runtime.call("copy", {out_.view, x_.view}).ok());
      else
        EXPECT_TRUE(i.call({out_.view, x_.view}).ok());
    });
    while (g_log.gate != Log::kReached) std::this_thread::yield();
    Changes c;
    c.remove_kernel("copy", "default.scale");
    const Ticket ticket = bare_.runtime.apply(std::move(c)).value();
    EXPECT_FALSE(ticket.done());
    g_log.gate = Log::kOpen;
    caller.join();
    EXPECT_EQ(i.states(), 0u);
    EXPECT_TRUE(g_log.all_destroyed());
    EXPECT_TRUE(ticket.wait(std::chrono::seconds(20)).ok())
        << (plain ? "plain call" : "call of an instance");
  }
}

TEST_F(States, RemovalFinishesWhileCallsGoOn) {
  Instance i = instance();
  std::atomic<bool> end{false};
  std::atomic<int> served{0};
  std::vector<std::thread> callers;
  for (const bool plain : {false, true})
    callers.emplace_back([&, plain] {
      Floats out(4), x(4);
      while (!end)
        if (plain)
          served += bare_.runtime.call("copy", {out.view, x.view}).ok();
        else
          served += i.call({out.view, x.view}).ok();
    });
  for (int n = 0; n < scaled(100) && !HasFailure(); ++n) {
    const int before = served;
    while (served == before) std::this_thread::yield();
    Changes c;
    c.remove_kernel("copy", "default.scale");
    const Ticket ticket = bare_.runtime.apply(std::move(c)).value();
    EXPECT_TRUE(ticket.wait(std::chrono::seconds(10)).ok()) << "removal " << n;
    bare_.add(stateful()).or_throw();
  }
  end = true;
  for (std::thread& t : callers) t.join();
}

TEST_F(States, UnderThreads) {
  {
    Instance i = instance({{"by", 4}});
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        Floats out(4 + t), x(4 + t);
        x.data[0] = 2;
        for (int k = 0; k < 300; ++k) {
          ASSERT_TRUE(i.call({out.view, x.view}).ok());
          ASSERT_EQ(out.data[0], 8);
        }
      });
    for (int k = 0; k < 20; ++k) i.load({}).or_throw();
    for (std::thread& t : threads) t.join();
  }
  EXPECT_TRUE(g_log.all_destroyed());
}

#if !defined(YARD_UNDER_TSAN)  // TSan does not survive threads after a fork
// A child makes its own states, whatever the threads of its parent were doing. Its weights stay,
// and removing a kernel also removes its states.
TEST_F(States, AreRecreatedInForkedChildren) {
  Floats bias{1};
  bias.data[0] = 10;
  Instance i = instance({{"by", 4.0}});
  i.load({{"bias", bias.view}}).or_throw();
  std::atomic<bool> stop{false}, wrong{false};
  std::thread caller([&] {
    Floats out{4}, x{4};
    while (!stop)
      if (!i.call({out.view, x.view}).ok()) wrong = true;
  });
  for (int n = 0; n < 50 && !HasFailure(); ++n)
    EXPECT_TRUE(base::true_in_child([&] {
      const int made = g_log.created;
      Options with;
      with.instance = &i;
      const Status s = n % 2 == 0 ? i.call({out_.view, x_.view})
                                  : bare_.runtime.call("copy", {out_.view, x_.view}, with);
      if (!s.ok() || out_.data[0] != 22) return false;
      if (i.states() != 1 || g_log.created != made + 1) return false;
      Changes c;
      c.remove_kernel("copy", "default.scale");
      return bare_.runtime.apply(std::move(c)).ok() && i.states() == 0;
    }));
  stop = true;
  caller.join();
  EXPECT_FALSE(wrong);
}
#endif

TEST_F(States, AreUsedByFrozenHandlesToo) {
  constexpr Op<void(Out, In, int64_t)> copy{"copy"};
  detail::Site* site = copy.on(bare_.runtime).site();
  const yard_value_t args[3] = {value_of(out_.view), value_of(x_.view), Value(0).c()};
  auto frozen = detail::make_frozen(site, args).value();
  ASSERT_EQ(frozen.typed, nullptr);
  ASSERT_EQ(detail::call_frozen(frozen, args, 3), nullptr);
  EXPECT_EQ(out_.data[0], 6);
}

}  // namespace
}  // namespace yard::testing
