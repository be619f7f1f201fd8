// SPDX-License-Identifier: Apache-2.0
// Tests YAML trees: places, duplicates, aliases, limits, and invalid YAML.
#include "base/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yard::base {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = YamlNode::Kind;

YamlNode read(std::string_view text) {
  YamlDocument d = parse_yaml(text);
  for (const YamlError& e : d.errors) ADD_FAILURE() << e.message;
  return d.root;
}

std::string error(std::string_view text) {
  const YamlDocument d = parse_yaml(text);
  if (d.errors.empty()) return "none";
  const YamlError& e = d.errors[0];
  return std::to_string(e.at.line) + ":" + std::to_string(e.at.column) + ": " + e.message;
}

TEST(Yaml, EveryKeyAndValueKnowsItsPlace) {
  const YamlNode n = read("a: 1\nb:\n  - x\n  - {c: \"8\", d: }\n");
  ASSERT_EQ(n.kind, Kind::kMap);
  EXPECT_EQ(n.entries[1].key_at, (YamlMark{2, 1}));
  EXPECT_EQ(n.find("a")->at, (YamlMark{1, 4}));
  EXPECT_FALSE(n.find("a")->quoted);
  const YamlNode& map = n.find("b")->items[1];
  EXPECT_EQ(map.at, (YamlMark{4, 5}));
  EXPECT_EQ(map.entries[0].key_at, (YamlMark{4, 6}));
  EXPECT_TRUE(map.find("c")->quoted);
  EXPECT_EQ(map.find("d")->kind, Kind::kNull);
  EXPECT_EQ(n.find("z"), nullptr);
}

TEST(Yaml, JsonIsYaml) {
  const YamlNode n = read("{\"a\": [1, 2.5, true, \"x\\u0041\"], \"b\": {\"c\": null}}");
  EXPECT_EQ(n.find("a")->items[3].text, "xA");
  EXPECT_TRUE(n.find("a")->items[3].quoted);
  EXPECT_EQ(n.find("b")->find("c")->kind, Kind::kNull);
}

TEST(Yaml, EmptyTextIsNothing) {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "\xef\xbb\xbf"})
    EXPECT_EQ(read(text).kind, Kind::kNull) << text;
}

TEST(Yaml, AliasesAreCopies) {
  const YamlNode n = read("a: &x [1, 2]\nb: *x\n");
  EXPECT_EQ(n.find("b")->items.size(), 2u);
  EXPECT_EQ(n.find("b")->at, (YamlMark{2, 4}));
}

TEST(Yaml, AKeyTwiceIsAnErrorAndTheFirstStays) {
  const YamlDocument d = parse_yaml("a: 1\nb: 2\na: 3\nb: 4\n");
  ASSERT_EQ(d.errors.size(), 2u);
  EXPECT_TRUE(d.whole);
  EXPECT_EQ(error("a: 1\nb: 2\na: 3\n"),
            "3:1: the key \"a\" is there already, in line 1; expected once");
  EXPECT_EQ(d.root.find("a")->text, "1");
  EXPECT_EQ(d.root.entries.size(), 2u);
}

TEST(Yaml, InvalidYamlIsRefusedWithItsPlace) {
  EXPECT_EQ(error("a: [1, 2\nb: 3\n"), "1:4: '[' is not closed; expected ']' before line 2");
  EXPECT_EQ(error("r:\n  - {a: 1, b: {c: 2}\n  - {a: 3}\n"),
            "2:5: '{' is not closed; expected '}' before line 3");
  EXPECT_EQ(error("r:\n  - {a: [1,\n  2], b: {c: 2}}\n  - {a: 3}\ns: {\na: [\n{b: 1}\n"),
            "6:4: '[' is not closed; expected ']' before line 7");
  EXPECT_THAT(error("a: [1,\n2]\nb: c: d\n"), StartsWith("3:5: invalid YAML: "));
  EXPECT_EQ(error("{\n\"a\": [1, 2,\n\"b\": 3\n}\n"),
            "2:6: '[' is not closed; expected ']' before the '}' in line 4");
  EXPECT_EQ(error("a: [1, {b: 2]\n"),
            "1:8: '{' is not closed; expected '}' before the ']' in line 1");
  EXPECT_EQ(error("a: it's [1\nb: {c: 'd}\n"),
            "2:8: ''' is not closed; expected ''' before the end of the file");
  EXPECT_EQ(error("- {a: \"[\", b: 1}  # {\n- [2,\n"),
            "2:3: '[' is not closed; expected ']' before the end of the file");
  EXPECT_THAT(error("a: b: c\n"), StartsWith("1:5: invalid YAML: "));
  EXPECT_EQ(error("a: \"half a file\n"),
            "1:4: '\"' is not closed; expected '\"' before the end of the file");
  EXPECT_THAT(error("a: *nobody\n"), StartsWith("1:4: invalid YAML: "));
  EXPECT_THAT(error("\ta: 1\n"), HasSubstr("invalid YAML"));
  EXPECT_EQ(error("a: 1\n---\nb: 2\n"),
            "2:1: a second document begins here; expected one document");
  EXPECT_EQ(error("[a]: 1\n"), "1:1: a list cannot be a key; expected text");
  EXPECT_EQ(error("a: 1\n~: 2\n"), "2:1: nothing cannot be a key; expected text");
  EXPECT_EQ(error("a: !thing 3\n"), "1:4: the tag \"!thing\" is not valid here; expected no tag");
  EXPECT_EQ(error("a: &x [*x]\n"), "1:8: this alias names a value that contains it");
}

TEST(Yaml, BytesThatAreNoTextAreRefused) {
  EXPECT_EQ(error("a: 1\nb: \xff\n"), "2:4: these bytes are not UTF-8; expected text");
  EXPECT_EQ(error(std::string_view("a\0b", 3)),
            "1:2: the control character 0x00 cannot stand here; expected text");
  EXPECT_THAT(error("a: \x04"), HasSubstr("0x04"));
}

TEST(Yaml, LimitsHold) {
  EXPECT_THAT(error(std::string(100, '[') + std::string(100, ']')),
              HasSubstr("nested too deeply; expected at most 64"));
  // An unclosed bracket could begin a key.
  for (const char* open : {"[", "{", "[{", "[ \n "}) {
    std::string never_closed = "a: ";
    for (int i = 0; i < 50000; ++i) never_closed += open;
    EXPECT_THAT(error(never_closed), HasSubstr("nested too deeply; expected at most 64")) << open;
  }
  EXPECT_THAT(error("[[1, 2]: 3]"), HasSubstr("a list cannot be a key"));
  EXPECT_THAT(error(std::string(kMostYamlBytes + 1, ' ')),
              HasSubstr("4194305 bytes are too many; expected at most 4194304"));
  std::string list = "[";
  for (size_t i = 0; i < kMostYamlValues; ++i) list += "1,";
  EXPECT_THAT(error(list + "]"), HasSubstr("too large; expected at most 200000 values"));
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    std::string all;
    for (int k = 0; k < 10; ++k) all += (k ? ", *a" : "*a") + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + all + "]\n";
  }
  EXPECT_THAT(error(bomb), HasSubstr("too large"));
  std::string deep = "a0: &a0 [x]\n";
  for (int i = 1; i < 100; ++i)
    deep += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) +
            "]\n";
  EXPECT_THAT(error(deep), HasSubstr("nested too deeply"));
}

TEST(Yaml, NumbersAreDecimalAndWhole) {
  EXPECT_EQ(yaml_whole_number("42"), 42);
  EXPECT_EQ(yaml_whole_number("-7"), -7);
  EXPECT_EQ(yaml_whole_number("+7"), 7);
  for (const char* bad :
       {"", "+", "-", "+-7", "1.0", "1e3", "0x10", "8 ", "99999999999999999999", "x"})
    EXPECT_FALSE(yaml_whole_number(bad)) << bad;
  EXPECT_EQ(yaml_number("1e-6"), 1e-6);
  EXPECT_EQ(yaml_number("-.5"), -0.5);
  EXPECT_EQ(yaml_number("-.inf"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(*yaml_number(".nan")));
  for (const char* bad : {"", "inf", "nan", "-inf", "--1", "1.0x", "e5", "."})
    EXPECT_FALSE(yaml_number(bad)) << bad;
}

TEST(Yaml, ScalarsThatArePrintedAreReadBack) {
  for (const char* text : {"plain",
                           "attention.*",
                           "*_experimental",
                           "a b",
                           "8",
                           "1e-6",
                           "",
                           "null",
                           "true",
                           "- x",
                           "#x",
                           "a: b",
                           "\"quoted\"",
                           "back\\slash",
                           "line\nbreak",
                           "tab\there",
                           "\x7f",
                           "\xc2\x85",
                           "\xe2\x80\xa8",
                           "ä",
                           "/etc/x.yaml",
                           "~",
                           "?",
                           "%",
                           "@",
                           "[",
                           "-5",
                           ".inf",
                           "-"})
    for (const bool quoted : {false, true}) {
      const YamlNode n =
          read("k: " + yaml_scalar(text, quoted) + "\nl: [" + yaml_scalar(text) + "]\n");
      EXPECT_EQ(n.find("k")->text, text);
      EXPECT_EQ(n.find("l")->items[0].text, text);
      if (quoted) {
        EXPECT_TRUE(n.find("k")->quoted);
      }
    }
  EXPECT_EQ(yaml_scalar("attention.*"), "attention.*");
  EXPECT_EQ(yaml_scalar("8"), "8");
  EXPECT_EQ(yaml_scalar("*_x"), "\"*_x\"");
}

}  // namespace
}  // namespace yard::base
