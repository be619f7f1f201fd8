// SPDX-License-Identifier: Apache-2.0
#include "inspect/protocol.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <clocale>
#include <nlohmann/json.hpp>

namespace yard::inspect {
namespace {

using testing::HasSubstr;

std::string refused(std::string_view line) {
  Request request;
  return std::string(parse_request(line, request).message());
}

TEST(Request, IsRead) {
  Request r;
  ASSERT_TRUE(
      parse_request(
          R"({"v": 1, "id": "a", "command": "deny", "args": {"kernel": "x"}, "runtime": 2})", r)
          .ok());
  EXPECT_EQ(r.id.text, "a");
  EXPECT_EQ(r.command, "deny");
  EXPECT_EQ(text(r.args, "kernel"), "x");
  EXPECT_EQ(r.args.json, R"({"kernel":"x"})");
  EXPECT_EQ(r.runtime, 2);
}

TEST(Request, ValuesOfEveryKindAreRead) {
  Request r;
  ASSERT_TRUE(
      parse_request(R"({"v": 1, "id": -7, "command": "a", "args": { "list": [1, [], {}, "\u00e9"],
      "real": 1.50, "on": true, "off": false, "none": null,
      "object": {"a b": {"c": 1e3}, "d": "\n"}}})",
                    r)
          .ok());
  EXPECT_EQ(r.id.json, "-7");
  EXPECT_EQ(r.args.json,
            "{\"list\":[1,[],{},\"é\"],\"real\":1.50,\"on\":true,\"off\":false,\"none\":null,"
            "\"object\":{\"a b\":{\"c\":1e3},\"d\":\"\\u000a\"}}");
  EXPECT_TRUE(is_set(r.args, "on"));
  EXPECT_FALSE(is_set(r.args, "off"));
  EXPECT_EQ(find(r.args, "none"), nullptr);
  EXPECT_EQ(text(*find(r.args, "object"), "d"), "\n");
  EXPECT_EQ(number(r.args, "real", 9), 9);
  EXPECT_EQ(number(*find(r.args, "object"), "missing", 9), 9);
}

TEST(Request, NumbersKeepTheirPointInEveryLocale) {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  const char* const names[] = {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "fr_FR"};
  if (std::ranges::none_of(names, [](auto n) { return std::setlocale(LC_NUMERIC, n) != nullptr; }))
    GTEST_SKIP() << "no locale here has a comma in numbers";
  Request r;
  const Status s =
      parse_request(R"({"v": 1, "id": -1.5e3, "command": "a", "args": {"x": [0.25, 7]}})", r);
  std::setlocale(LC_NUMERIC, before.c_str());
  ASSERT_TRUE(s.ok()) << s.to_string();
  EXPECT_EQ(r.id.json, "-1.5e3");
  EXPECT_EQ(r.args.json, R"({"x":[0.25,7]})");
}

TEST(Request, WhatIsWrongIsNamed) {
  EXPECT_THAT(refused("{"), HasSubstr("invalid JSON at column 2"));
  EXPECT_THAT(refused("[]"), HasSubstr("invalid request: expected an object, got []"));
  EXPECT_THAT(refused(R"({"v": 2, "command": "stats"})"),
              HasSubstr("invalid v: expected 1, got 2"));
  EXPECT_THAT(refused(R"({"command": "stats"})"), HasSubstr("invalid v: expected 1, got none"));
  EXPECT_THAT(refused(R"({"v": 1})"), HasSubstr("invalid command: expected a string, got none"));
  EXPECT_THAT(refused(R"({"v": 1, "command": 7})"), HasSubstr("invalid command"));
  EXPECT_THAT(refused(R"({"v": 1, "id": {}, "command": "a"})"), HasSubstr("invalid id"));
  EXPECT_THAT(refused(R"({"v": 1, "command": "a", "args": []})"), HasSubstr("invalid args"));
  EXPECT_THAT(refused(R"({"v": 1, "command": "a", "runtime": "x"})"), HasSubstr("invalid runtime"));
  EXPECT_THAT(refused(R"({"v": 1, "comand": "a"})"), HasSubstr("did you mean 'command'?"));
}

TEST(Request, AnIdThatIsNeitherANumberNorAStringIsNotRepeated) {
  for (const char* id : {"{}", "[]", "[1]"}) {
    Request r;
    const Status s = parse_request(fmt::format(R"({{"v": 1, "id": {}, "command": "a"}})", id), r);
    EXPECT_THAT(answer(r, s), HasSubstr(R"({"v": 1, "id": null, "ok": false, )"));
  }
}

TEST(Request, OnlyStrictJsonIsRead) {
  for (const char* text : {"", "nul", "01", "1.", "'a'", "[1,]", "{\"a\": 1,}", "{a: 1}", "1 2",
                           "\"\t\"", "\"\\x\"", "\"\\ud800\"", "\"\xff\"", "// a\n1"})
    EXPECT_THAT(refused(text), HasSubstr("invalid JSON at column ")) << text;
  EXPECT_THAT(refused(R"({"v": 1, "command": "a", "args": {"x": 1, "x": 2}})"),
              HasSubstr("the key \"x\" occurs twice"));
}

TEST(Request, DepthIsBounded) {
  const auto nested = [](size_t levels) {
    return R"({"v": 1, "command": "a", "args": {"x": )" + std::string(levels, '[') +
           std::string(levels, ']') + "}}";
  };
  EXPECT_EQ(refused(nested(30)), "");
  EXPECT_THAT(refused(nested(31)), HasSubstr("at most 32 levels"));
  EXPECT_THAT(refused(std::string(1'000'000, '[')), HasSubstr("at most 32 levels"));
}

TEST(Request, AnswersAreOneLineAndNameTheRequest) {
  Request r;
  EXPECT_FALSE(parse_request(R"({"v": 1, "id": 7})", r).ok());
  EXPECT_EQ(answer(r, std::string("{\"a\":\n 1}")),
            R"({"v": 1, "id": 7, "ok": true, "result": {"a":  1}})");
  Status s(Code::kNotFound, "no \"x\"\n");
  s.note("a note");
  const std::string line = answer(r, s);
  EXPECT_EQ(line, R"({"v": 1, "id": 7, "ok": false, "error": {"code": "not_found", )"
                  R"("message": "no \"x\"\u000a", "notes": ["a note"]}})");
  EXPECT_TRUE(nlohmann::json::accept(line));
}

}  // namespace
}  // namespace yard::inspect
