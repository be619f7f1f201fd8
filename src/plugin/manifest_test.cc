// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "plugin/manifest.h"

namespace yard::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kText =
    "abi=0\narch=aarch64\nsanitizer=none\nname=acme\nversion=1.0-rc2+x\nbuild=g12\n"
    "devices=cpu cuda\nfeatures=sve2 cuda:sm_90\nops=rms_norm  scale rms_norm\nfunctions=fla\n";

Manifest read(const std::string& text) {
  Manifest m;
  const Refusal r = parse_manifest(text, m);
  EXPECT_FALSE(r.refused()) << r.detail;
  return m;
}

std::string refused(const std::string& text) {
  Manifest m;
  const Refusal r = parse_manifest(text, m);
  EXPECT_EQ(r.reason, PluginReason::kBadManifest) << text;
  return r.detail;
}

TEST(Manifest, IsReadAndWritten) {
  const Manifest m = read(kText);
  EXPECT_EQ(m.abi, 0u);
  EXPECT_EQ(m.arch, "aarch64");
  EXPECT_EQ(m.name, "acme");
  EXPECT_EQ(m.version, "1.0-rc2+x");
  EXPECT_EQ(m.build, "g12");
  EXPECT_THAT(m.devices, ElementsAre("cpu", "cuda"));
  EXPECT_THAT(m.features, ElementsAre("sve2", "cuda:sm_90"));
  EXPECT_THAT(m.ops, ElementsAre("rms_norm", "scale"));
  EXPECT_THAT(m.groups, ElementsAre("fla"));
}

TEST(Manifest, MadeByTheMacroReadsBack) {
  const Manifest m =
      read(YARD_MANIFEST_TEXT("acme", "1.0",
                              YARD_MANIFEST_OPS("a b") YARD_MANIFEST_BUILD("t")
                                  YARD_MANIFEST_DEVICES("cuda") YARD_MANIFEST_FUNCTIONS("g")));
  EXPECT_EQ(m.abi, YARD_ABI_VERSION);  // YARD_ABI_TEXT must agree
  EXPECT_EQ(m.arch, YARD_ARCH_);
  EXPECT_THAT(m.ops, ElementsAre("a", "b"));
  EXPECT_THAT(m.devices, ElementsAre("cuda"));
  EXPECT_FALSE(check_manifest(m, {}).refused());
}

TEST(Manifest, UnknownKeysAreSkipped) {
  EXPECT_EQ(read(kText + "colour=blue and more\nshape=\n").name, "acme");
}

TEST(Manifest, ErrorsAreNamed) {
  for (const char* key : {"abi", "arch", "sanitizer", "name", "version"}) {
    std::string text = kText;
    const size_t at = text.find(std::string(key) + "=");
    text.erase(at, text.find('\n', at) + 1 - at);
    EXPECT_THAT(refused(text), HasSubstr(key));
  }
  EXPECT_THAT(refused(kText + "ops=x\n"), HasSubstr("duplicate key"));
  EXPECT_THAT(refused(kText + "nonsense\n"), HasSubstr("nonsense"));
  EXPECT_THAT(refused(kText + "=x\n"), HasSubstr("key=value"));
  EXPECT_THAT(refused("abi=-1\n"), HasSubstr("-1"));
  EXPECT_THAT(refused("abi=4294967296\n"), HasSubstr("abi"));
  EXPECT_THAT(refused("abi=1x\n"), HasSubstr("1x"));
  EXPECT_THAT(refused("abi=\n"), HasSubstr("abi"));
  EXPECT_THAT(refused("name=a b\n"), HasSubstr("name"));
  EXPECT_THAT(refused("name=" + std::string(129, 'a') + "\n"), HasSubstr("name"));
  EXPECT_THAT(refused("version=\x01\n"), HasSubstr("version"));
  EXPECT_THAT(refused("ops=a,b\n"), HasSubstr("ops"));
  EXPECT_THAT(refused("devices=toaster\n"), HasSubstr("toaster"));
  EXPECT_THAT(refused("features=toaster:hot\n"), HasSubstr("toaster"));
  EXPECT_THAT(refused(std::string("name=a\0b\n", 9)), HasSubstr("name"));
  EXPECT_THAT(refused(std::string(70000, '\n')), HasSubstr("70000"));
  std::string many = kText;
  for (int i = 0; i < 300; ++i) many += "k" + std::to_string(i) + "=\n";
  EXPECT_THAT(refused(many), HasSubstr("256"));
  refused("");
}

TEST(Manifest, IsComparedWithTheProcess) {
  Process process;
  process.arch = "aarch64", process.sanitizer = "none";
  process.newest_abi = 3, process.oldest_abi = 2;
  Manifest m = read(kText);
  m.features.clear();
  m.abi = 2;
  EXPECT_FALSE(check_manifest(m, process).refused());
  const auto reason = [&](auto change) {
    Manifest changed = m;
    change(changed);
    const Refusal r = check_manifest(changed, process);
    EXPECT_FALSE(r.detail.empty());
    return r.reason;
  };
  EXPECT_EQ(reason([](Manifest& x) { x.abi = 4; }), PluginReason::kAbiTooNew);
  EXPECT_EQ(reason([](Manifest& x) { x.abi = 1; }), PluginReason::kAbiTooOld);
  EXPECT_EQ(reason([](Manifest& x) { x.arch = "x86_64"; }), PluginReason::kOtherMachine);
  EXPECT_EQ(reason([](Manifest& x) { x.sanitizer = "thread"; }), PluginReason::kOtherSanitizer);
  EXPECT_EQ(reason([](Manifest& x) { x.features = {"sve2"}; }), PluginReason::kMissingFeature);
}

TEST(Manifest, FeaturesAreQueriedFromTheHost) {
  yard_host_t host{};
  host.has_feature = [](void*, yard_device_t device, const char* name) -> int32_t {
    if (device.type == 2) return std::string(name) == "sm_90" ? 1 : 0;
    return std::string(name) == "sve2" ? 1 : -1;
  };
  Process process;
  process.arch = "aarch64", process.sanitizer = "none", process.host = &host;
  Manifest m = read(kText);
  EXPECT_FALSE(check_manifest(m, process).refused());
  m.features = {"cuda:sm_100"};
  EXPECT_THAT(check_manifest(m, process).detail, HasSubstr("has not been stated"));
  m.features = {"avx1024"};
  EXPECT_THAT(check_manifest(m, process).detail,
              HasSubstr("expected a feature of the processor that is known"));
}

}  // namespace
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(YARD_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Returns "kOtherSanitizer" for "other_sanitizer".
std::string enumerator(const char* name) {
  std::string to = "k";
  for (bool large = true; *name != '\0'; ++name) {
    if (*name == '_')
      large = true;
    else
      to += large ? static_cast<char>(std::toupper(static_cast<unsigned char>(*name))) : *name,
          large = false;
  }
  return to;
}

TEST(PluginReasons, TheTableHoldsEveryEnumeratorInOrder) {
  const std::string header = text_of("include/yard/plugins.h");
  size_t at = header.find("enum class PluginReason {");
  ASSERT_NE(at, header.npos);
  const size_t end = header.find('}', at);
  for (size_t i = 0; i < reasons().size(); ++i) {
    const RefusalReason& r = reasons()[i];
    EXPECT_STREQ(to_string(static_cast<PluginReason>(i)), r.name);
    at = header.find(" " + enumerator(r.name), at);
    ASSERT_LT(at, end) << r.name;
  }
  size_t count = 0;
  for (size_t k = header.find("enum class PluginReason {"); (k = header.find(" k", k)) < end; ++k)
    ++count;
  EXPECT_EQ(count, reasons().size());
  EXPECT_STREQ(to_string(static_cast<PluginReason>(4711)), "unknown");
}

TEST(PluginReasons, ThePageListsEachOnce) {
  std::istringstream page(text_of("docs/reference/plugin_reasons.md"));
  std::vector<std::string> rows;
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| `"))
      rows.push_back(line);
    else if (!rows.empty())
      break;                                     // the end of the table
  ASSERT_EQ(rows.size(), reasons().size() - 1);  // all but `none`
  for (size_t i = 1; i < reasons().size(); ++i) {
    const RefusalReason& r = reasons()[i];
    const std::string begin = "| `" + std::string(r.name) + "` | ";
    EXPECT_EQ(rows[i - 1].substr(0, begin.size()), begin);
    const size_t what_to_do = rows[i - 1].find(" | ", begin.size());
    ASSERT_NE(what_to_do, std::string::npos) << r.name;
    EXPECT_GT(rows[i - 1].size(), what_to_do + 8) << r.name;
  }
}

TEST(PluginReasons, AStatusNamesPathReasonAndDetail) {
  const Status s = to_status("/a.so", {PluginReason::kDuplicateName, "twice"});
  EXPECT_EQ(s.code(), Code::kConflict);
  EXPECT_EQ(s.message(), "plugin /a.so is refused: duplicate_name: twice");
}

}  // namespace
}  // namespace yard::plugin
