// SPDX-License-Identifier: Apache-2.0
// Tests the model on small files of random weights: different ways to compute the same logits,
// errors, threads, allocations.
#include "model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "base/testing_allocations.h"
#include "tiny_model.h"

namespace llm {
namespace {

using testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr const char kPackedKernel[] = "default.simd_int8_packed";
const Ids kPrompt = {5, 80, 17, 3, 200, 41, 99, 5, 12};

struct Loaded {
  std::string bytes;
  Model model;
  explicit Loaded(const TinyModel& m = {})
      : bytes(m.bytes()), model(Gguf::parse(as_bytes(bytes))) {}
};

std::vector<float> logits_of(const Model& model, const Ids& ids, size_t at_once = SIZE_MAX) {
  Session s(model, 64);
  for (size_t i = 0; i < ids.size(); i += std::min(at_once, ids.size()))
    s.advance(std::span(ids).subspan(i, std::min(at_once, ids.size() - i))).or_throw();
  return {s.logits().begin(), s.logits().end()};
}
std::vector<float> logits_of(const TinyModel& m) { return logits_of(Loaded(m).model, kPrompt); }

double most_different(const std::vector<float>& a, const std::vector<float>& b) {
  double most = a.size() == b.size() ? 0 : 1e9;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    most = std::fmax(most, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

Ids generate(const Model& model, const Ids& prompt, int count, const Sampling& how = {}) {
  Session s(model, 64);
  s.advance(prompt).or_throw();
  Ids ids;
  for (int32_t id = 0; count > 0; --count) {
    s.sample(how, &id).or_throw();
    ids.push_back(id);
    s.advance({&id, 1}).or_throw();
  }
  return ids;
}

TEST(Model, GivesTheSameLogitsInBatchesAndTokenByToken) {
  const Loaded l;
  const std::vector<float> whole = logits_of(l.model, kPrompt);
  EXPECT_LT(most_different(whole, logits_of(l.model, kPrompt, 1)), 1e-3);
  EXPECT_LT(most_different(whole, logits_of(l.model, kPrompt, 4)), 1e-3);
  Ids other = kPrompt;
  other.front() = 6;  // the first token affects the last logits
  EXPECT_GT(most_different(whole, logits_of(l.model, other)), 1e-2);
}

TEST(Model, DividesLongPromptsIntoBatches) {
  const Loaded l;
  Ids ids(700);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 250);
  Session whole(l.model, 1024), parts(l.model, 1024);
  whole.advance(ids).or_throw();
  EXPECT_EQ(whole.position(), 700);
  for (const auto& part : {std::span(ids).first(300), std::span(ids).subspan(300)})
    parts.advance(part).or_throw();
  EXPECT_LT(most_different({whole.logits().begin(), whole.logits().end()},
                           {parts.logits().begin(), parts.logits().end()}),
            1e-3);
}

TEST(Model, ComputesGateAndUpAlikeApartAndTogether) {
  TinyModel apart;
  apart.apart = true;
  EXPECT_TRUE(Loaded().model.layers[0].gate_is_both);
  EXPECT_FALSE(Loaded(apart).model.layers[0].gate_is_both);
  EXPECT_LT(most_different(logits_of(TinyModel{}), logits_of(apart)), 1e-4);
}

TEST(Model, LoadsVariantsOfTheArchitecture) {
  const std::vector<float> plain = logits_of(TinyModel{});
  TinyModel m;
  m.tied = false;  // a separate output weight, here with the same values
  EXPECT_LT(most_different(plain, logits_of(m)), 1e-4);
  m = {};
  m.rope_freqs = true;
  EXPECT_LT(most_different(plain, logits_of(m)), 1e-4);
  m = {};
  m.rotated = 8;
  EXPECT_GT(most_different(plain, logits_of(m)), 1e-3);
  m = {};
  m.more = [](GgufWriter& w) {
    w.value("llama.rope.scaling.type", std::string("linear"));
    w.value("llama.rope.scaling.factor", 4.0f);
  };
  EXPECT_GT(most_different(plain, logits_of(m)), 1e-3);
  m = {};
  m.heads = 3, m.kv_heads = 1, m.head_dim = 8, m.rotated = 8;
  EXPECT_TRUE(std::isfinite(logits_of(m)[0]));
  m = {};
  m.more = [](GgufWriter& w) { w.floats("blk.1.attn_q.bias", {64}, std::vector<float>(64, 1)); };
  EXPECT_GT(most_different(plain, logits_of(m)), 1e-3);
}

TEST(Model, ReadsWeightsOfOtherTypes) {
  const std::vector<float> plain = logits_of(TinyModel{});
  for (const uint32_t type : {1u, 30u, 8u}) {
    TinyModel m;
    m.type = type;
    const double d = most_different(plain, logits_of(m));
    // Rounded weights give similar logits: the difference is 0.92 in f32 with q8_0.
    EXPECT_LT(d, 1.5) << type;
    EXPECT_GT(d, 1e-5) << type;
  }
}

TEST(Model, LoadsWeightsWithFewBitsForKernelsThatPack) {
  TinyModel m;
  EXPECT_EQ(Loaded(m).model.logits.instance, nullptr);  // f32
  m.type = 8;
  const Loaded l(m);
  for (const Layer& layer : l.model.layers)
    for (const Linear* w : {&layer.query, &layer.output, &layer.gate, &layer.down})
      EXPECT_NE(w->instance, nullptr);
  const std::vector<float> packed = logits_of(l.model, kPrompt, 2);
  // A processor without the instructions packs nothing.
  const std::string call = "linear(f32[1,64], q8_0[256,64])@cpu+loaded";
  const bool packs = yard::Runtime::shared().explain(call).value().selected == kPackedKernel;
  EXPECT_EQ(l.model.logits.instance->states(), packs ? 1u : 0u);
  yard::Policy policy;
  policy.deny_kernels = {kPackedKernel};
  const yard::ScopedPolicy in(policy);
  EXPECT_EQ(logits_of(l.model, kPrompt, 2), packed);
}

TEST(Model, ExplainsWhatItCannotLoad) {
  const auto error = [](const TinyModel& m) {
    try {
      Loaded l(m);
      return std::string();
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
  };
  TinyModel m;
  m.architecture = "mamba";
  EXPECT_THAT(error(m), HasSubstr("expected a model of architecture llama, got 'mamba'"));
  m = {};
  m.left_out = "blk.1.ffn_up.weight";
  EXPECT_THAT(error(m), HasSubstr("expected tensor 'blk.1.ffn_up.weight', got none"));
  m = {};
  m.kv_heads = 3;
  EXPECT_THAT(error(m), HasSubstr("key-value heads that divide the heads"));
  m = {};
  m.rotated = 7;
  EXPECT_THAT(error(m), HasSubstr("an even llama.rope.dimension_count"));
  m = {};
  m.more = [](GgufWriter& w) { w.value("llama.rope.scaling.type", std::string("yarn")); };
  EXPECT_THAT(error(m), HasSubstr("none or linear, got 'yarn'"));
  m = {};
  m.left_out = "output_norm.weight";
  m.more = [](GgufWriter& w) { w.floats("output_norm.weight", {8}, std::vector<float>(8)); };
  EXPECT_THAT(error(m), HasSubstr("tensor 'output_norm.weight' of shape [64], got [8]"));
  m.more = [](GgufWriter& w) { w.tensor("output_norm.weight", {64}, 1, std::string(128, '\0')); };
  EXPECT_THAT(error(m), HasSubstr("tensor 'output_norm.weight' of type f32, got f16"));
}

TEST(Session, RefusesMoreTokensThanItHasRoomFor) {
  const Loaded l;
  Session s(l.model, 4);
  s.advance(std::span(kPrompt).first(3)).or_throw();
  const std::vector<float> before(s.logits().begin(), s.logits().end());
  const yard::Status full = s.advance(std::span(kPrompt).first(2));
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("the context is full: it has room for 1 more"));
  EXPECT_EQ(s.position(), 3);
  EXPECT_EQ(most_different(before, {s.logits().begin(), s.logits().end()}), 0);
  s.advance(std::span(kPrompt).first(1)).or_throw();
  EXPECT_EQ(s.position(), s.context());
}

TEST(Session, RefusesTokensThatDoNotExist) {
  const Loaded l;
  Session s(l.model, 8);
  EXPECT_FALSE(s.advance(Ids{0, 5000}).ok());
  EXPECT_FALSE(s.advance(Ids{-1}).ok());
  EXPECT_EQ(s.position(), 0);
}

TEST(Session, SamplesReproducibly) {
  const Loaded l;
  EXPECT_EQ(generate(l.model, kPrompt, 20), generate(l.model, kPrompt, 20));
  const Sampling hot{.temperature = 2, .top_p = 0.95f, .seed = 3};
  EXPECT_EQ(generate(l.model, kPrompt, 20, hot), generate(l.model, kPrompt, 20, hot));
  EXPECT_NE(generate(l.model, kPrompt, 20, hot), generate(l.model, kPrompt, 20));
  EXPECT_NE(generate(l.model, kPrompt, 20, hot),
            generate(l.model, kPrompt, 20, {.temperature = 2, .top_p = 0.95f, .seed = 4}));
}

TEST(Session, RunsInTwoThreadsAsInOne) {
  const Loaded l;
  const Ids other = {9, 8, 7};
  const Ids first = generate(l.model, kPrompt, 30), second = generate(l.model, other, 30);
  ASSERT_NE(first, second);
  Ids a, b;
  std::thread one([&] { a = generate(l.model, kPrompt, 30); });
  std::thread two([&] { b = generate(l.model, other, 30); });
  one.join(), two.join();
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, second);
}

// Vendor kernels may allocate.
TEST(Session, AllocatesNothingPerTokenOnceWarm) {
  yard::Policy policy;
  policy.allow_kernels = {"default.simd*", "reference.*"};
  const yard::ScopedPolicy in(policy);
  const Loaded l;
  Session s(l.model, 64);
  s.advance(kPrompt).or_throw();
  int32_t id = 0;
  const auto step = [&] { return s.sample({}, &id).ok() && s.advance({&id, 1}).ok(); };
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(step());
  for (int i = 0; i < 20; ++i) {
    yard::base::FailingAllocations failing(0, yard::base::FailingAllocations::kOne);
    const bool ok = step();
    ASSERT_FALSE(failing.end());
    ASSERT_TRUE(ok);
  }
}

TEST(Profile, NotesEveryCall) {
  const Loaded l;
  Session s(l.model, 64);
  s.advance(kPrompt).or_throw();
  Profile p, scaled;
  s.set_profile(&p);
  int32_t id = 0;
  s.sample({}, &id).or_throw();
  s.advance({&id, 1}).or_throw();
  int64_t calls = 0, linear_calls = 0;
  for (const Profile::Entry& e : p.entries()) {
    calls += e.calls;
    EXPECT_FALSE(e.kernel.empty()) << e.op;
    EXPECT_GT(e.ns, 0) << e.op;
    EXPECT_GT(e.bytes, 0) << e.op;
    if (std::string_view(e.op) == "linear") {
      linear_calls += e.calls;  // served by one kernel or by several
    } else if (std::string_view(e.op) == "embedding") {
      EXPECT_EQ(e.bytes, 2 * 64 * 4 + 4);
    }
  }
  EXPECT_EQ(linear_calls, 2 * 6 + 1);
  EXPECT_EQ(calls, 1 + 1 + 1 + 2 * (6 + 1 + 1 + 2 + 1) + 1);
  scaled.add(p, 3);
  EXPECT_EQ(scaled.entries()[0].calls, 3);
}

}  // namespace
}  // namespace llm
