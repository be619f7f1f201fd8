// SPDX-License-Identifier: Apache-2.0
// Tests calls by name. The mapping of arguments to parameters is cached, which must not change
// behaviour.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "testing.h"

namespace yard::testing::memo_names {
namespace {

// The arguments that the last kernel received.
thread_local std::vector<yard_value_t> t_given;
thread_local std::vector<std::string> t_strings;
thread_local intptr_t t_kernel = 0;
int32_t keep_arguments(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  t_kernel = reinterpret_cast<intptr_t>(call->self);
  t_given.assign(args, args + count);
  t_strings.clear();
  for (uint32_t i = 0; i < count; ++i)
    t_strings.emplace_back(
        args[i].tag == YARD_TAG_STRING ? std::string(args[i].u.string, args[i].count) : "");
  return YARD_OK;
}
yard_kernel_t keeping(const char* op, intptr_t self) {
  yard_kernel_t k = kernel_of(op, "a", self, 1);
  k.run = keep_arguments;
  return k;
}

class CallMemoNames : public ::testing::Test {
 protected:
  Status call(std::span<const Arg> args) {
    t_kernel = 0, t_given.clear();
    return bare_.runtime.call("blend", args);
  }

  static constexpr const char* kSchema =
      "blend(out!: T[n], x: T[n], w?: T[n], by: float = 0.5, k: int = 3, on: bool = false, "
      "how: enum{fast, exact} = exact, tag: string = \"none\")";
  Bare bare_{kSchema};
  Floats out_{8}, x_{8}, w_{8};
};

TEST_F(CallMemoNames, AnyOrderAnyValueAndDefaults) {
  bare_.add(keeping("blend", 1)).or_throw();
  std::mt19937 random(11);
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  const std::string tags[] = {"", "a", "bcd"};
  for (int i = 0; i < 20000; ++i) {
    const bool with_w = chance(50), by_int = chance(30), with_by = chance(60), with_k = chance(50),
               with_on = chance(50), on = chance(50), with_how = chance(50), how_text = chance(50),
               fast = chance(50), with_tag = chance(20);
    const int k = static_cast<int>(random() % 4), by = static_cast<int>(random() % 3);
    const std::string& tag = tags[random() % 3];
    std::vector<Arg> args;
    const size_t by_position = random() % 3;
    if (by_position > 0) args.emplace_back(out_.view);
    if (by_position > 1) args.emplace_back(x_.view);
    std::vector<Arg> named;
    if (by_position < 1) named.emplace_back("out", out_.view);
    if (by_position < 2) named.emplace_back("x", x_.view);
    if (with_w) named.emplace_back("w", w_.view);
    if (with_by && by_int) named.emplace_back("by", by);
    if (with_by && !by_int) named.emplace_back("by", by + 0.25);
    if (with_k) named.emplace_back("k", k);
    if (with_on) named.emplace_back("on", on);
    if (with_how && how_text) named.emplace_back("how", fast ? "fast" : "exact");
    if (with_how && !how_text) named.emplace_back("how", fast ? 0 : 1);
    if (with_tag) named.emplace_back("tag", tag);
    if (chance(50)) std::shuffle(named.begin(), named.end(), random);
    args.insert(args.end(), named.begin(), named.end());
    for (int again = 0; again < 2; ++again) {
      const Status s = call(args);
      ASSERT_TRUE(s.ok()) << s.to_string();
      ASSERT_EQ(t_given.size(), 8u);
      ASSERT_EQ(t_given[0].u.tensor, &out_.view.c());
      ASSERT_EQ(t_given[1].u.tensor, &x_.view.c());
      ASSERT_EQ(t_given[2].tag, static_cast<uint32_t>(with_w ? YARD_TAG_TENSOR : YARD_TAG_NONE));
      ASSERT_EQ(t_given[2].u.tensor, with_w ? &w_.view.c() : nullptr);
      ASSERT_EQ(t_given[3].tag, static_cast<uint32_t>(YARD_TAG_FLOAT));
      ASSERT_EQ(t_given[3].u.f, !with_by ? 0.5 : by_int ? by : by + 0.25);
      ASSERT_EQ(t_given[4].u.i, with_k ? k : 3);
      ASSERT_EQ(t_given[5].u.i, with_on && on);
      ASSERT_EQ(t_given[6].u.i, with_how && fast ? 0 : 1);
      ASSERT_EQ(t_strings[7], with_tag ? tag : "none");
    }
  }
}

TEST_F(CallMemoNames, WrongOnesAreRefusedEveryTime) {
  bare_.add(keeping("blend", 1)).or_throw();
  const std::vector<Arg> good = {out_.view, x_.view, {"k", 1}};
  const std::vector<std::vector<Arg>> wrong = {
      {out_.view, x_.view, {"K", 1}},           {out_.view, x_.view, {"x", 1}},
      {out_.view, x_.view, {"k", 1.5}},         {out_.view, {"k", 1}},
      {out_.view, x_.view, {"how", 2}},         {out_.view, x_.view, {"how", "slow"}},
      {out_.view, x_.view, {"k", 1}, {"k", 2}},
  };
  const std::vector<Arg> enumerator = {out_.view, x_.view, {"how", 1}};
  for (int round = 0; round < 3; ++round)
    for (const std::vector<Arg>& args : wrong) {
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(call(good).ok());
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(call(enumerator).ok());
      EXPECT_EQ(call(args).code(), Code::kInvalidArgument);
      EXPECT_EQ(t_kernel, 0);
    }
}

TEST_F(CallMemoNames, TypesAreCheckedAlthoughValuesAreNot) {
  Bare bare("plain(out!: T[n], x: T[n], w?: T[n], k: int = 1, on: bool = false, by: float = 1.0)");
  bare.add(keeping("plain", 1)).or_throw();
  const std::vector<Arg> good = {out_.view, x_.view, nullptr, 1, true, 1.0};
  const std::vector<std::vector<Arg>> wrong = {{out_.view, x_.view, nullptr, 1.0, true, 1.0},
                                               {out_.view, x_.view, nullptr, true, true, 1.0},
                                               {out_.view, x_.view, nullptr, 1, 1, 1.0},
                                               {out_.view, x_.view, nullptr, 1, true, true},
                                               {out_.view, x_.view, nullptr, 1, true, "1"},
                                               {out_.view, x_.view, 1, 1, true, 1.0},
                                               {out_.view, x_.view, nullptr, nullptr, true, 1.0}};
  for (int round = 0; round < 3; ++round)
    for (const std::vector<Arg>& args : wrong) {
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(bare.runtime.call("plain", good).ok());
      t_kernel = 0;
      EXPECT_EQ(bare.runtime.call("plain", args).code(), Code::kInvalidArgument);
      EXPECT_EQ(t_kernel, 0);
    }
}

TEST_F(CallMemoNames, AnOpAddedAgainWithAnotherSchemaIsBoundByTheNewOne) {
  const char* const schemas[] = {
      "swap(out!: T[n], x: T[n], y: T[n], a: int = 1, b: int = 2)",
      "swap(out!: T[n], y: T[n], x: T[n], b: int = 3, a: int = 4)",
      "swap(x: T[n], out!: T[n], y: T[n], a: int = 5, b: int = 6, c: int = 7)",
  };
  constexpr size_t kX[] = {1, 2, 0}, kY[] = {2, 1, 2}, kOut[] = {0, 0, 1}, kA[] = {3, 4, 3},
                   kB[] = {4, 3, 4};
  constexpr int64_t kDefault[] = {2, 3, 6};
  Floats y(8);
  for (int round = 0; round < 30; ++round) {
    const size_t s = static_cast<size_t>(round * 7 + round / 3) % 3;
    Changes c;
    if (round > 0) c.remove_op("swap");
    c.add_op(op_of(schemas[s])).add_kernel(keeping("swap", round + 1));
    bare_.runtime.apply(std::move(c)).or_throw();
    for (int i = 0; i < 4; ++i) {
      const Status called = bare_.runtime.call(
          "swap", {{"out", out_.view}, {"x", x_.view}, {"y", y.view}, {"a", 40 + i}});
      ASSERT_TRUE(called.ok()) << called.to_string();
      ASSERT_EQ(t_kernel, round + 1);
      ASSERT_EQ(t_given[kOut[s]].u.tensor, &out_.view.c());
      ASSERT_EQ(t_given[kX[s]].u.tensor, &x_.view.c());
      ASSERT_EQ(t_given[kY[s]].u.tensor, &y.view.c());
      ASSERT_EQ(t_given[kA[s]].u.i, 40 + i);
      ASSERT_EQ(t_given[kB[s]].u.i, kDefault[s]);
    }
  }
  Changes c;
  c.remove_op("swap");
  bare_.runtime.apply(std::move(c)).or_throw();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(
        bare_.runtime.call("swap", {{"out", out_.view}, {"x", x_.view}, {"y", y.view}, {"a", 1}})
            .code(),
        Code::kUnknownOp);
}

TEST_F(CallMemoNames, TheTextOfADefaultOutlivesAnOpThatIsReplaced) {
  const std::string text(300, 'd');
  const std::string schema = "say(out!: T[n], x: T[n], text: string = \"" + text + "\")";
  const auto add = [&](Changes c) {
    c.add_op(op_of(schema.c_str())).add_kernel(keeping("say", 1));
    bare_.runtime.apply(std::move(c)).or_throw();
  };
  add({});
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0}, wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i)
    callers.emplace_back([&, i] {
      const Options options;
      while (!stop) {
        const Status called = i == 0 ? bare_.runtime.call("say", {out_.view, x_.view})
                                     : bare_.runtime.call("say", {out_.view, x_.view}, options);
        wrong += !called.ok() || t_strings.back() != text;
        ++calls;
      }
    });
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  while (std::chrono::steady_clock::now() < end) {
    Changes c;
    c.remove_op("say");
    add(std::move(c));
  }
  stop = true;
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(calls, 100);
}

TEST_F(CallMemoNames, RuntimesHaveSchemasOfTheirOwn) {
  Bare one("op(out!: T[n], x: T[n], a: int = 1, b: int = 2)");
  Bare two("op(out!: T[n], x: T[n], b: int = 3, a: int = 4)");
  one.add(keeping("op", 1)).or_throw();
  two.add(keeping("op", 2)).or_throw();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(one.runtime.call("op", {out_.view, x_.view, {"a", i}}).ok());
    ASSERT_EQ(t_kernel, 1);
    ASSERT_EQ(t_given[2].u.i, i);
    ASSERT_EQ(t_given[3].u.i, 2);
    ASSERT_TRUE(two.runtime.call("op", {out_.view, x_.view, {"a", i}}).ok());
    ASSERT_EQ(t_kernel, 2);
    ASSERT_EQ(t_given[2].u.i, 3);
    ASSERT_EQ(t_given[3].u.i, i);
  }
}

TEST_F(CallMemoNames, NamesAreComparedInFull) {
  const std::string longest(31, 'p'), too_long(32, 'p'), other = std::string(31, 'p') + "q";
  const std::string ops[] = {"begin_of_one_same_end",
                             "begin_of_two_same_end",
                             std::string(31, 'o'),
                             std::string(32, 'o'),
                             std::string(33, 'o'),
                             "begin_of" + std::string(40, 'a') + "same_end",
                             "begin_of" + std::string(40, 'b') + "same_end"};
  for (size_t i = 0; i < std::size(ops); ++i) {
    Changes c;
    const std::string schema = ops[i] + "(out!: T[n], x: T[n], " + longest + ": int = 1, " +
                               too_long + ": int = 2, " + other +
                               ": int = 3, same_bgn_a_same_end: int = 4, same_bgn_b_same_end: "
                               "int = 5)";
    c.add_op(op_of(schema.c_str()));
    c.add_kernel(keeping(ops[i].c_str(), static_cast<intptr_t>(i + 1)));
    bare_.runtime.apply(std::move(c)).or_throw();
  }
  const std::string names[] = {longest, too_long, other, "same_bgn_a_same_end",
                               "same_bgn_b_same_end"};
  std::mt19937 random(5);
  for (int i = 0; i < 5000; ++i) {
    const size_t op = random() % std::size(ops), name = random() % std::size(names);
    // The names lie in memory that is reused afterwards.
    const std::string op_text = ops[op], name_text = names[name];
    const std::vector<Arg> args = {out_.view, x_.view, {name_text, 100 + i}};
    for (int again = 0; again < 2; ++again) {
      ASSERT_TRUE(bare_.runtime.call(op_text, args).ok());
      ASSERT_EQ(t_kernel, static_cast<intptr_t>(op + 1));
      for (size_t p = 0; p < std::size(names); ++p)
        ASSERT_EQ(t_given[2 + p].u.i, p == name ? 100 + i : static_cast<int64_t>(p + 1));
    }
  }
}

TEST_F(CallMemoNames, StringsAndListsAreThoseOfTheCall) {
  Bare bare("join(out!: T[n], xs: T[n][], name: string, k: int = 1)");
  bare.add(keeping("join", 1)).or_throw();
  yard_kernel_t other = keeping("join", 2);
  other.id = "b", other.priority = 10;
  const std::vector<yard_limit_t> limits = {plugin::at_least("xs.count", 3)};
  other.limits = limits.data(), other.limit_count = 1;
  bare.add(other).or_throw();
  std::vector<TensorView> views(4, x_.view);
  Floats short_one(4);
  for (int i = 0; i < 100; ++i) {
    const auto n = static_cast<size_t>(i % 5);
    const TensorList list(std::span<const TensorView>(views.data(), n));
    const std::string name(static_cast<size_t>(i % 7), 'x');
    for (int again = 0; again < 2; ++again) {
      const Status s = bare.runtime.call("join", {out_.view, list, name});
      ASSERT_TRUE(s.ok()) << s.to_string();
      ASSERT_EQ(t_kernel, n >= 3 ? 2 : 1);
      ASSERT_EQ(t_strings[2], name);
      ASSERT_EQ(t_given[1].count, n);
    }
    const TensorList wrong{x_.view, short_one.view};
    ASSERT_EQ(bare.runtime.call("join", {out_.view, wrong, name}).code(), Code::kInvalidArgument);
    const TensorList written{out_.view};
    ASSERT_EQ(bare.runtime.call("join", {out_.view, written, name}).code(), Code::kInvalidArgument);
  }
}

TEST_F(CallMemoNames, AStringThatIsReadDecides) {
  Bare bare("say(out!: T[n], x: T[n], word: string)");
  bare.add(keeping("say", 1)).or_throw();
  yard_kernel_t loud = keeping("say", 2);
  static const char* const kReads[] = {"word", nullptr};
  loud.id = "b", loud.priority = 10, loud.verify_reads = kReads;
  loud.verify = [](const yard_query_t* q, yard_verdict_t* verdict) -> int32_t {
    if (q->args[2].count == 0 || q->args[2].u.string[0] != 'l')
      verdict->reason = YARD_REASON_REFUSED;
    return YARD_OK;
  };
  bare.add(loud).or_throw();
  constexpr Op<void(Out, In, std::string_view)> say{"say"};
  const auto on = say.on(bare.runtime);
  for (int i = 0; i < 20; ++i)
    for (const char* word : {"loud", "soft", "lord", "", "sound"}) {
      ASSERT_TRUE(bare.runtime.call("say", {out_.view, x_.view, word}).ok());
      ASSERT_EQ(t_kernel, word[0] == 'l' ? 2 : 1) << word;
      ASSERT_TRUE(on(out_.view, x_.view, word).ok());
      ASSERT_EQ(t_kernel, word[0] == 'l' ? 2 : 1) << word;
    }
}

}  // namespace
}  // namespace yard::testing::memo_names
