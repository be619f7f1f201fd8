// SPDX-License-Identifier: Apache-2.0
// Tests the tokenizer: round trips, how text is divided into words, special tokens.
#include "tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tiny_model.h"

namespace llm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Made {
  std::string bytes;
  Gguf file;
  Tokenizer tokenizer;
  explicit Made(const Vocabulary& v, const std::function<void(GgufWriter&)>& more = {})
      : bytes([&] {
          GgufWriter w;
          v.write(w);
          if (more) more(w);
          return w.bytes();
        }()),
        file(Gguf::parse(as_bytes(bytes))),
        tokenizer(file) {}
};

std::string decode(const Tokenizer& t, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) t.append_text(id, text);
  return text;
}

// Returns the words of the text. The vocabulary has all merges, so tokens end only where words do.
std::vector<std::string> words_of(const std::string& pre, const std::string& text) {
  Vocabulary v;
  v.pre = pre;
  v.merges.clear();
  for (size_t i = 0; i < text.size(); ++i)
    for (size_t n = 1; i + n < text.size(); ++n)
      v.merges.emplace_back(text.substr(i, n), text.substr(i + n, 1));
  const Made m(v);
  std::vector<std::string> words;
  for (const int32_t id : m.tokenizer.encode(text))
    m.tokenizer.append_text(id, words.emplace_back());
  return words;
}

TEST(Tokenizer, RoundTripsTextOfManyKinds) {
  for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    Vocabulary v;
    v.pre = pre;
    const Made m(v);
    for (const std::string text :
         {"hello hello", "  two  spaces\t\n\n\nlines\r\n ", "3.14159 1,000,000 0x1F ½ ² ٣٤ Ⅷ",
          "It's we're I'LL they've don't 'tis ''s", "日本語のテキスト、漢字かな", "Привет, мир!",
          "مرحبا بالعالم", "हिन्दी में", "한국어 텍스트", "ไทยภาษา",
          "e\u0301 naïve \u00a0\u3000\u2028x", "😀👨‍👩‍👧‍👦🇫🇷", "𝒳𝒴 𐍈 𠀀",
          "int main() { return x[0]->y++; }  // c\n\tif (a != b) {}", "<|im_start|>", "", "'", " ",
          "\n"})
      EXPECT_EQ(decode(m.tokenizer, m.tokenizer.encode(text)), text) << pre;
  }
}

TEST(Tokenizer, RoundTripsAnyBytes) {
  const Made m(Vocabulary{});
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (uint32_t n = random() % 40; n > 0; --n) text.push_back(static_cast<char>(random()));
    EXPECT_EQ(decode(m.tokenizer, m.tokenizer.encode(text)), text);
  }
}

TEST(Tokenizer, MergesTheLowestRankFirst) {
  const Vocabulary v;
  const Made m(v);
  EXPECT_THAT(m.tokenizer.encode("hello"), ElementsAre(v.merge_id(3)));
  EXPECT_THAT(m.tokenizer.encode(" hello"), ElementsAre(v.merge_id(4)));
  EXPECT_THAT(m.tokenizer.encode("hellx"), ElementsAre(v.merge_id(2), 'x'));
  EXPECT_THAT(m.tokenizer.encode("lll"),
              ElementsAre(v.merge_id(1), 'l'));  // the leftmost of equal merges comes first
}

TEST(Tokenizer, DividesWordsAsTheModelWasTrained) {
  EXPECT_THAT(words_of("gpt-2", "ab's  c12 !?"), ElementsAre("ab", "'s", " ", " c", "12", " !?"));
  EXPECT_THAT(words_of("smollm", "a 12  3\n"), ElementsAre("a", " ", "1", "2", "  ", "3", "\n"));
  EXPECT_THAT(words_of("gpt-2", "x 12\n\n y"), ElementsAre("x", " 12", "\n\n", " y"));
  EXPECT_THAT(words_of("llama-bpe", "A'LL 12345\n\nb(c)\n d"),
              ElementsAre("A", "'LL", " ", "123", "45", "\n\n", "b", "(c", ")\n", " d"));
  EXPECT_THAT(words_of("qwen2", "a 12"), ElementsAre("a", " ", "1", "2"));
  EXPECT_THAT(words_of("gpt-2", "da日本!é"), ElementsAre("da日本", "!", "é"));
}

TEST(Tokenizer, RecognisesControlTokensInTrustedPartsOnly) {
  const Vocabulary v;
  const Made m(v);
  EXPECT_THAT(m.tokenizer.encode({{"<|im_start|>he", true}, {"llo", false}, {"<|im_end|>", true}}),
              ElementsAre(v.control_id(0), v.merge_id(3), v.control_id(1)));
  EXPECT_EQ(m.tokenizer.encode("<|im_end|>").size(), 10u);
  EXPECT_EQ(decode(m.tokenizer, {v.control_id(0)}), "");
  EXPECT_THAT(m.tokenizer.encode("a<tool>"),
              ElementsAre('a', v.user_id()));  // user-defined tokens are found anywhere
  EXPECT_EQ(decode(m.tokenizer, {v.user_id()}), "<tool>");
}

TEST(Tokenizer, KnowsEndAndBegin) {
  const Vocabulary v;
  const Made plain(v);
  EXPECT_TRUE(plain.tokenizer.is_end(v.control_id(1)));
  EXPECT_FALSE(plain.tokenizer.is_end('a'));
  EXPECT_EQ(plain.tokenizer.begin(), -1);
  const Made with(v, [](GgufWriter& w) { w.value("tokenizer.ggml.add_bos_token", true); });
  EXPECT_EQ(with.tokenizer.begin(), v.control_id(0));
}

TEST(Tokenizer, MergesLongWords) {
  Vocabulary v;
  for (std::string a = "aa"; a.size() < 64; a += a) v.merges.emplace_back(a, a);
  v.merges.insert(v.merges.begin(), {"a", "a"});
  const Made m(v);
  EXPECT_EQ(m.tokenizer.encode(std::string(1 << 15, 'a')).size(), size_t{1 << 15} / 64);
}

TEST(Tokenizer, RefusesWhatItDoesNotKnow) {
  const auto error = [](const Vocabulary& v, const std::function<void(GgufWriter&)>& more = {}) {
    try {
      Made m(v, more);
      return std::string();
    } catch (const std::runtime_error& e) {
      return std::string(e.what());
    }
  };
  Vocabulary v;
  v.model = "llama";
  EXPECT_THAT(error(v), HasSubstr("a tokenizer of model gpt2 (byte-level BPE), got 'llama'"));
  v = {};
  v.pre = "tekken";
  EXPECT_THAT(error(v), HasSubstr("got 'tekken'"));
  v = {};
  v.merges.emplace_back("unknown", "s");
  EXPECT_THAT(error(v), HasSubstr("merges of two tokens to a third"));
  EXPECT_THROW(Tokenizer(Gguf::parse(as_bytes(GgufWriter().bytes()))), std::runtime_error);
}

TEST(CompleteCharacters, LeavesOutTheStartOfACharacter) {
  EXPECT_EQ(complete_characters(""), 0u);
  EXPECT_EQ(complete_characters("ab"), 2u);
  EXPECT_EQ(complete_characters("a\xC3"), 1u);
  EXPECT_EQ(complete_characters("a\xC3\xA9"), 3u);
  EXPECT_EQ(complete_characters("\xE6\x97"), 0u);
  EXPECT_EQ(complete_characters("x\xF0\x9F\x98"), 1u);
  EXPECT_EQ(complete_characters("x\xF0\x9F\x98\x80"), 5u);
}

}  // namespace
}  // namespace llm
