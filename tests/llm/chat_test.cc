// SPDX-License-Identifier: Apache-2.0
// The program yard-chat, on a small model of random weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tiny_model.h"

namespace llm {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class YardChat : public testing::Test {
 protected:
  void SetUp() override { write({}, "{{'<|im_start|>' + message}}"); }
  void TearDown() override { std::remove(path_.c_str()); }

  void write(TinyModel m, const std::string& chat_template) {
    m.more = [&](GgufWriter& w) { w.value("tokenizer.chat_template", chat_template); };
    std::ofstream(path_, std::ios::binary) << m.bytes();
  }
  // What it prints, with errors; its exit code in code_.
  std::string run(const std::string& options, const std::string& input = "") {
    const std::string command =
        "printf '" + input + "' | " TEST_CHAT " --model " + path_ + " " + options + " 2>&1";
    FILE* const pipe = ::popen(command.c_str(), "r");
    std::string out;
    for (int c; (c = std::fgetc(pipe)) != EOF;) out.push_back(static_cast<char>(c));
    const int status = ::pclose(pipe);
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return out;
  }
  json run_json(const std::string& options, const std::string& input = "") {
    return json::parse(run("--json " + options, input));
  }

  std::string path_ = testing::TempDir() + "chat_test_" + std::to_string(::getpid()) + ".gguf";
  int code_ = 0;
};

TEST_F(YardChat, PrintsOneObject) {
  const json o = run_json("--tokens 9 hello");
  EXPECT_EQ(code_, 0);
  const Vocabulary v;
  EXPECT_EQ(o["prompt_tokens"][0], v.control_id(0));  // of the template
  EXPECT_EQ(o["tokens"].size(), 9u);
  EXPECT_EQ(o["stopped"], "tokens");
  EXPECT_GT(o["prompt_ms"], 0);
  std::map<std::string, int64_t> calls;
  for (const json& k : o["kernels"]) {
    EXPECT_FALSE(k["kernel"].empty());
    EXPECT_GT(k["ms"], 0);
    calls[k["op"]] += k["calls"].get<int64_t>();
  }
  EXPECT_EQ(calls["argmax"], 9);
  EXPECT_EQ(calls["linear"], 9 * 13);
}

TEST_F(YardChat, TakesThePromptFromStandardInputToo) {
  EXPECT_EQ(run_json("--raw --tokens 5 hello")["tokens"],
            run_json("--raw --tokens 5", "hello")["tokens"]);
}

TEST_F(YardChat, DoesNotRecogniseControlTokensInPrompts) {
  const json o = run_json("--raw --tokens 1 '<|im_start|>'");
  EXPECT_EQ(o["prompt_tokens"].size(), 12u);
}

TEST_F(YardChat, WritesTheTextOfItsTokens) {
  const std::string text = run_json("--raw --tokens 30 hello")["text"];
  const std::string plain = run("--raw --tokens 30 hello");
  // JSON and terminals get U+FFFD for what is no UTF-8; bytes that are no start of a character are written as they are.
  EXPECT_EQ(text.substr(0, 1), plain.substr(0, 1));
  EXPECT_EQ(plain.back(), '\n');
}

TEST_F(YardChat, FollowsThePolicyAndRules) {
  const json by_policy = run_json("--raw --tokens 2 --policy reference hello");
  for (const json& k : by_policy["kernels"])
    EXPECT_THAT(k["kernel"].get<std::string>(), HasSubstr("reference"));
  const std::string rules = path_ + ".yaml";
  std::ofstream(rules) << "version: \"1.0\"\nkernel_locks: {linear: reference.cpp}\n";
  const json by_rules = run_json("--raw --tokens 2 --config " + rules + " hello");
  for (const json& k : by_rules["kernels"])
    EXPECT_TRUE(k["op"] != "linear" || k["kernel"] == "reference.cpp") << k;
  std::remove(rules.c_str());
}

TEST_F(YardChat, StopsWhereTheContextEnds) {
  const json o = run_json("--raw --context 8 hello-abc");
  EXPECT_EQ(o["stopped"], "context");
  EXPECT_EQ(o["prompt_tokens"].size() + o["tokens"].size(),
            9u);  // the last token is not computed on
  EXPECT_THAT(run("--raw --context 3 hello-abc"),
              HasSubstr("the context is full: it has room for 3 more"));
  EXPECT_EQ(code_, 1);
}

TEST_F(YardChat, ShowsWhereTheTimeGoes) {
  const std::string out = run("--raw --tokens 9 --profile --threads 1 hello");
  for (const char* part :
       {"prompt", "decode", "linear", "of copy", "outside of kernels", "tokens a second"})
    EXPECT_THAT(out, HasSubstr(part));
}

TEST_F(YardChat, ExplainsErrors) {
  EXPECT_THAT(run("--raw ''"), HasSubstr("yard-chat: invalid prompt: expected a token, got none"));
  EXPECT_EQ(code_, 1);
  EXPECT_THAT(run("--policy fast hello"), HasSubstr("--policy"));
  EXPECT_EQ(code_, 2);
  EXPECT_THAT(run("--config /none.yaml hello"), HasSubstr("/none.yaml"));
  EXPECT_EQ(code_, 1);
  write({}, "{{ bos_token }} [INST]");
  EXPECT_THAT(run("hello"), HasSubstr("or --raw for none, got another"));
  EXPECT_EQ(code_, 1);
  std::ofstream(path_) << "GGUF";
  EXPECT_THAT(run("hello"), HasSubstr("yard-chat: invalid GGUF file: expected 4 bytes at 4"));
  std::remove(path_.c_str());
  EXPECT_THAT(run("hello"), HasSubstr("cannot map the file " + path_ + ": No such file"));
  EXPECT_EQ(code_, 1);
}

}  // namespace
}  // namespace llm
