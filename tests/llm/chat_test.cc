// SPDX-License-Identifier: Apache-2.0
// Runs the program yard-chat on a small model of random weights.
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
using testing::Not;

class YardChat : public testing::Test {
 protected:
  void SetUp() override { write({}, "{{'<|im_start|>' + message}}"); }
  void TearDown() override { std::remove(path_.c_str()); }

  void write(TinyModel m, const std::string& chat_template) {
    m.more = [&](GgufWriter& w) { w.value("tokenizer.chat_template", chat_template); };
    std::ofstream(path_, std::ios::binary) << m.bytes();
  }
  // Runs greedily. Returns the output with errors, and stores the exit code in code_.
  std::string run(const std::string& options, const std::string& input = "") {
    return run_sampled("--temperature 0 " + options, input);
  }
  std::string run_sampled(const std::string& options, const std::string& input = "",
                          const std::string& output = "2>&1") {
    const std::string command =
        "printf '" + input + "' | " TEST_CHAT " --model " + path_ + " " + options + " " + output;
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
  EXPECT_EQ(o["prompt_tokens"][0], v.control_id(0));  // the template starts with this token
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
  const json tokens = run_json("--raw --tokens 5 hello")["tokens"];
  EXPECT_EQ(run_json("--raw --tokens 5", "hello")["tokens"], tokens);
  EXPECT_EQ(run_json("--raw -n 5 -t 1 -p hello")["tokens"], tokens);
  const std::string file = path_ + ".txt";
  std::ofstream(file) << "hello\n";  // the program ignores the newline at the end
  EXPECT_EQ(run_json("--raw --tokens 5 --file " + file)["tokens"], tokens);
  std::remove(file.c_str());
  EXPECT_THAT(run("--file " + file),
              HasSubstr("cannot read the prompt from " + file + ": No such"));
  EXPECT_EQ(code_, 1);
  EXPECT_THAT(run("--file /"), HasSubstr("cannot read the prompt from /: Is a directory"));
  EXPECT_THAT(run("-p hello hello"), HasSubstr("excludes"));
  EXPECT_EQ(code_, 2);
}

TEST_F(YardChat, TakesASystemMessage) {
  const json with = run_json("--tokens 1 --system abc hello"),
             without = run_json("--tokens 1 hello");
  EXPECT_GT(with["prompt_tokens"].size(), without["prompt_tokens"].size() + 3);
}

TEST_F(YardChat, SamplesWithTheSeedThatItPrints) {
  const auto sampled = [&](const std::string& options) {
    return json::parse(run_sampled("--raw --tokens 20 --json hello " + options));
  };
  const json first = sampled("");
  const std::string seed = std::to_string(first["seed"].get<int64_t>());
  EXPECT_EQ(sampled("--seed " + seed)["tokens"], first["tokens"]);
  EXPECT_NE(sampled("")["seed"], first["seed"]);  // fails once in 4 billion runs
  EXPECT_NE(sampled("--seed 1")["tokens"], sampled("--seed 2")["tokens"]);
  EXPECT_EQ(sampled("--top-k 1")["tokens"], run_json("--raw --tokens 20 hello")["tokens"]);
  EXPECT_EQ(sampled("--min-p 1")["tokens"], run_json("--raw --tokens 20 hello")["tokens"]);
  EXPECT_THAT(run_sampled("--raw --tokens 2 hello"), HasSubstr("yard-chat: seed "));
  EXPECT_THAT(run_sampled("--raw --tokens 2 --seed 5 hello"), Not(HasSubstr("seed")));
}

TEST_F(YardChat, ShowsDefaultsAndItsVersion) {
  const std::string help = run_sampled("--help");
  for (const char* part : {"--tokens INT:INT in [1 - 16777216]=256",
                           "--temp FLOAT:FLOAT in [0 - 1000]=0.8", "=40", "=0.95", "=0.05"})
    EXPECT_THAT(help, HasSubstr(part));
  EXPECT_THAT(run_sampled("--version"), testing::StartsWith("yard-chat "));
  EXPECT_EQ(code_, 0);
}

TEST_F(YardChat, FailsIfItsOutputIsNotTaken) {
  for (const char* options :
       {"--raw --tokens 3 hello", "--raw --tokens 3 --json hello", "--version", "--help"}) {
    EXPECT_THAT(run_sampled(options, "", "2>&1 >/dev/full"), HasSubstr("cannot write the output"))
        << options;
    EXPECT_EQ(code_, 1) << options;
  }
}

TEST_F(YardChat, PrintsErrorsAsJson) {
  const json wrong = run_json("--seed 4294967296 hello");
  EXPECT_THAT(wrong["error"].get<std::string>(),
              HasSubstr("--seed: Value 4294967296 not in range"));
  EXPECT_EQ(wrong["exit_code"], 2);
  EXPECT_EQ(code_, 2);
  std::ofstream(path_).flush();
  const json empty = run_json("hello");
  EXPECT_THAT(empty["error"].get<std::string>(),
              HasSubstr("expected a GGUF file, got an empty file"));
  EXPECT_EQ(code_, 1);
}

TEST_F(YardChat, DoesNotRecogniseControlTokensInPrompts) {
  const json o = run_json("--raw --tokens 1 '<|im_start|>'");
  EXPECT_EQ(o["prompt_tokens"].size(), 12u);
}

TEST_F(YardChat, WritesTheTextOfItsTokens) {
  const std::string text = run_json("--raw --tokens 30 hello")["text"];
  const std::string plain = run("--raw --tokens 30 hello");
  // Only the first character is compared, because JSON replaces invalid UTF-8 by U+FFFD.
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
            9u);  // the last token needs no room in the context
  EXPECT_THAT(run("--raw --context 3 hello-abc"),
              HasSubstr("tokens, and the context of 3 has room for 3"));
  EXPECT_EQ(code_, 1);
}

TEST_F(YardChat, ShowsWhereTheTimeGoes) {
  const std::string out = run("--raw --tokens 9 --profile --threads 1 hello");
  for (const char* part :
       {"prompt", "decode", "linear", "of copy", "outside of kernels", "tokens a second"})
    EXPECT_THAT(out, HasSubstr(part));
  EXPECT_THAT(out, Not(testing::ContainsRegex("-[0-9]")));  // times are never negative
}

TEST_F(YardChat, ExplainsErrors) {
  EXPECT_THAT(run("--raw ''"), HasSubstr("yard-chat: invalid prompt: expected a token, got none"));
  EXPECT_EQ(code_, 1);
  EXPECT_THAT(run("--policy fast hello"), HasSubstr("--policy"));
  EXPECT_EQ(code_, 2);
  EXPECT_THAT(run("--context 16777217 hello"), HasSubstr("--context: Value 16777217 not in range"));
  EXPECT_EQ(code_, 2);
  EXPECT_THAT(run("--model / hello"), HasSubstr("--model"));  // run() also passes --model
  EXPECT_THAT(run("--context 200 --tokens 1 hello"),
              HasSubstr("warning: the model was trained for 128 tokens"));
  EXPECT_THAT(run("--config /none.yaml hello"), HasSubstr("/none.yaml"));
  EXPECT_EQ(code_, 1);
  write({}, "{{ bos_token }} [INST]");
  EXPECT_THAT(run("hello"), HasSubstr("or --raw for none, got another"));
  EXPECT_EQ(code_, 1);
  std::ofstream(path_) << "GGUF";
  EXPECT_THAT(run("hello"), HasSubstr("yard-chat: invalid GGUF file: expected 4 bytes at 4"));
  std::remove(path_.c_str());
  EXPECT_THAT(run("hello"), HasSubstr("cannot open the model " + path_ + ": No such file"));
  EXPECT_EQ(code_, 1);
}

}  // namespace
}  // namespace llm
