// SPDX-License-Identifier: Apache-2.0
// Changes by live control take effect at once, are refused if they are wrong, and can be undone.
#include <filesystem>
#include <memory>

#include "base/testing_files.h"
#include "inspect_testing.h"

namespace yard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using World = InspectWorld;

// Replays the incident of the guide from outside.
TEST(InspectChanges, ADenyUnderConditionsTakesEffectAtOnceAndIsUndone) {
  World w;
  EXPECT_EQ(w.call(5120, "B"), "vendor.acme");
  EXPECT_EQ(w.call(5120), "vendor.acme");
  const uint64_t generation = w.runtime.stats(false).generation;
  const std::string answer =
      ask("deny", R"({"kernel": "vendor.acme", "when": "hidden=5120,tenant=B"})");
  EXPECT_THAT(answer, HasSubstr("\"ok\": true"));
  EXPECT_THAT(answer, HasSubstr("deny: [vendor.acme]"));  // the statement for the rule file
  EXPECT_EQ(w.runtime.stats(false).generation, generation + 1);
  EXPECT_EQ(w.call(5120, "B"), "default.b");
  EXPECT_EQ(w.call(5120, "A"), "vendor.acme");
  EXPECT_EQ(w.call(5120), "vendor.acme");
  EXPECT_EQ(w.call(4096, "B"), "vendor.acme");
  EXPECT_THAT(ask("explain", R"_({"call": "norm(f32[1,5120])", "labels": {"tenant": "B"}})_"),
              HasSubstr("live deny of vendor.acme"));
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acme", "when": "hidden=5120,tenant=B"})"),
              HasSubstr("is denied already"));
  EXPECT_THAT(ask("changes"), HasSubstr("\"command\": \"deny\""));
  EXPECT_THAT(ask("status"), HasSubstr("\"path\": \"live deny of 'vendor.acme' when hidden=5120"));

  const std::string undone = ask("undo");
  EXPECT_THAT(undone, HasSubstr("\"undone\": true"));
  EXPECT_THAT(undone, HasSubstr("\"pid\": " + std::to_string(::getpid())));
  EXPECT_EQ(w.call(5120, "B"), "vendor.acme");
  EXPECT_EQ(w.runtime.rules().config(), Config());
  EXPECT_THAT(ask("config.show"), HasSubstr("\"yaml\": \"\""));
  EXPECT_THAT(ask("undo"), HasSubstr("there is no change to undo"));
}

TEST(InspectChanges, DeniesThatWouldDoNothingOrTooMuchAreRefused) {
  World w;
  w.call(64);
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acm"})"), HasSubstr("did you mean 'vendor.acme'?"));
  EXPECT_THAT(ask("deny", R"({"kernel": "*"})"), HasSubstr("would be left without a kernel"));
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acme", "when": "hiden=64"})"),
              HasSubstr("did you mean 'hidden'?"));
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acme", "when": "hidden"})"),
              HasSubstr("invalid when: expected FIELD=VALUE"));
  EXPECT_THAT(ask("allow", R"({"kernel": "vendor.acme"})"), HasSubstr("\"conflict\""));
  EXPECT_EQ(w.call(64), "vendor.acme");
  EXPECT_THAT(ask("changes"), HasSubstr("\"changes\": []"));
}

TEST(InspectChanges, TheNumberOfConditionsIsBounded) {
  World w;
  w.call();
  std::string when = "hidden=64";
  for (int i = 0; i < 4000; ++i) when += ",hidden=64";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acme", "when": ")" + when + "\"}"),
              HasSubstr("found 4001 conditions; expected at most 100"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  when.resize(100 * std::string_view("hidden=64,").size() - 1);
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acme", "when": ")" + when + "\"}"),
              HasSubstr("\"ok\": true"));
}

TEST(InspectChanges, ADenySaysWhatTakesOver) {
  World w;
  for (int i = 0; i < 2000; ++i) w.call();  // some of them are timed
  const uint64_t generation = w.runtime.stats(false).generation;
  const std::string deny = R"({"kernel": "vendor.acme", "dry_run": true})";
  EXPECT_THAT(ask("deny", deny),
              HasSubstr(R"("change": null, "effect": {"takes_over": [{"op": "norm", )"
                        R"("from": "vendor.acme", "to": "default.b", "kind": "default", )"
                        R"("calls": 1, "timed": 0, "from_ns": null, "to_ns": null)"));
  EXPECT_EQ(w.runtime.stats(false).generation, generation);
  EXPECT_EQ(w.call(), "vendor.acme");
  EXPECT_THAT(ask("changes"), HasSubstr("\"changes\": []"));
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acme"})"), HasSubstr("\"to\": \"default.b\""));
  for (int i = 0; i < 2000; ++i) w.call();
  const std::string back = ask("allow", deny);
  EXPECT_THAT(back, HasSubstr("\"from\": \"default.b\", \"to\": \"vendor.acme\""));
  EXPECT_THAT(back, HasSubstr("\"timed\": 1"));
  EXPECT_THAT(back, HasSubstr("\"measured\": true"));
}

TEST(InspectChanges, ARefusedDenyIsNoRefusedReload) {
  World w;
  w.call();
  EXPECT_THAT(ask("deny", R"({"kernel": "*"})"), HasSubstr("\"conflict\", \"message\": \"norm("));
  EXPECT_THAT(ask("deny", R"({"kernel": "*", "dry_run": true})"), HasSubstr("\"ok\": false"));
  EXPECT_EQ(w.runtime.stats().reloads.refused, 0u);
  EXPECT_EQ(w.runtime.stats().reloads.last_error, "");
}

TEST(InspectChanges, AllowTakesADenyBack) {
  World w;
  w.call();
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.*", "op": "norm"})"), HasSubstr("\"ok\": true"));
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acme"})"), HasSubstr("\"ok\": true"));
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acme", "when": "label.tier=gold|silver"})"),
              HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.runtime.rules().config().settings.labels, std::vector<std::string>{"tier"});
  EXPECT_EQ(w.call(), "default.b");
  EXPECT_THAT(ask("allow", R"({"kernel": "vendor.*", "op": "norm"})"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.call(), "default.b");
  EXPECT_THAT(ask("allow", R"({"kernel": "vendor.acme"})"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.call(), "vendor.acme");
  EXPECT_THAT(ask("undo"), HasSubstr("\"command\": \"allow\""));
  EXPECT_EQ(w.call(), "default.b");
  for (int i = 0; i < 4; ++i) EXPECT_THAT(ask("undo"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.runtime.rules().config(), Config());
}

// The program replaces the rules in between. Undo removes only the deny.
TEST(InspectChanges, UndoLeavesLaterRules) {
  World w;
  w.call();
  ask("deny", R"({"kernel": "vendor.acme"})");
  Config now = w.runtime.rules().config();
  now.policy.prefer = Kind::kVendor;
  ASSERT_TRUE(w.runtime.rules().set(now).ok());
  EXPECT_THAT(ask("undo"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.runtime.rules().config().policy.prefer, Kind::kVendor);
  EXPECT_TRUE(w.runtime.rules().config().kernel_denies.empty());
  ask("deny", R"({"kernel": "vendor.acme"})");
  ASSERT_TRUE(w.runtime.rules().set({}).ok());
  EXPECT_THAT(ask("undo"), HasSubstr("the rules have been replaced since"));
}

TEST(InspectChanges, PolicyIsSetAndUndone) {
  World w;
  w.call();
  Policy own;
  own.strict = true;
  ASSERT_TRUE(w.runtime.set_policy(own).ok());
  EXPECT_THAT(ask("policy.set", R"({"fields": {"deny_vendors": ["acme"], "prefer": "reference"}})"),
              HasSubstr("prefer=reference"));
  EXPECT_EQ(w.runtime.policy().strict, true);
  EXPECT_THAT(ask("policy"), HasSubstr("\"prefer\": \"process\""));
  EXPECT_THAT(ask("policy.set", R"({"fields": {"prefer": null}})"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.runtime.policy().prefer, std::nullopt);
  EXPECT_THAT(ask("policy.set", R"({"fields": {"prefer": "vendr"}})"),
              HasSubstr("did you mean 'vendor'?"));
  EXPECT_THAT(ask("policy.set", R"({"fields": {"prefr": "vendor"}})"), HasSubstr("\"ok\": false"));
  EXPECT_THAT(ask("policy.set", R"({"fields": {"prefr": null}})"), HasSubstr("\"ok\": false"));
  EXPECT_THAT(ask("policy.set", R"({"fields": {"per_op": {"norm": ["impl:vendor.acm"]}}})"),
              HasSubstr("norm has no kernel called 'vendor.acm'; did you mean 'vendor.acme'?"));
  EXPECT_THAT(ask("policy.set", R"({"fields": {"per_op": {"nrm": ["vendor"]}}})"),
              HasSubstr("no op is called 'nrm'; did you mean 'norm'?"));
  EXPECT_THAT(ask("policy.reset"), HasSubstr("\"ok\": true"));
  EXPECT_TRUE(w.runtime.policy().empty());
  for (int i = 0; i < 3; ++i) EXPECT_THAT(ask("undo"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.runtime.policy(), own);
}

TEST(InspectChanges, BreakersAreOpenedAndClosed) {
  World w;
  w.call();
  EXPECT_THAT(ask("breaker", R"({"action": "open", "kernel": "vendor.acme", "reason": "NaN"})"),
              HasSubstr("\"ops\": [\"norm\"]"));
  EXPECT_EQ(w.call(), "default.b");
  EXPECT_THAT(ask("health"), HasSubstr("\"kernel\": \"vendor.acme\""));
  EXPECT_THAT(ask("status"), HasSubstr("\"open_breakers\": 1"));
  EXPECT_THAT(ask("breaker", R"({"action": "reset", "op": "norm", "kernel": "vendor.acme"})"),
              HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.call(), "vendor.acme");
  EXPECT_THAT(ask("undo"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.call(), "default.b");
  EXPECT_THAT(ask("undo"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.call(), "vendor.acme");
  EXPECT_THAT(ask("breaker", R"({"action": "shut", "kernel": "vendor.acme"})"),
              HasSubstr("invalid action: expected open, close or reset"));
  EXPECT_THAT(ask("breaker", R"({"action": "open", "kernel": "vendor.acm"})"),
              HasSubstr("did you mean 'vendor.acme'?"));
}

TEST(InspectChanges, RuleFilesAreLoadedAndRolledBack) {
  World w;
  w.call();
  const base::TempFolder folder;
  base::write_in_place(folder / "rules.yaml", "version: '1.0'\nkernel_denies: [vendor.acme]\n");
  base::write_in_place(folder / "wrong.yaml", "version: '1.0'\nkernel_denis: [vendor.acme]\n");
  const auto path = [&](const std::string& name) {
    return R"({"path": ")" + (folder / name) + R"("})";
  };
  EXPECT_THAT(ask("config.load", path("wrong.yaml")), HasSubstr("kernel_denies"));
  EXPECT_THAT(ask("config.load", path("rules.yaml")), HasSubstr("\"version\": 1"));
  EXPECT_EQ(w.call(), "default.b");
  EXPECT_THAT(ask("config.show"), HasSubstr("kernel_denies"));
  EXPECT_THAT(ask("undo"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.call(), "vendor.acme");
  EXPECT_THAT(ask("config.rollback", R"({"version": 1})"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.call(), "default.b");
  EXPECT_THAT(ask("config.rollback", R"({"version": 77})"), HasSubstr("no version 77"));
  EXPECT_THAT(ask("undo"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(w.call(), "vendor.acme");
  EXPECT_THAT(ask("config.history"), HasSubstr("\"source\": \"rollback to 1\""));
}

TEST(InspectChanges, ARolloutSectionDoesNotDelayADeny) {
  World w;
  w.call();
  Config rules;
  rules.rollout.emplace();
  ASSERT_TRUE(w.runtime.rules().set(rules).ok());
  EXPECT_THAT(ask("deny", R"({"kernel": "vendor.acme"})"), HasSubstr("\"rollout\": false"));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(w.call(), "default.b");
}

TEST(InspectChanges, LogsAndRecordings) {
  World w;
  w.call();
  set_log_level(LogLevel::kWarn);
  EXPECT_THAT(ask("log", R"({"level": "error"})"), HasSubstr("\"ok\": true"));
  EXPECT_THAT(ask("log", R"({"level": "debug", "logger": "select"})"), HasSubstr("\"ok\": true"));
  EXPECT_EQ(log_level("select"), LogLevel::kDebug);
  EXPECT_THAT(ask("log", R"({"level": "loud"})"), HasSubstr("invalid level"));
  EXPECT_THAT(ask("log", R"({"level": "info", "logger": "selct"})"), HasSubstr("select"));
  ask("undo"), ask("undo");
  EXPECT_EQ(log_level("select"), LogLevel::kWarn);

  const base::TempFolder folder;
  const std::string path = folder / "calls.txt";
  EXPECT_THAT(ask("record", R"({"path": ")" + path + R"("})"), HasSubstr(path));
  EXPECT_THAT(ask("record", R"({"path": ")" + path + R"("})"), HasSubstr("stop that first"));
  w.call();
  EXPECT_THAT(ask("status"), HasSubstr("\"recording\": \"" + path));
  EXPECT_THAT(ask("record.stop"), HasSubstr("\"calls\": 1"));
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_THAT(ask("record.stop"), HasSubstr("no calls are recorded"));
  EXPECT_THAT(ask("undo"), HasSubstr("\"command\": \"record.stop\""));
  EXPECT_EQ(w.runtime.recording().stats().path, path + ".2");
  EXPECT_THAT(ask("undo"), HasSubstr("\"command\": \"record\""));
  EXPECT_EQ(w.runtime.recording().stats().path, "");

  EXPECT_THAT(ask("stats.reset"), HasSubstr("\"ok\": true"));
  EXPECT_TRUE(w.runtime.stats().calls.empty());
  EXPECT_THAT(ask("undo"), HasSubstr("there is no change to undo"));
}

TEST(InspectChanges, VerboseLinesAndTraces) {
  World w;
  w.call();
  EXPECT_THAT(ask("verbose", R"({"level": 3})"),
              HasSubstr("invalid level: expected a whole number from 0 to 2"));
  EXPECT_THAT(ask("verbose", R"({"level": 1})"), HasSubstr("\"ok\": true"));
  EXPECT_THAT(ask("status"), HasSubstr("\"verbose\": 1, \"trace\": false"));
  EXPECT_EQ(w.runtime.recording().verbose(), 1);
  EXPECT_THAT(ask("undo"), HasSubstr("\"command\": \"verbose\""));
  EXPECT_EQ(w.runtime.recording().verbose(), 0);

  EXPECT_THAT(ask("trace.stop"), HasSubstr("\"ok\": false"));
  EXPECT_THAT(ask("trace.start", R"({"max_events": 0})"), HasSubstr("from 1 to 100000"));
  EXPECT_THAT(ask("trace.start"), HasSubstr("\"ok\": true"));
  EXPECT_THAT(ask("status"), HasSubstr("\"trace\": true"));
  w.call();
  const std::string trace = ask("trace.stop");
  EXPECT_THAT(trace, HasSubstr("\"traceEvents\": ["));
  EXPECT_THAT(trace, ::testing::Not(HasSubstr("\"effect\"")));
  EXPECT_THAT(trace, HasSubstr("vendor.acme"));
  EXPECT_FALSE(w.runtime.recording().is_tracing());
  EXPECT_THAT(ask("undo"), HasSubstr("there is no change to undo"));
}

std::string number_of(const std::string& answer) {
  const size_t at = answer.find("\"change\": ") + 10;
  return answer.substr(at, answer.find(',', at) - at);
}

TEST(InspectChanges, UndoTakesTheChangeThatIsNamed) {
  World w;
  w.call();
  const auto undo = [](const std::string& id) { return ask("undo", "{\"change\": " + id + "}"); };
  const std::string deny = number_of(ask("deny", R"({"kernel": "vendor.acme"})"));
  const std::string strict = number_of(ask("policy.set", R"({"fields": {"strict": true}})"));
  const std::string breaker =
      number_of(ask("breaker", R"({"action": "open", "kernel": "default.b"})"));
  const std::string prefer = number_of(ask("policy.set", R"({"fields": {"prefer": "vendor"}})"));
  EXPECT_THAT(undo(deny), HasSubstr("\"undone\": true"));
  EXPECT_EQ(w.call(), "vendor.acme");
  EXPECT_THAT(undo(deny), HasSubstr("is undone already"));
  // Undoing this change would also undo the later one.
  EXPECT_THAT(undo(strict), HasSubstr("was followed by change " + prefer + ": undo that first"));
  EXPECT_THAT(undo(breaker), HasSubstr("\"undone\": true"));
  EXPECT_THAT(ask("health"), HasSubstr("\"breakers\": []"));
  EXPECT_THAT(undo(prefer), HasSubstr("\"undone\": true"));
  EXPECT_THAT(undo(strict), HasSubstr("\"undone\": true"));
  EXPECT_TRUE(w.runtime.policy().empty());
  EXPECT_THAT(undo("987654"), HasSubstr("there is no change 987654"));
  const std::string reset = number_of(ask("stats.reset"));
  EXPECT_THAT(undo(reset), HasSubstr("cannot be undone"));
}

TEST(InspectChanges, EventsTellWhatHappenedAndStatusWhatIsLeftOfIt) {
  World w;
  w.call();
  const base::TempFolder folder;
  base::write_in_place(folder / "rules.yaml", "version: \"1.0\"\nkernel_deny: []\n");
  EXPECT_FALSE(w.runtime.rules().load(folder / "rules.yaml").ok());
  w.runtime.health().open("norm", "default.b", "bad firmware").or_throw();
  ASSERT_TRUE(base::eventually([&] {
    return ask("events").find("\"reason\": \"manual override: bad firmware\"") != std::string::npos;
  }));
  EXPECT_THAT(ask("events"),
              HasSubstr(R"("kind": "rules_refused", "subject": ")" + folder / "rules.yaml"));
  EXPECT_THAT(ask("events"), HasSubstr("\"who\": \"the program\""));
  EXPECT_THAT(ask("health"), HasSubstr("\"reason\": \"bad firmware\""));
  EXPECT_THAT(ask("health"), HasSubstr("\"opened\": {\"id\""));
  EXPECT_THAT(ask("explain", R"_({"call": "norm(f32[1,64])"})_"),
              HasSubstr("was opened manually: bad firmware"));
  EXPECT_THAT(ask("status"), HasSubstr("\"what\": \"refused file\""));
  ask("deny", R"({"kernel": "vendor.acme", "when": "hidden=5120"})");
  EXPECT_THAT(ask("status"), HasSubstr("\"what\": \"refused file\""));  // the problem remains
  base::write_in_place(folder / "rules.yaml", "version: \"1.0\"\n");
  ASSERT_TRUE(w.runtime.rules().load(folder / "rules.yaml").ok());
  EXPECT_THAT(ask("status"), Not(HasSubstr("refused file")));
  EXPECT_THAT(ask("status"), HasSubstr("\"what\": \"replaced change "));
  EXPECT_THAT(ask("status"), HasSubstr("\"last_error\": {\"at\": "));
  EXPECT_THAT(ask("events", "{\"after\": 1000000000}"), HasSubstr("\"events\": []"));
  EXPECT_THAT(ask("events", "{\"after\": -1}"), HasSubstr("\"ok\": false"));
}

TEST(InspectChanges, ChangesAreLoggedWithWhoMadeThem) {
  World w;
  w.call();
  auto lines = std::make_shared<std::vector<std::string>>();
  set_log_sink([lines](const LogMessage& m) {
    if (m.logger == "inspect") lines->emplace_back(m.text);
  });
  ask("policy.set", R"({"fields": {"strict": true}})");
  ask("policy.set", R"({"fields": {"strict": true}})");
  ask("undo");
  ask("deny", R"({"kernel": "none"})");
  set_log_sink({});
  ASSERT_EQ(lines->size(), 4u);
  const std::string who =
      "by user " + std::to_string(::geteuid()) + ", process " + std::to_string(::getpid()) + " (";
  EXPECT_THAT((*lines)[0], HasSubstr(": policy.set {\"fields\":{\"strict\":true}} " + who));
  EXPECT_THAT((*lines)[1], ::testing::StartsWith("Change "));
  EXPECT_THAT((*lines)[2], HasSubstr(": undo change "));
  EXPECT_THAT((*lines)[2], HasSubstr(who));
  EXPECT_THAT((*lines)[3], HasSubstr(who));
  EXPECT_THAT((*lines)[3], HasSubstr("was refused: no kernel matches 'none'"));
}

}  // namespace
}  // namespace yard::testing
