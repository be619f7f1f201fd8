// SPDX-License-Identifier: Apache-2.0
// Tests what callers get when kernels fail: a right result or a clear error, never a wrong result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/log.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "fault.h"
#include "testing.h"

namespace yard::testing {
namespace {

using fault::Behaviour;
using fault::FaultBackend;
using fault::FaultKernel;
using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

struct Tensors {
  static constexpr int64_t kRows = 4, kHidden = 16;
  std::vector<float> out = std::vector<float>(kRows * kHidden, -1);
  std::vector<float> x = numbers(kRows * kHidden, 0.25f), residual = numbers(kRows * kHidden, -1);
  std::vector<float> weight = numbers(kHidden, 1);
  std::vector<int32_t> positions = std::vector<int32_t>(kRows, 3);

  static std::vector<float> numbers(size_t n, float from) {
    std::vector<float> v(n);
    for (size_t i = 0; i < n; ++i) v[i] = from + 0.125f * static_cast<float>(i % 13);
    return v;
  }
  static TensorView rows(std::vector<float>& v) { return {v.data(), DType::f32, {kRows, kHidden}}; }
  TensorView weights() { return {weight.data(), DType::f32, {kHidden}}; }
};

struct Case {
  const char* op;
  std::vector<uint32_t> outputs;  // indices of the arguments that are written
  std::function<Status(Runtime&, Tensors&, const Options&)> call;
  std::vector<float> Tensors::*result;
};

const Case kInPlace[] = {
    {"add_rms_norm",
     {0, 1},
     [](Runtime& r, Tensors& t, const Options& o) {
       return r.call("add_rms_norm",
                     {{"out", t.rows(t.out)},
                      {"residual", t.rows(t.residual)},
                      {"x", t.rows(t.x)},
                      {"weight", t.weights()}},
                     o);
     },
     &Tensors::residual},
    {"rotary_embedding",
     {0},
     [](Runtime& r, Tensors& t, const Options& o) {
       const TensorView query(t.x.data(), DType::f32, {Tensors::kRows, 2, Tensors::kHidden / 2});
       const TensorView positions(t.positions.data(), DType::i32, {Tensors::kRows});
       return r.call("rotary_embedding", {{"query", query}, {"positions", positions}}, o);
     },
     &Tensors::x},
    {"rms_norm",
     {0},
     [](Runtime& r, Tensors& t, const Options& o) {
       return r.call("rms_norm",
                     {{"out", t.rows(t.x)}, {"x", t.rows(t.x)}, {"weight", t.weights()}}, o);
     },
     &Tensors::x},
};

struct World {
  explicit World(const Case& c, uint32_t flags = 0, int kernels = 1) {
    Changes changes;
    changes.add_backend(backend.descriptor());
    for (int i = 0; i < kernels; ++i) {
      made.push_back(std::make_unique<FaultKernel>(fault::Spec{.op = c.op,
                                                               .id = "fault." + std::to_string(i),
                                                               .outputs = c.outputs,
                                                               .priority = 1000 - i,
                                                               .flags = flags}));
      changes.add_kernel(made.back()->descriptor());
    }
    runtime.apply(std::move(changes)).or_throw();
  }
  ~World() { EXPECT_TRUE(runtime.reset().ok()); }

  FaultBackend backend;
  std::vector<std::unique_ptr<FaultKernel>> made;
  Runtime runtime{RuntimeSettings{.environment = false}};
};

std::vector<float> right_result(const Case& c) {
  Runtime plain(RuntimeSettings{.environment = false});
  Tensors t;
  c.call(plain, t, {}).or_throw();
  return t.*c.result;
}

class InPlace : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Ops, InPlace, ::testing::ValuesIn(kInPlace),
                         [](const auto& i) { return std::string(i.param.op); });

TEST_P(InPlace, AKernelThatFailsAfterWritingIsNotFollowedByAnother) {
  World w(GetParam());
  w.made[0]->set({.after_writing = true, .code = YARD_FAULT, .message = "half way"});
  Tensors t;
  const Status s = GetParam().call(w.runtime, t, {});
  EXPECT_EQ(s.code(), Code::kKernelFailed);
  EXPECT_THAT(s.to_string(), AllOf(HasSubstr("fault.0"), HasSubstr("half way")));
}

TEST_P(InPlace, IsRetriedWithSavedInputsAndTheResultIsRight) {
  for (const Behaviour& b : {Behaviour{.after_writing = true, .code = YARD_FAULT},
                             Behaviour{.after_writing = true, .throws = fault::Throws::kStandard},
                             Behaviour{.after_writing = true, .code = YARD_DECLINED}}) {
    World w(GetParam(), 0, 2);  // two misbehaving kernels, one after the other
    for (auto& k : w.made) k->set(b);
    Policy p;
    p.retry_inplace = Policy::RetryInplace::kSave;
    ASSERT_TRUE(w.runtime.set_policy(p).ok());
    Tensors t;
    const Status s = GetParam().call(w.runtime, t, {});
    EXPECT_TRUE(s.ok()) << s.to_string();
    EXPECT_EQ(t.*GetParam().result, right_result(GetParam()));
    EXPECT_EQ(w.made[1]->failures(), 1u);
  }
}

TEST_P(InPlace, AKernelThatPromisesToFailBeforeWritingNeedsNoCopy) {
  World w(GetParam(), YARD_KERNEL_FAILS_BEFORE_WRITING);
  w.made[0]->set({.code = YARD_FAULT});
  Tensors t;
  EXPECT_TRUE(GetParam().call(w.runtime, t, {}).ok());
  EXPECT_EQ(t.*GetParam().result, right_result(GetParam()));
}

TEST_P(InPlace, RetryInplaceIsReadFromARuleFile) {
  World w(GetParam());
  w.made[0]->set({.after_writing = true, .code = YARD_FAULT});
  auto reading = parse_config("version: \"1.0\"\npolicy: {retry_inplace: save}\n", "rules.yaml");
  ASSERT_TRUE(reading.ok());
  ASSERT_TRUE(w.runtime.rules().set(reading.config).ok());
  Tensors t;
  EXPECT_TRUE(GetParam().call(w.runtime, t, {}).ok());
  EXPECT_EQ(t.*GetParam().result, right_result(GetParam()));
  EXPECT_THAT(to_yaml(reading.config), HasSubstr("retry_inplace: save"));
}

TEST(SavedInputs, DoNotTouchTheSpaceBetweenRows) {
  const Case& c = kInPlace[2];
  World w(c);
  std::vector<float> wide = Tensors::numbers(4 * 24, 1), weight(16, 1);
  const std::vector<float> before = wide;
  w.made[0]->set({.callback = [&](yard_call_t*, const yard_value_t*, uint32_t) {
    wide[20] = 7;  // another writer changes the space while the kernel runs
    return static_cast<int32_t>(YARD_FAULT);
  }});
  Policy p;
  p.retry_inplace = Policy::RetryInplace::kSave;
  ASSERT_TRUE(w.runtime.set_policy(p).ok());
  const TensorView x(wide.data(), DType::f32, {4, 16}, {24, 1});
  const TensorView weights(weight.data(), DType::f32, {16});
  const Status s = w.runtime.call("rms_norm", {{"out", x}, {"x", x}, {"weight", weights}});
  ASSERT_TRUE(s.ok()) << s.to_string();
  EXPECT_EQ(wide[20], 7);
  EXPECT_EQ(wide[21], before[21]);
  EXPECT_NE(wide[0], before[0]);
}

std::atomic<bool> g_breaks{false};
int32_t add_one_or_break(plugin::Call, plugin::Tensor out, plugin::Tensor x, int64_t) {
  for (int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = x.data<float>()[i] + 1;
    if (g_breaks && i == 1) return YARD_FAULT;
  }
  return YARD_OK;
}
int32_t add_one(plugin::Call, plugin::Tensor out, plugin::Tensor x, int64_t) {
  for (int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = x.data<float>()[i] + 1;
  return YARD_OK;
}

// The handle is bound to separate tensors and called in place.
TEST(BoundInPlace, AHandleChecksOverlapWhenItsKernelFails) {
  constexpr Op<void(Out, In, int)> op{"copy"};
  for (const bool typed : {false, true})
    for (const bool saves : {false, true}) {
      SCOPED_TRACE(typed ? "typed" : "packed");
      SCOPED_TRACE(saves ? "saves" : "saves not");
      Bare bare;
      auto first =
          plugin::Kernel::of<add_one_or_break>("copy", "a").backend("test").priority(900).d;
      if (!typed) first.typed = nullptr, first.typed_signature = nullptr;
      ASSERT_TRUE(bare.add(first).ok());
      ASSERT_TRUE(bare.add(plugin::Kernel::of<add_one>("copy", "b").backend("test").d).ok());
      Policy p;
      if (saves) p.retry_inplace = Policy::RetryInplace::kSave;
      ASSERT_TRUE(bare.runtime.set_policy(p).ok());
      Floats out(4), x(4);
      const auto bound = bind(op.on(bare.runtime), out.view, x.view).value();
      for (int round = 0; round < 2; ++round) {
        g_breaks = false;
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(bound(out.view, x.view, 0).ok());
        g_breaks = true;
        // The first call finds a direct plan, the second does not.
        for (int i = 0; i < 2; ++i) {
          x.data = {1, 2, 3, 4};
          const Status s = bound(x.view, x.view, 0);
          EXPECT_EQ(s.ok(), saves) << s.to_string();
          if (s.ok()) {
            EXPECT_EQ(x.data, (std::vector<float>{2, 3, 4, 5}));
          }
        }
      }
    }
}

const Case kPlain{"silu_and_mul",
                  {0},
                  [](Runtime& r, Tensors& t, const Options& o) {
                    const TensorView out(t.out.data(), DType::f32, {4, 8});
                    return r.call("silu_and_mul", {{"out", out}, {"x", t.rows(t.x)}}, o);
                  },
                  &Tensors::out};

TEST(Fallback, WithIntactInputsNeedsNoPromise) {
  World w(kPlain);
  w.made[0]->set({.after_writing = true, .code = YARD_FAULT});
  Tensors t;
  ResultRecord record;
  Options o;
  o.result = &record;
  EXPECT_TRUE(kPlain.call(w.runtime, t, o).ok());
  EXPECT_EQ(t.out, right_result(kPlain));
  EXPECT_EQ(record.attempts, 2);
  EXPECT_EQ(record.fallback_from, static_cast<uint8_t>(ErrorClass::kFault));
}

TEST(Fallback, ObeysDenyAndTheMostAttempts) {
  World w(kPlain, 0, 3);
  for (auto& k : w.made) k->set({.code = YARD_FAULT, .message = "no"});
  Tensors t;
  Options o;
  o.deny = {"fault.1"};
  EXPECT_TRUE(kPlain.call(w.runtime, t, o).ok());
  EXPECT_EQ(w.made[1]->calls(), 0u);

  Config config;
  config.settings.max_fallback_attempts = 1;
  ASSERT_TRUE(w.runtime.rules().set(config).ok());
  const Status s = kPlain.call(w.runtime, t, {});
  EXPECT_EQ(s.code(), Code::kKernelFailed);
  EXPECT_THAT(s.to_string(),
              AllOf(HasSubstr("fault.0"), HasSubstr("fault.1"), Not(HasSubstr("fault.2"))));
}

TEST(Fallback, NeverAfterTheDeadline) {
  World w(kPlain);
  Tensors t;
  Options o;
  o.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  w.made[0]->set({.callback = [&](yard_call_t*, const yard_value_t*, uint32_t) {
    std::this_thread::sleep_until(*o.deadline + std::chrono::milliseconds(1));
    return static_cast<int32_t>(YARD_FAULT);
  }});
  const Status s = kPlain.call(w.runtime, t, o);
  EXPECT_EQ(s.code(), Code::kDeadline);
  // The first kernel may not have run before the deadline.
  if (w.made[0]->calls() == 1) {
    EXPECT_THAT(s.to_string(), HasSubstr("fault.0"));
  }
}

TEST(Fallback, IsLoggedByTheKernelThatFailedAndTheOneThatServed) {
  World w(kPlain);
  w.made[0]->set({.code = YARD_TRANSIENT, .message = "broken pipe"});
  std::mutex lock;  // breakers log on another thread
  std::vector<std::string> lines;
  set_log_sink([&](const LogMessage& m) {
    const std::lock_guard l(lock);
    lines.emplace_back(m.text);
  });
  Tensors t;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(kPlain.call(w.runtime, t, {}).ok());
  const auto took = std::chrono::steady_clock::now() - begin;
  set_log_sink({});
  const auto count = [&](const std::string& part) {
    const std::lock_guard l(lock);
    return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    });
  };
  const auto most = 1 + took / std::chrono::seconds(1);  // one message per second
  EXPECT_THAT(count("Kernel 'fault.0' failed for op 'silu_and_mul': broken pipe"),
              AllOf(Ge(1), Le(most)));
  EXPECT_THAT(count("Op 'silu_and_mul' fallback to '"), AllOf(Ge(1), Le(most)));
}

}  // namespace
}  // namespace yard::testing
