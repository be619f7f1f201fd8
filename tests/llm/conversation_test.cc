// SPDX-License-Identifier: Apache-2.0
// Tests conversations: which tokens are computed again when turns are forgotten, and the state
// after errors and interrupts.
#include "conversation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "tiny_model.h"

namespace llm {
namespace {

using testing::HasSubstr;

class ConversationTest : public testing::Test {
 protected:
  void SetUp() override {
    TinyModel m;
    m.more = [&](GgufWriter& w) {
      w.value("tokenizer.chat_template", std::string("{{'<|im_start|>' + message}}"));
    };
    std::ofstream(path_, std::ios::binary) << m.bytes();
  }
  void TearDown() override { std::remove(path_.c_str()); }
  ConversationSettings settings(int64_t context, int64_t tokens) const {
    ConversationSettings s;
    s.model = path_, s.context = context, s.tokens = tokens;
    return s;
  }

  std::string path_ = testing::TempDir() + "conversation_" + std::to_string(::getpid()) + ".gguf";
};

TEST_F(ConversationTest, ContinuesAsIfAllWereOnePrompt) {
  Conversation c(settings(0, 4));
  const Answer first = c.answer("hello"), second = c.answer("12 hello");
  EXPECT_EQ(c.turns(), 2u);
  EXPECT_EQ(first.forgotten + second.forgotten, 0u);
  // The first turn did not compute the last token of its answer and the end of the answer.
  EXPECT_EQ(second.prompt.front(), first.ids.back());
  Conversation again(settings(0, 4));
  EXPECT_EQ(again.answer("hello").ids, first.ids);
  EXPECT_EQ(again.answer("12 hello").ids, second.ids);
  again.restart();
  EXPECT_EQ(again.answer("hello").ids, first.ids);
}

TEST_F(ConversationTest, SaysHowMuchIsLoaded) {
  std::vector<double> parts;
  Conversation c(settings(0, 4), [&](double done, double all) { parts.push_back(done / all); });
  EXPECT_GE(parts.size(), 7u);  // the products of a layer
  EXPECT_TRUE(std::ranges::is_sorted(parts));
  EXPECT_GT(parts.front(), 0);
  EXPECT_EQ(parts.back(), 1);
  const size_t calls = parts.size();
  c.answer("hello");
  EXPECT_EQ(parts.size(), calls);
}

TEST_F(ConversationTest, ForgetsTheOldestTurnsWhenTheContextIsFull) {
  Conversation c(settings(96, 6));
  size_t forgotten = 0;
  Answer last;
  for (int i = 0; i < 12; ++i) {
    last = c.answer("question " + std::to_string(i));
    EXPECT_EQ(last.ids.size(), 6u) << i;
    EXPECT_EQ(last.stopped, "tokens") << i;
    forgotten += last.forgotten;
    EXPECT_EQ(c.turns() + forgotten, static_cast<size_t>(i + 1));
    EXPECT_LE(c.tokens(), 96u + 4u);  // the end of the last answer is not computed yet
  }
  EXPECT_GT(forgotten, 2u);
  EXPECT_GT(c.turns(), 1u);
}

TEST_F(ConversationTest, AnswersAsIfForgottenTurnsHadNeverBeen) {
  auto with_system = settings(64, 6);
  with_system.system = "be brief";
  Conversation c(with_system), fresh(with_system);
  c.answer("question 0");
  const Answer second = c.answer("question 1");
  EXPECT_EQ(second.forgotten, 1u);
  EXPECT_EQ(second.ids, fresh.answer("question 1").ids);
}

TEST_F(ConversationTest, GoesOnInTheMiddleOfAnAnswer) {
  Conversation c(settings(64, 30));
  c.answer("hello");
  const Answer a = c.answer("hello");
  EXPECT_EQ(a.forgotten, 1u);
  EXPECT_EQ(a.ids.size(), 30u);
  EXPECT_EQ(c.turns(), 1u);
  Conversation small(settings(32, 100));
  EXPECT_EQ(small.answer("hello").stopped, "context");
}

TEST_F(ConversationTest, RefusesAMessageThatCannotFitAndGoesOn) {
  Conversation c(settings(64, 4));
  const Answer before = c.answer("hello");
  try {
    c.answer(std::string(100, 'x'));
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("and the context of 64 has room for"));
  }
  EXPECT_EQ(c.turns(), 1u);
  EXPECT_EQ(c.answer("hello").ids.size(), 4u);
  EXPECT_EQ(c.turns(), 2u);
}

TEST_F(ConversationTest, AnInterruptEndsTheAnswerAndKeepsWhatThereIs) {
  Conversation c(settings(0, 50));
  size_t pieces = 0;
  const Answer a = c.answer(
      "hello", [&](std::string_view) { ++pieces; }, [&] { return pieces >= 3; });
  EXPECT_EQ(a.stopped, "interrupted");
  EXPECT_GE(a.ids.size(), 3u);
  EXPECT_LT(a.ids.size(), 50u);
  EXPECT_EQ(c.turns(), 1u);
  // A turn that is interrupted before its first token does not count.
  EXPECT_EQ(c.answer("hello", {}, [] { return true; }).stopped, "interrupted");
  EXPECT_EQ(c.turns(), 1u);
  EXPECT_EQ(c.answer("hello").stopped, "tokens");
}

TEST_F(ConversationTest, AnErrorOfTheSinkTakesTheTurnBack) {
  Conversation c(settings(0, 50));
  const auto full = [](std::string_view) { throw std::runtime_error("full"); };
  EXPECT_THROW(c.answer("hello", full), std::runtime_error);
  EXPECT_EQ(c.turns(), 0u);
  Conversation fresh(settings(0, 50));
  EXPECT_EQ(c.answer("hello").ids, fresh.answer("hello").ids);
}

TEST_F(ConversationTest, RefusesAContextBeyondTheMemory) {
  TinyModel large;
  large.kv_heads = large.heads = 16, large.head_dim = 256;
  std::ofstream(path_, std::ios::binary) << large.bytes();
  auto raw = settings(1 << 24, 4);
  raw.raw = true;
  try {
    Conversation c(raw);
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& e) {
    EXPECT_THAT(e.what(), HasSubstr("invalid context: 16777216 tokens take"));
  }
}

// Replacing the escapes one by one would take minutes.
TEST_F(ConversationTest, ReadsALongTemplate) {
  std::string text = "<|im_start|>system";
  for (int i = 0; i < 1 << 20; ++i) text += "\\n";
  TinyModel m;
  m.more = [&](GgufWriter& w) { w.value("tokenizer.chat_template", text + "<|im_end|>"); };
  const std::string bytes = m.bytes();
  const Gguf file = Gguf::parse(as_bytes(bytes));
  const auto start = std::chrono::steady_clock::now();
  const ChatTemplate t(file);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(Sampling, PenalisesWhatOccurredLately) {
  std::vector<float> logits = {1, -1, 2, 3};
  const std::vector<int32_t> before = {3, 0, 1, 1};
  change_logits({.repeat_penalty = 2, .repeat_last = 3}, before, logits);
  EXPECT_THAT(logits, testing::ElementsAre(0.5f, -2, 2, 3));
}

TEST(Sampling, MinPKeepsTokensNearTheBest) {
  std::vector<float> logits = {0, std::log(0.5f), std::log(0.01f), std::log(0.06f)};
  const Sampling how{.temperature = 1, .min_p = 0.05f};
  EXPECT_TRUE(changes_logits(how));
  change_logits(how, {}, logits);
  EXPECT_EQ(logits[2], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(logits[3], std::log(0.06f));
  EXPECT_FALSE(changes_logits({}));
}

}  // namespace
}  // namespace llm
