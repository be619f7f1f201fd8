// SPDX-License-Identifier: Apache-2.0
// Tests rule files: what each part sets, includes, printing, differences, and the schema for
// editors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yard/config.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/testing_files.h"
#include "policy/config_rows.h"
#include "policy/fields.h"
#include "policy/testing_config.h"

namespace yard::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

// Copied word for word from the documentation of LayerZero.
constexpr const char* kPeers = R"(version: "1.0"
defaults: {fallback_policy: torch_sdpa, default_priority: 50}     # priority 0–1000
dispatch_rules:
  - operation: "attention.*"                                      # glob
    conditions: {batch_size_gte: 8, dtype: [float16, bfloat16]}   # a list means one of
    kernel: flash_attention_v2
    priority: 100
kernel_locks:    {attention.causal: flash_attention_v2}           # op or glob
kernel_denies:   ["*_experimental"]
kernel_allows:   ["flash_attn.*", "torch_sdpa"]
fallback_chains: {attention.causal: [flash_attention_v2, xformers_memory_efficient, torch_sdpa]}
)";

// Every part of the grammar.
constexpr const char* kWhole = R"(version: "1.0"
defaults:
  fallback_policy: [torch_sdpa, {kernel: later, optional: true}]
  default_priority: 40
dispatch_rules:
  - name: long prompts
    description: "prefill of tenant a: flash"
    operation: attention.*
    conditions:
      seq_len_gte: 8192
      label.tenant_in: [a, "8"]
      phase: prefill
      dropout_p_lt: 0.5
    kernel: flash_attention_v2
    priority: 900
  - operation: rms_norm
    kernel: default.*
    optional: true
kernel_locks: {attention.causal: {kernel: torch_sdpa, optional: true}}
kernel_denies: "*_experimental"
kernel_allows: ["flash*", torch_sdpa, default.simd]
fallback_chains: {"attention.*": [torch_sdpa]}
policy:
  prefer: vendor
  strict: off
  reference_only: false
  per_op: {rms_norm: [vendor:acme, impl:default.simd, reference]}
  allow_vendors: [acme, intel]
  deny_vendors: intel
  backends: {simd: on}
static_kernel_map: {rms_norm: reference.cpp}
functions:
  kda: {deny: [slow], backends: [fast, slow]}
  "kda/*": {enabled: off}
score:
  - kernel: default.*
    add: 5
    multiply: 1.5
  - operation: rms_norm
    conditions: {hidden_gte: 1024}
    kernel: vendor.onednn
    multiply: 0
settings:
  mode: config
  modes: {rms_norm: static, "attention.*": shadow}
  cache: {enabled: true, size: 5000}
  max_fallback_attempts: 2
  reload: {debounce: 50ms, poll_interval: 2}
  breaker:
    enabled: true
    failure_threshold: 7
    failure_percent: 60
    failure_min_calls: 30
    failure_window: 3s
    cooldown: 5s
    cooldown_growth: 1.5
    cooldown_cap: 1m
    success_threshold: 3
    half_open_max_calls: 4
)";

ConfigReading read(const std::string& text, const Texts& others = {}) {
  return parse_config_from(text, "dir/rules.yaml", opener(others));
}
Config good(const std::string& text) {
  ConfigReading r = read(text);
  for (const ConfigProblem& p : r.problems) ADD_FAILURE() << to_string(p);
  return r.config;
}

TEST(Config, TheFileOfOthersLoadsAsItStands) {
  const TestKnown known = usual_ops();
  ConfigReading r = parse_config_from(kPeers, "rules.yaml", opener({}));
  RulesByOp compiled;
  check_reading(r, known, &compiled);
  for (const ConfigProblem& p : r.problems)  // some statements exclude each other
    EXPECT_EQ(p.severity, Severity::kWarning) << to_string(p);
  const Config& c = r.config;
  EXPECT_EQ(c.defaults.fallback_policy[0].id, "torch_sdpa");
  EXPECT_EQ(c.defaults.default_priority, 50);
  EXPECT_EQ(c.dispatch_rules[0].priority, 100);
  EXPECT_EQ(to_string(policy_of(c)),
            "allow_kernels=flash_attn.*,torch_sdpa deny_kernels=*_experimental "
            "locks[attention.causal]=flash_attention_v2");
  EXPECT_EQ(chain_of(c, "attention.causal").size(), 3u);
  EXPECT_EQ(chain_of(c, "attention.full")[0].id, "torch_sdpa");
  ASSERT_EQ(std::count_if(compiled.begin(), compiled.end(),
                          [](const auto& of) { return of.second != nullptr; }),
            2);
  const auto matches = [&](const std::string& call) {
    const TestCall tc(known, call);
    return compiled.at(known.ops.at("attention.full").program)->match(tc.view()).size();
  };
  const std::string bf16 = "[8,64,4,32], ", kv = "[8,9,2,32]";
  EXPECT_EQ(matches("attention.full(bf16" + bf16 + "bf16" + kv + ", bf16" + kv + ")"), 1u);
  EXPECT_EQ(matches("attention.full(f32" + bf16 + "f32" + kv + ", f32" + kv + ")"), 0u);
  EXPECT_EQ(matches("attention.full(f16[7,64,4,32], f16[7,9,2,32], f16[7,9,2,32])"), 0u);
}

TEST(Config, EveryPartSetsItsValue) {
  const Config c = good(kWhole);
  EXPECT_TRUE(c.defaults.fallback_policy[1].optional);
  const DispatchRule& r = c.dispatch_rules[0];
  EXPECT_EQ(r.name, "long prompts");
  EXPECT_EQ(r.description, "prefill of tenant a: flash");
  ASSERT_EQ(r.conditions.size(), 4u);
  EXPECT_EQ(r.conditions[1].key, "label.tenant_in");
  EXPECT_TRUE(r.conditions[1].list);
  EXPECT_TRUE(r.conditions[1].values[1].quoted);
  EXPECT_EQ(r.at.line, 6u);
  EXPECT_EQ(r.kernel_at.line, 14u);
  EXPECT_TRUE(c.dispatch_rules[1].optional);
  EXPECT_EQ(c.kernel_locks.at("attention.causal"), (KernelRef{"torch_sdpa", true, {}}));
  EXPECT_EQ(c.kernel_denies.size(), 1u);
  EXPECT_EQ(to_string(c.policy),
            "prefer=vendor strict=false reference_only=false "
            "per_op[rms_norm]=vendor:acme|impl:default.simd|reference allow_vendors=acme,intel "
            "deny_vendors=intel backends[simd]=on");
  EXPECT_EQ(c.static_kernel_map.at("rms_norm").id, "reference.cpp");
  EXPECT_EQ(c.functions.at("kda").backends, (std::vector<std::string>{"fast", "slow"}));
  EXPECT_EQ(c.functions.at("kda").deny, std::vector<std::string>{"slow"});
  EXPECT_EQ(c.functions.at("kda/*").enabled, false);
  EXPECT_EQ(c.score[0].operation, "*");
  EXPECT_EQ(c.score[0].multiply, 1.5);
  EXPECT_EQ(c.score[1].multiply, 0);
  const ConfigSettings& s = c.settings;
  EXPECT_EQ(s.mode, "config");
  EXPECT_EQ(*mode_of(c, "rms_norm"), "static");
  EXPECT_EQ(*mode_of(c, "attention.full"), "shadow");
  EXPECT_EQ(*mode_of(c, "rotary"), "config");
  EXPECT_EQ(s.cache, (ConfigSettings::Cache{true, 5000, {}}));
  EXPECT_EQ(s.max_fallback_attempts, 2);
  EXPECT_EQ(s.reload, (ConfigSettings::Reload{50ms, 2s}));
  EXPECT_EQ(breaker_of(c), (BreakerSettings{true, 7, 60, 30, 3s, 5s, 1.5, 1min, 3, 4}));
}

TEST(Config, JsonIsReadAsWell) {
  const Config c = good(R"({"version": "1.0", "dispatch_rules": [
      {"operation": "rms_norm", "conditions": {"hidden": [1, 2]}, "kernel": "default.simd"}]})");
  EXPECT_EQ(c.dispatch_rules[0].conditions[0].values.size(), 2u);
}

TEST(Config, WhatIsPrintedReadsBackAsTheSame) {
  for (const char* text : {kPeers, kWhole, "version: 1\n"}) {
    const Config c = good(text);
    const std::string yaml = to_yaml(c);
    const ConfigReading again = parse_config_from(yaml, "rules.yaml", opener({}));
    for (const ConfigProblem& p : again.problems) ADD_FAILURE() << to_string(p) << "\n" << yaml;
    // The first reading made paths absolute below dir/, so this one leaves them unchanged.
    EXPECT_EQ(again.config, c) << yaml;
    EXPECT_EQ(to_yaml(again.config), yaml);
  }
}

TEST(Config, TheWeakerWordOfAnIncludedFileFillsTheGaps) {
  const Texts files = {{"dir/base.yaml", R"(
include: more/deep.yaml
dispatch_rules: [{operation: rms_norm, kernel: vendor.onednn}]
kernel_locks: {a: x, b: y}
kernel_denies: [d1, d2]
kernel_allows: [z]
settings: {cache: {size: 7, enabled: false}, modes: {a: static}}
defaults: {default_priority: 7}
)"},
                       {"dir/more/deep.yaml", "kernel_denies: [d3]\n"}};
  const ConfigReading r = read(R"(
version: "1.0"
include: [base.yaml]
dispatch_rules: [{operation: rms_norm, kernel: default.simd}]
kernel_locks: {a: own}
kernel_denies: [d2]
settings: {cache: {size: 8}}
)",
                               files);
  for (const ConfigProblem& p : r.problems) ADD_FAILURE() << to_string(p);
  const Config& c = r.config;
  EXPECT_EQ(c.dispatch_rules[0].kernel, "default.simd");
  EXPECT_EQ(c.dispatch_rules[1].kernel, "vendor.onednn");
  EXPECT_EQ(c.sources.files[c.dispatch_rules[1].at.file], "dir/base.yaml");
  EXPECT_EQ(c.kernel_locks.at("a").id, "own");
  EXPECT_EQ(c.kernel_locks.at("b").id, "y");
  EXPECT_EQ(c.kernel_denies.size(), 3u);
  EXPECT_EQ(c.kernel_allows->size(), 1u);
  EXPECT_EQ(c.settings.cache.size, 8);
  EXPECT_EQ(c.settings.cache.enabled, false);
  EXPECT_EQ(c.defaults.default_priority, 7);
  EXPECT_THAT(r.files, ElementsAre("dir/rules.yaml", "dir/base.yaml", "dir/more/deep.yaml"));
  EXPECT_EQ(r.sha256.size(), 64u);
  EXPECT_NE(read("version: 1", files).sha256, r.sha256);
}

TEST(Config, IncludesThatLeadNowhereOrInCirclesAreRefused) {
  const Texts files = {{"dir/a.yaml", "include: b.yaml\n"},
                       {"dir/b.yaml", "include: ../dir/a.yaml\n"},
                       {"dir/self.yaml", "include: rules.yaml\n"},
                       {"dir/bad.yaml", "kernel_lock: {}\n"}};
  const auto lines = [&](const std::string& text) {
    std::vector<std::string> to;
    const ConfigReading r = read("version: 1\ninclude: " + text + "\n", files);
    for (const ConfigProblem& p : r.problems) to.push_back(to_string(p));
    return to;
  };
  EXPECT_THAT(
      lines("nobody.yaml"),
      ElementsAre("dir/rules.yaml:2:10: error: include: \"dir/nobody.yaml\" cannot be opened: "
                  "No such file or directory; expected a file, relative to this one"));
  EXPECT_THAT(lines("a.yaml"), ElementsAre("dir/b.yaml:1:10: error: include: \"dir/../dir/a.yaml\" "
                                           "includes itself; expected each file once"));
  EXPECT_THAT(lines("self.yaml"),
              ElementsAre("dir/self.yaml:1:10: error: include: \"dir/rules.yaml\" includes itself; "
                          "expected each file once"));
  EXPECT_THAT(lines("[bad.yaml, bad.yaml]"),
              ElementsAre("dir/rules.yaml:2:21: error: include[1]: \"dir/bad.yaml\" is included "
                          "already, by dir/rules.yaml:2; expected each file once",
                          "dir/bad.yaml:1:1: error: unknown key; did you mean "
                          "'kernel_locks'?"));
  Texts chain;
  for (int i = 0; i < 20; ++i)
    chain[std::to_string(i) + ".yaml"] = "include: " + std::to_string(i + 1) + ".yaml\n";
  const ConfigReading r = parse_config_from("version: 1\ninclude: 0.yaml", "r.yaml", opener(chain));
  ASSERT_EQ(r.problems.size(), 1u);
  EXPECT_EQ(to_string(r.problems[0]),
            "7.yaml:1:10: error: include: included too deeply; expected at most 8 levels");
  // Missing files are watched, too.
  EXPECT_THAT(read("version: 1\ninclude: gone.yaml\n").files,
              ElementsAre("dir/rules.yaml", "dir/gone.yaml"));
}

// An include can name any file, also one with secrets.
TEST(Config, WhatAnIncludedFileHoldsAppearsInNoError) {
  for (const std::string text : {"root:$6$hunter2:19000:0:99999:7:::\nuser:hunter2:\n",
                                 "hunter2",
                                 "- hunter2\n",
                                 "hunter2: 1\n",
                                 "version: hunter2\n",
                                 "settings: {mode: [hunter2]}\n",
                                 "settings: {hunter2: 1}\n",
                                 "settings: {cache: {size: hunter2}}\n",
                                 "settings: {breaker: {cooldown: hunter2, hunter2: 1}}\n",
                                 "dispatch_rules: [{operation: 'hunter2 x', kernel: a}]\n",
                                 "score: [{kernel: a, add: hunter2}]\n",
                                 "policy: {per_op: {'hunter2 x': [a]}}\n",
                                 "policy: {prefer: hunter2, deny_vendors: [hunter2, hunter2]}\n",
                                 "kernel_denies: ['hunter2 x', {kernel: hunter2, hunter2: 2}]\n",
                                 "static_kernel_map: {'hunter2 x': {y: z}}\n",
                                 "a: &hunter2 [*hunter2x]\n",
                                 "hunter2: {\n",
                                 "hunter2: 1\nhunter2: 2\n",
                                 "'hunter2",
                                 "!hunter2 a: b\n",
                                 "-----BEGIN KEY-----\nhunter2==\n-----END KEY-----\n",
                                 "\thunter2: [\n",
                                 "%hunter2\n",
                                 "[machine, {login: hunter2, password: hunter2}]",
                                 "{\"hunter2\": \"hunter2\"}"}) {
    const ConfigReading r = read("version: 1\ninclude: secret\n", {{"dir/secret", text}});
    EXPECT_FALSE(r.ok()) << text;
    for (const ConfigProblem& p : r.problems)
      EXPECT_THAT(to_string(p), Not(HasSubstr("hunter2"))) << text;
  }
  const ConfigReading r = read("version: 1\ninclude: more.yaml\n",
                               {{"dir/more.yaml", "settings: {cache: {size: hunter2}}"}});
  EXPECT_EQ(
      to_string(r.problems.at(0)),
      "dir/more.yaml:1:26: error: settings.cache.size: invalid value; expected a whole number "
      "from 1 to 10000000");
}

TEST(Config, ARuleFileHasFilesWrittenOnlyBelowAFolderThatItCannotChoose) {
  const base::TempFolder folder;
  std::filesystem::create_directories(folder / "rules/logs");
  std::filesystem::create_directories(folder / "other");
  std::filesystem::create_directory_symlink(folder / "other", folder / "rules/logs/way_out");
  TestKnown known = usual_ops();
  // Tries the statement in the file itself and in an included file.
  const auto problem = [&](const std::string& text) {
    std::string of_file;
    for (const bool included : {false, true}) {
      ConfigReading r = parse_config_from(
          included ? "version: 1\ninclude: more.yaml" : "version: 1\n" + text,
          folder / "rules/rules.yaml", opener({{folder / "rules/more.yaml", "\n" + text}}));
      check_reading(r, known);
      const std::string one = r.problems.empty() ? "" : to_string(r.problems[0]);
      if (!included) of_file = one;
      EXPECT_EQ(one.empty(), of_file.empty()) << text << one;
    }
    return of_file;
  };
  const auto record = [&](const std::string& path) {
    return problem("settings: {telemetry: {record: " + path + "}}");
  };
  const auto dump = [&](const std::string& path) {
    return problem(
        "canary: {op: rms_norm, kernel: default.simd, against: vendor.onednn, "
        "one_in: 1, dump: " +
        path + "}");
  };
  for (const char* in : {"calls.txt", "logs/new/calls.%p.txt"}) EXPECT_EQ(record(in), "");
  for (const char* in : {"dumps", "logs/new", "."}) EXPECT_EQ(dump(in), "");
  EXPECT_EQ(record("../other/x"),
            (folder / "rules/rules.yaml") +
                ":2:32: error: settings.telemetry.record: expected a path below " +
                (folder / "rules") + ", which YARD_OUTPUT_DIRECTORY can change, got \"" +
                (folder / "rules/../other/x") + "\"");
  for (const char* out : {"/etc/passwd", "logs/../../x", "logs/way_out/x", "../rules_too/x"}) {
    EXPECT_THAT(record(out), HasSubstr("settings.telemetry.record: expected a path below")) << out;
    EXPECT_THAT(dump(out), HasSubstr("canary[0].dump: expected a path below")) << out;
  }
  EXPECT_THAT(dump("logs/way_out"), HasSubstr("canary[0].dump: expected a path below"));
  EXPECT_THAT(problem("settings: {telemetry: {directory: /}}"), HasSubstr("unknown key"));
  EXPECT_EQ(problem("settings: {events: events.txt}"), "");
  EXPECT_THAT(problem("settings: {events: ../x}"),
              HasSubstr("settings.events: expected a path below"));
  known.output_directory = folder / "other";
  EXPECT_EQ(record("../other/x"), "");
  EXPECT_EQ(record("logs/way_out/x"), "");
  EXPECT_NE(record("calls.txt"), "");
  // Values that the program sets are not limited.
  Config own;
  own.settings.telemetry.record = "/var/tmp/calls.txt";
  EXPECT_THAT(check_config(own, known), ElementsAre());
}

TEST(Config, FilesThatOthersCanWriteAreRefused) {
  const base::TempFolder folder;
  base::write_in_place(folder / "rules.yaml", "version: 1\n");
  EXPECT_TRUE(read_config(folder / "rules.yaml").ok());
  ::chmod((folder / "rules.yaml").c_str(), 0666);
  EXPECT_EQ(
      to_string(read_config(folder / "rules.yaml").problems.at(0)),
      (folder / "rules.yaml") +
          ": error: can be written by everybody; expected a file that only root and this user "
          "can write");
  base::write_in_place(folder / "main.yaml", "version: 1\ninclude: rules.yaml\n");
  EXPECT_EQ(to_string(read_config(folder / "main.yaml").problems.at(0)),
            (folder / "main.yaml") + ":2:10: error: include: \"" + (folder / "rules.yaml") +
                "\" can be written by everybody; expected a file that only root and this user can "
                "write");
  ::chmod((folder / "rules.yaml").c_str(), 0644);
  EXPECT_TRUE(read_config(folder / "main.yaml").ok());
  ::chmod((folder / ".").c_str(), 0777);
  EXPECT_THAT(to_string(read_config(folder / "main.yaml").problems.at(0)),
              HasSubstr(", which can be written by everybody; expected a file"));
  ::chmod((folder / ".").c_str(), 0700);
}

TEST(Config, FilesAreReadFromDisk) {
  const std::string dir = ::testing::TempDir() + "yard_config_" + std::to_string(::getpid());
  ASSERT_EQ(std::system(("mkdir -p " + dir).c_str()), 0);
  std::ofstream(dir + "/rules.yaml") << "version: \"1.0\"\ninclude: other.yaml\n";
  std::ofstream(dir + "/other.yaml") << "kernel_denies: [a]\n";
  const ConfigReading r = read_config(dir + "/rules.yaml");
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.config.kernel_denies.size(), 1u);
  EXPECT_EQ(to_string(read_config(dir + "/none.yaml").problems.at(0)),
            dir + "/none.yaml: error: cannot be opened: No such file or directory");
  EXPECT_EQ(to_string(read_config(dir).problems.at(0)), dir + ": error: is not a regular file");
  EXPECT_EQ(to_string(read_config("/dev/zero").problems.at(0)),
            "/dev/zero: error: is not a regular file");
  ASSERT_EQ(std::system(("rm -r " + dir).c_str()), 0);
}

std::vector<std::string> told(const std::vector<ConfigChange>& changes) {
  std::vector<std::string> to;
  for (const ConfigChange& c : changes) to.push_back(c.path + ": " + c.before + " -> " + c.after);
  return to;
}

TEST(Config, DifferencesArePathsWithBothSides) {
  const Config a = good(kWhole);
  EXPECT_THAT(told(diff(a, a)), ElementsAre());
  Config b = a;
  b.settings.cache.size = 6;
  b.settings.mode.reset();
  b.kernel_locks.clear();
  b.dispatch_rules[0].priority = 1;
  b.dispatch_rules[0].conditions[0].values[0].text = "4096";
  b.policy.strict = true;
  EXPECT_THAT(told(diff(a, b)),
              ElementsAre("dispatch_rules[0].conditions.seq_len_gte: 8192 -> 4096",
                          "dispatch_rules[0].priority: 900 -> 1",
                          "kernel_locks.attention.causal: {kernel: torch_sdpa, optional: true} -> ",
                          "policy.strict: false -> true", "settings.mode: config -> ",
                          "settings.cache.size: 5000 -> 6"));
}

TEST(Config, ARuleThatCameOrWentIsToldAlone) {
  const auto rules = [](std::initializer_list<const char*> kernels) {
    Config c;
    for (const char* k : kernels) {
      DispatchRule r;
      r.operation = "x";
      r.kernel = k;
      c.dispatch_rules.push_back(r);
    }
    return c;
  };
  EXPECT_THAT(told(diff(rules({"a", "b", "c"}), rules({"a", "c"}))),
              ElementsAre("dispatch_rules[1]: {operation: x, kernel: b} -> "));
  EXPECT_THAT(told(diff(rules({"a", "b", "c", "d"}), rules({"n", "c", "b"}))),
              ElementsAre("dispatch_rules[0]: {operation: x, kernel: a} -> ",
                          "dispatch_rules[0]:  -> {operation: x, kernel: n}",
                          "dispatch_rules[1]:  -> {operation: x, kernel: c}",
                          "dispatch_rules[2]: {operation: x, kernel: c} -> ",
                          "dispatch_rules[3]: {operation: x, kernel: d} -> "));
  EXPECT_THAT(told(diff(rules({}), rules({"a"}))),
              ElementsAre("dispatch_rules[0]:  -> {operation: x, kernel: a}"));
}

// A row and its path in the file, such as settings.cache.size.
struct RowPath {
  std::string path;
  Key key;
};
void collect(Keys keys, const std::string& prefix, std::vector<RowPath>& to) {
  for (const Key* key : keys) {
    if (key->section != nullptr) continue;
    to.push_back({prefix + key->name, *key});
    collect(key->inner, prefix + key->name + ".", to);
  }
}
std::vector<RowPath> all_rows() {
  std::vector<RowPath> to;
  collect(kKeys<Config>, "", to);
  return to;
}

TEST(Config, TheSchemaForEditorsIsJsonAndHasEveryKey) {
  const nlohmann::json schema = nlohmann::json::parse(config_json_schema());
  EXPECT_GT(all_rows().size(), 40u);
  for (const RowPath& row : all_rows()) {
    const std::string& path = row.path;
    const nlohmann::json* at = &schema;
    std::istringstream parts(path);
    for (std::string part; std::getline(parts, part, '.');) {
      if (at->contains("items")) at = &(*at)["items"];
      if (at->contains("anyOf")) at = &(*at)["anyOf"][0];
      if (at->contains("propertyNames")) at = &(*at)["additionalProperties"];
      ASSERT_TRUE((*at)["properties"].contains(part)) << path;
      at = &(*at)["properties"][part];
      EXPECT_TRUE(at->contains("description")) << path;
    }
  }
  EXPECT_EQ(schema["properties"]["dispatch_rules"]["items"]["required"].size(), 1u);
  const nlohmann::json& settings = schema["properties"]["settings"]["properties"];
  EXPECT_EQ(settings["cache"]["properties"]["size"]["minimum"], 1);
  EXPECT_TRUE(schema["$defs"]["conditions"]["properties"].contains("batch_size"));
  EXPECT_FALSE(schema["properties"]["policy"]["properties"].contains("locks"));
}

TEST(Config, ThePageListsEveryKeyFieldAliasAndOperator) {
  std::ifstream file(std::string(YARD_SOURCE_DIR) + "/docs/reference/rules.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  for (const RowPath& row : all_rows()) {
    const Key& k = row.key;
    const bool section = row.path.find('.') == std::string::npos;
    // Groups of settings do not have a line.
    if (!section && row.path.starts_with("settings.") && k.form.is(shape::kMap)) continue;
    const std::string name = section ? row.path : row.path.substr(row.path.find('.') + 1);
    const std::string usual = k.required ? "required" : k.fallback[0] == '\0' ? "none" : k.fallback;
    EXPECT_THAT(page, HasSubstr("| `" + name + "` | " + usual + " | " + k.meaning + " |"));
  }
  const auto has = [&](const std::string& word) { EXPECT_THAT(page, HasSubstr("`" + word + "`")); };
  for (const FieldAlias& a : kFieldAliases) has(a.name);
  for (const char* name : kCallFields) has(name);
  for (const char* name : kPlainLabels) has(name);
  for (const OperatorRow& row : kOperators) has(std::string(row.suffix));
}

TEST(Config, DurationsHaveUnits) {
  EXPECT_EQ(read_duration("1.5s"), 1500ms);
  EXPECT_EQ(read_duration("2"), 2s);
  EXPECT_EQ(read_duration("10 ms"), 10ms);
  EXPECT_EQ(read_duration("3us"), 3us);
  EXPECT_EQ(read_duration("7ns"), 7ns);
  EXPECT_EQ(read_duration("2m"), 2min);
  for (const char* bad : {"", "s", "1d", "1 x", ".inf", "1e300s", "ms"})
    EXPECT_FALSE(read_duration(bad)) << bad;
  EXPECT_EQ(print_duration(90s), "90s");
  EXPECT_EQ(print_duration(1500us), "1500us");
}

}  // namespace
}  // namespace yard::policy
