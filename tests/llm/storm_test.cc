// SPDX-License-Identifier: Apache-2.0
// A model generates tokens while kernels fail, rules reload, plugins come and go, other threads
// generate, and after fork(). Its tokens equal those of a forward pass in float64.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/testing_fork.h"
#include "fault/fault.h"
#include "generating.h"

namespace llm {
namespace {

using yard::Changes;
using yard::Runtime;
using yard::fault::Behaviour;
using yard::fault::FaultBackend;
using yard::fault::FaultKernel;

const Model& test_model() {
  static const auto* const model = new Model(Gguf::open(TEST_MODEL));
  return *model;
}

const std::vector<Expected>& expected() {
  static const auto* const all = new std::vector<Expected>(read_expected(TEST_EXPECTED));
  return *all;
}

// Repeats `work` on another thread until it is destroyed.
class Meanwhile {
 public:
  explicit Meanwhile(std::function<void(int)> work)
      : thread_([this, work = std::move(work)] {
          for (int i = 0; !ends_; ++i, ++rounds_) work(i);
        }) {}
  ~Meanwhile() {
    ends_ = true;
    thread_.join();
  }
  int rounds() const { return rounds_; }

 private:
  std::atomic<bool> ends_{false};
  std::atomic<int> rounds_{0};
  std::thread thread_;
};

// Checks every prompt until the other thread has made enough rounds.
void expect_tokens(const std::function<bool()>& enough = [] { return true; }) {
  do {
    for (const Expected& e : expected()) ASSERT_EQ(generated(test_model(), e), e.tokens);
  } while (!enough());
}

// Kernels that are selected first for every op of the model, and always fail.
class FailingKernels {
 public:
  explicit FailingKernels(const Behaviour& how) {
    Changes c;
    c.add_backend(backend_.descriptor());
    const std::vector<std::pair<const char*, std::vector<uint32_t>>> ops = {
        {"embedding", {0}},
        {"rms_norm", {0}},
        {"add_rms_norm", {0, 1}},
        {"linear", {0}},
        {"rotary_embedding", {0, 1}},
        {"attention.causal", {0}},
        {"attention.decode", {0}},
        {"silu_and_mul", {0}},
        {"argmax", {0}}};
    for (const auto& [op, outputs] : ops) {
      kernels_.push_back(std::make_unique<FaultKernel>(
          yard::fault::Spec{.op = op, .id = "fault.storm", .outputs = outputs, .priority = 1000},
          how));
      c.add_kernel(kernels_.back()->descriptor());
    }
    Runtime::shared().apply(std::move(c)).or_throw();
  }
  ~FailingKernels() {
    Runtime::shared().apply(std::move(Changes().remove_backend("fault"))).value().wait().or_throw();
  }
  // Returns the failures of the kernel that failed least often.
  uint64_t failures() const {
    uint64_t least = UINT64_MAX;
    for (const auto& k : kernels_) least = std::min(least, k->failures());
    return least;
  }

 private:
  FaultBackend backend_;
  std::vector<std::unique_ptr<FaultKernel>> kernels_;
};

class Storm : public ::testing::Test {
 protected:
  void set_breakers(bool on) {
    yard::BreakerSettings s;
    s.enabled = on;
    s.cooldown = std::chrono::milliseconds(20);
    s.cooldown_growth = 1;
    Runtime::shared().health().set_settings(s).or_throw();
  }
  void set_policy() {
    yard::Policy p;
    p.retry_inplace = yard::Policy::RetryInplace::kSave;
    Runtime::shared().set_policy(p).or_throw();
  }
  void TearDown() override {
    Runtime::shared().set_policy({}).or_throw();
    Runtime::shared().rules().load("").or_throw();
    Runtime::shared().health().set_settings({}).or_throw();
  }
};

TEST_F(Storm, EveryPolicyGivesTheTokens) {
  for (const char* name : kPolicies) {
    SCOPED_TRACE(name);
    const yard::ScopedPolicy in(policy_named(name));
    expect_tokens();
  }
}

TEST_F(Storm, EveryCallFailsFirst) {
  set_breakers(false), set_policy();
  const FailingKernels failing({.after_writing = true, .code = YARD_FAULT});
  expect_tokens();
  EXPECT_GT(failing.failures(), 0u);
}

TEST_F(Storm, KernelsThrowUntilTheirBreakersOpen) {
  set_breakers(true), set_policy();
  const FailingKernels failing({.throws = yard::fault::Throws::kForeign});
  expect_tokens([&] { return failing.failures() > 5; });
}

TEST_F(Storm, RulesReload) {
  const std::string rules[] = {
      "policy: {prefer: vendor}\n",
      "dispatch_rules:\n  - {operation: linear, kernel: reference.cpp}\n",
      "kernel_denies: [vendor.openblas*]\npolicy: {prefer: default}\n",
      "kernel_locks: {rms_norm: reference.cpp, silu_and_mul: reference.cpp}\n",
      "settings: {cache: {enabled: false}}\n"};
  const std::string path = ::testing::TempDir() + "/storm_" + std::to_string(::getpid()) + ".yaml";
  {
    const Meanwhile reload([&](int i) {
      std::ofstream(path) << "version: \"1.0\"\n" << rules[i % 5];
      Runtime::shared().rules().load(path).or_throw();
    });
    expect_tokens([&] { return reload.rounds() > 10; });
  }
  std::remove(path.c_str());
}

TEST_F(Storm, PluginsComeAndGo) {
  const auto rules = yard::parse_config(
      "version: \"1.0\"\nscore:\n  - {kernel: vendor.acme, add: 500, optional: true}\n",
      "storm.yaml");
  ASSERT_TRUE(rules.ok());
  Runtime::shared().rules().set(rules.config).or_throw();
  set_breakers(false), set_policy();
  std::atomic<uint64_t> served{0}, failed{0};
  const Meanwhile change([&](int) {
    yard::Plugins plugins = Runtime::shared().plugins();
    const auto count = [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      for (const yard::KernelInfo& k : Runtime::shared().list().find_kernels("vendor.acme"))
        served += k.calls, failed += k.failures;
    };
    plugins.load(TEST_BROKEN_PLUGIN).or_throw();
    count();
    plugins.replace("acme", TEST_PLUGIN).value().wait().or_throw();
    count();
    plugins.unload("acme").value().wait().or_throw();
    plugins.forget("acme").or_throw();
  });
  expect_tokens([&] { return served > 0 && failed > 0 && change.rounds() > 3; });
}

// Breakers that the code of the old version opened do not exclude the new version.
TEST_F(Storm, ANewVersionOfAPluginServesAtOnce) {
  const auto rules = yard::parse_config(
      "version: \"1.0\"\nscore:\n  - {kernel: vendor.acme, add: 500, optional: true}\n",
      "storm.yaml");
  ASSERT_TRUE(rules.ok());
  Runtime::shared().rules().set(rules.config).or_throw();
  set_policy();
  yard::BreakerSettings s;
  s.cooldown = std::chrono::minutes(10);
  Runtime::shared().health().set_settings(s).or_throw();
  yard::Plugins plugins = Runtime::shared().plugins();
  const auto open = [] {
    size_t n = 0;
    for (const yard::KernelHealth& k : Runtime::shared().health().report().kernels)
      if (k.kernel == "vendor.acme") n += k.open.size();
    return n;
  };
  plugins.load(TEST_BROKEN_PLUGIN).or_throw();
  const Expected& e = expected().front();
  EXPECT_EQ(generated(test_model(), e), e.tokens);
  EXPECT_GT(open(), 0u);
  plugins.replace("acme", TEST_PLUGIN).value().wait().or_throw();
  EXPECT_EQ(open(), 0u);
  EXPECT_EQ(generated(test_model(), e), e.tokens);
  uint64_t served = 0;
  for (const yard::KernelInfo& k : Runtime::shared().list().find_kernels("vendor.acme"))
    served += k.calls;
  EXPECT_GT(served, 0u);
  plugins.unload("acme").value().wait().or_throw();
  plugins.forget("acme").or_throw();
}

TEST_F(Storm, TwoThreadsGenerate) {
  const Meanwhile other([](int i) {
    const Expected& e = expected()[static_cast<size_t>(i) % expected().size()];
    EXPECT_EQ(generated(test_model(), e), e.tokens);
  });
  expect_tokens([&] { return other.rounds() > 2; });
}

TEST_F(Storm, AForkedChildGoesOn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer ends children that start threads";
#endif
  const Expected& e = expected().front();
  Session session(test_model(), 256);
  session.advance(e.prompt).or_throw();
  const size_t half = e.tokens.size() / 2;
  const Ids first = continued(session, half);
  const Ids rest(e.tokens.begin() + static_cast<std::ptrdiff_t>(half), e.tokens.end());
  EXPECT_TRUE(yard::base::true_in_child([&] {
    if (continued(session, rest.size()) != rest) return false;
    const Expected& other = expected().back();
    return generated(test_model(), other) == other.tokens;
  }));
  EXPECT_EQ(first, Ids(e.tokens.begin(), e.tokens.begin() + static_cast<std::ptrdiff_t>(half)));
  EXPECT_EQ(continued(session, rest.size()), rest);
}

}  // namespace
}  // namespace llm
