// SPDX-License-Identifier: Apache-2.0
// The plugins of examples/plugins are loaded from their files, called, verified and unloaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/bound.h>
#include <yard/trace.h>
#include <yard/verify.h>

#include <atomic>
#include <cmath>
#include <random>
#include <thread>

#include "plugin_files.h"

namespace yard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// A runtime that knows one of the plugins by its file.
class Example : public ::testing::Test {
 protected:
  explicit Example(const char* name, const char* op)
      : name_(name), op_(op), runtime_(alone({built_plugin(name)})) {}

  void verify_it(size_t least, int64_t max_elements = VerifyOptions().max_elements) {
    VerifyOptions options;
    options.op = op_, options.max_elements = max_elements;
    const VerifyReport report = verify(runtime_, options).value();
    EXPECT_EQ(report.kernels.size(), 2u);
    for (const KernelReport& k : report.kernels) {
      EXPECT_GE(k.passed, least) << k.id;
      for (const KernelReport::Case& c : k.failures)
        ADD_FAILURE() << k.id << " " << c.call << " with " << to_string(c.contents) << ": "
                      << c.what;
    }
  }
  // Unloads the plugin. Nothing that the build linked into it keeps it in the process.
  void unload_it() {
    runtime_.plugins().load(name_).or_throw();
    runtime_.plugins().unload(name_).value().wait().or_throw();
    const PluginInfo info = info_of(runtime_, name_);
    EXPECT_EQ(info.state, PluginState::kUnloaded) << to_string(info.state) << info.detail;
  }

  const char *name_, *op_;
  Runtime runtime_;
};

struct CExample : Example {
  CExample() : Example("example_c", "leaky_relu") {}
};
struct CppExample : Example {
  CppExample() : Example("example_cpp", "softcap") {}
};

TEST_F(CExample, Computes) {
  std::vector<float> x = {1, -2, 0, -0.5f}, out(4);
  runtime_.call("leaky_relu", {view(out, {2, 2}), view(x, {2, 2}), 0.25f}).or_throw();
  EXPECT_THAT(out, ElementsAre(1, -0.5f, 0, -0.125f));
  // Only the reference kernel takes every second element.
  const TensorView apart(x.data(), DType::f32, {2}, {2});
  runtime_.call("leaky_relu", {TensorView(out.data(), DType::f32, {2}, {2}), apart, 3.0f})
      .or_throw();
  EXPECT_THAT(out, ElementsAre(1, -0.5f, 0, -0.125f));
}

TEST_F(CExample, GivesItsOwnReasonForRejectedCalls) {
  EXPECT_EQ(runtime_.resolve("leaky_relu(f32[2,8])").value().kernel, "default.example_c");
  EXPECT_EQ(runtime_.resolve("leaky_relu(f32[2,8;16,1])").value().kernel, "reference.example_c");
  const Explanation e = runtime_.explain("leaky_relu(f32[65536,65536])").value();
  EXPECT_EQ(e.selected, "reference.example_c");
  EXPECT_THAT(e.to_text(), HasSubstr("65536 rows of 65536 elements are more than the 2147483647"));
}

TEST_F(CExample, IsRightAndCanBeUnloaded) {
  verify_it(100);
  unload_it();
}

TEST_F(CppExample, Computes) {
  std::vector<float> x = {0, 30, -1e9f}, out(3);
  runtime_.call("softcap", {view(out, {1, 3}), view(x, {1, 3})}).or_throw();
  EXPECT_EQ(out[0], 0);
  EXPECT_FLOAT_EQ(out[1], 30 * std::tanh(1.0f));
  EXPECT_EQ(out[2], -30);
  EXPECT_EQ(runtime_.resolve("softcap(f32[1,3])").value().kernel, "default.example_cpp");
}

TEST_F(CppExample, IsRightAndCanBeUnloaded) {
  verify_it(100);
  unload_it();
}

TEST(Examples, TheOneInCppHasFewerThanFortyLines) {
  std::ifstream file(YARD_SOURCE_DIR "/examples/plugins/cpp_plugin.cc");
  size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  EXPECT_GT(lines, 0u);
  EXPECT_LT(lines, 40u);
}

TEST(PluginBuild, PluginsThatUseTheStandardLibraryCanBeUnloadedAndReloaded) {
  Runtime runtime(alone({built_plugin("uses_regex")}));
  for (int round = 0; round < 3; ++round) {
    runtime.plugins().load("uses_regex").or_throw();
    EXPECT_EQ(ask(runtime, "uses_regex"), 7);
    runtime.plugins().unload("uses_regex").value().wait().or_throw();
    const PluginInfo info = info_of(runtime, "uses_regex");
    ASSERT_EQ(info.state, PluginState::kUnloaded) << to_string(info.state) << info.detail;
  }
}

// ---- Sliding-window attention with sinks ----

constexpr int64_t kBatch = 2, kQueries = 5, kKeys = 9, kHeads = 4, kShared = 2, kWidth = 3,
                  kValues = 2;
constexpr const char* kAttention = "flash_attention_2_swa_sink";

class SwaSink : public Example {
 protected:
  SwaSink() : Example("swa_sink", kAttention) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (std::vector<float>* v : {&q_, &k_, &v_, &sinks_})
      for (float& f : *v) f = normal(random);
  }
  Instance instance(std::initializer_list<Arg> options = {}) {
    return Instance::make(runtime_, kAttention, options).value();
  }
  Status call(const Instance& i, const char* kernel = "") {
    Options options;
    options.force = kernel;
    return i.call(
        {view(out_, {kBatch, kQueries, kHeads, kValues}),
         view(q_, {kBatch, kQueries, kHeads, kWidth}), view(k_, {kBatch, kKeys, kShared, kWidth}),
         view(v_, {kBatch, kKeys, kShared, kValues})},
        options);
  }
  // Computes the result in the other direction: every key is asked whether a query sees it.
  float expected(int64_t b, int64_t s, int64_t h, int64_t d, int64_t window, bool sinks) const {
    const int64_t shared = h * kShared / kHeads, at = s + kKeys - kQueries;
    double sum = sinks ? std::exp(double{sinks_[size_t(h)]}) : 0, value = 0;
    for (int64_t j = 0; j < kKeys; ++j) {
      if (j > at || (window > 0 && at - j >= window)) continue;
      double score = 0;
      for (int64_t w = 0; w < kWidth; ++w)
        score += double{q_[size_t(((b * kQueries + s) * kHeads + h) * kWidth + w)]} *
                 k_[size_t(((b * kKeys + j) * kShared + shared) * kWidth + w)];
      const double weight = std::exp(score / std::sqrt(double{kWidth}));
      sum += weight;
      value += weight * v_[size_t(((b * kKeys + j) * kShared + shared) * kValues + d)];
    }
    return float(value / sum);
  }
  void expect_all(int64_t window, bool sinks) const {
    size_t i = 0;
    for (int64_t b = 0; b < kBatch; ++b)
      for (int64_t s = 0; s < kQueries; ++s)
        for (int64_t h = 0; h < kHeads; ++h)
          for (int64_t d = 0; d < kValues; ++d, ++i)
            ASSERT_THAT(out_[i], FloatNear(expected(b, s, h, d, window, sinks), 1e-5f))
                << "batch " << b << ", query " << s << ", head " << h << ", window " << window;
  }

  std::vector<float> q_ = std::vector<float>(kBatch * kQueries * kHeads * kWidth);
  std::vector<float> k_ = std::vector<float>(kBatch * kKeys * kShared * kWidth);
  std::vector<float> v_ = std::vector<float>(kBatch * kKeys * kShared * kValues);
  std::vector<float> sinks_ = std::vector<float>(kHeads);
  std::vector<float> out_ = std::vector<float>(kBatch * kQueries * kHeads * kValues);
};

TEST_F(SwaSink, BothKernelsSeeTheWindowAndTheSinks) {
  for (const char* kernel : {"reference.swa_sink", "default.swa_sink"})
    for (int64_t window : {-1, 1, 3, 100})
      for (bool sinks : {false, true}) {
        Instance i = instance({{"sliding_window", window}, {"s_aux_enable", sinks}});
        i.load({{"s_aux", view(sinks_, {kHeads})}}).or_throw();
        call(i, kernel).or_throw();
        expect_all(window, sinks);
        EXPECT_EQ(i.states(), 1u);
      }
}

TEST_F(SwaSink, MatchesPrecomputedValues) {
  // With one query and two keys of equal scores, each key has weight 1/2. A sink with the same
  // score leaves 1/3.
  std::vector<float> q = {0}, k = {1, 2}, v = {6, 12}, out(1), sink = {0};
  const auto run = [&](const Instance& i) {
    i.call({view(out, {1, 1, 1, 1}), view(q, {1, 1, 1, 1}), view(k, {1, 2, 1, 1}),
            view(v, {1, 2, 1, 1})})
        .or_throw();
    return out[0];
  };
  EXPECT_FLOAT_EQ(run(instance()), 9);
  EXPECT_FLOAT_EQ(run(instance({{"sliding_window", 1}})), 12);
  Instance with_sink = instance({{"s_aux_enable", true}});
  with_sink.load({{"s_aux", view(sink, {1})}}).or_throw();
  EXPECT_FLOAT_EQ(run(with_sink), 6);
}

TEST_F(SwaSink, InvalidOptionsAndWeightsAreReported) {
  const auto unknown = Instance::make(runtime_, kAttention, {{"sliding_windw", 3}});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.status().to_string(), HasSubstr("did you mean 'sliding_window'?"));
  Instance i = instance({{"s_aux_enable", true}});
  EXPECT_THAT(call(i).to_string(), HasSubstr("no s_aux was loaded"));
  i.load({{"s_aux", view(sinks_, {2, 2})}}).or_throw();
  EXPECT_THAT(call(i).to_string(), HasSubstr("s_aux must be f32[4]"));
  EXPECT_EQ(i.states(), 0u);
  i.load({{"s_aux", view(sinks_, {kHeads})}}).or_throw();
  call(i).or_throw();
  expect_all(-1, true);
}

TEST_F(SwaSink, ATraceShowsItsState) {
  Instance i = instance({{"sliding_window", 3}});
  const TraceScope trace;
  call(i).or_throw();
  ASSERT_EQ(trace.nodes().size(), 1u);
  EXPECT_EQ(trace.nodes()[0].note, "window 3, without sinks");
}

TEST_F(SwaSink, HeadsThatCannotBeSharedAreTheCallersError) {
  std::vector<float> x(64);
  const Status s = runtime_.call(kAttention, {view(out_, {1, 1, 3, 2}), view(x, {1, 1, 3, 2}),
                                              view(x, {1, 1, 2, 2}), view(x, {1, 1, 2, 2})});
  EXPECT_THAT(s.to_string(), HasSubstr("3 heads of q cannot share 2 heads of k and v"));
}

// Each call of an instance holds a state of the plugin's kernel.
TEST_F(SwaSink, UnloadFinishesWhileCallsGoOn) {
  const Instance i = instance({{"sliding_window", 3}});
  std::atomic<bool> end{false};
  std::atomic<int> served{0};
  std::thread caller([&] {
    while (!end) served += call(i).ok();
  });
  for (int n = 0; n < 30 && !HasFailure(); ++n) {
    const int before = served;
    runtime_.plugins().load(name_).or_throw();
    while (served == before) std::this_thread::yield();
    const Status s = runtime_.plugins().unload(name_).value().wait(std::chrono::seconds(10));
    EXPECT_TRUE(s.ok()) << s.to_string() << ", unload " << n;
    EXPECT_EQ(info_of(runtime_, name_).state, PluginState::kUnloaded);
  }
  end = true;
  caller.join();
}

TEST_F(SwaSink, IsRightAndCanBeUnloaded) {
  verify_it(60, 1024);  // the work grows with the square of the sizes
  unload_it();
}

TEST_F(SwaSink, StatesEndBeforeThePluginIsClosed) {
  Instance i = instance({{"sliding_window", 2}});
  call(i).or_throw();
  EXPECT_EQ(i.states(), 1u);
  unload_it();
  EXPECT_EQ(i.states(), 0u);
  EXPECT_FALSE(call(i).ok());
}

}  // namespace
}  // namespace yard::testing
