// SPDX-License-Identifier: Apache-2.0
// Tests history of rules and rollback; validators that run before rules are published, and
// listeners that run afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yard/log.h>
#include <yard/policy.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "reload_fixture.h"

namespace yard::testing {
namespace {

using namespace std::chrono_literals;
using base::eventually;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = ConfigEvent::Kind;

class ConfigHistory : public Reload {
 protected:
  const std::string& written(const std::string& text) {
    base::replace(file_, text);
    return file_;
  }
};

TEST_F(ConfigHistory, RemembersVersions) {
  EXPECT_THAT(rt_.rules().history(), IsEmpty());
  base::replace(file_, locked("default.b"));
  rt_.rules().load(file_).or_throw();
  Config value = rt_.rules().config();
  value.kernel_locks["step"].id = "default.c";
  rt_.rules().set(value).or_throw();
  EXPECT_FALSE(rt_.rules().load(folder_ / "nowhere.yaml").ok());
  rt_.rules().load("").or_throw();
  const auto h = rt_.rules().history();
  ASSERT_THAT(h, SizeIs(3));
  EXPECT_EQ(h[0].number, 1u);
  EXPECT_EQ(h[0].source, file_);
  EXPECT_EQ(h[0].sha256, read_config(file_).sha256);
  EXPECT_THAT(h[0].changes, SizeIs(1));
  EXPECT_EQ(h[1].source, "Rules::set");
  EXPECT_THAT(h[1].sha256, SizeIs(64));
  ASSERT_THAT(h[1].changes, SizeIs(1));
  EXPECT_THAT(h[1].changes[0].before, HasSubstr("default.b"));
  EXPECT_THAT(h[1].changes[0].after, HasSubstr("default.c"));
  EXPECT_EQ(h[2].source, "none");
  EXPECT_FALSE(h[1].in_force);
  EXPECT_TRUE(h[2].in_force);
  EXPECT_LE(h[0].time, h[2].time);
  EXPECT_EQ(ran(), 1);
}

TEST_F(ConfigHistory, ForgetsTheOldestVersions) {
  Config value;
  for (int i = 0; i < 40; ++i) {
    value.kernel_locks["step"].id = i % 2 ? "default.a" : "default.b";
    rt_.rules().set(value).or_throw();
  }
  const auto h = rt_.rules().history();
  ASSERT_THAT(h, SizeIs(kConfigHistory));
  EXPECT_EQ(h.back().number, 40u);
  EXPECT_THAT(h[0].changes, SizeIs(1));
  EXPECT_THAT(rt_.rules().roll_back(3).to_string(),
              HasSubstr("no version 3 of the rules; 9 to 40"));
}

TEST_F(ConfigHistory, RollsBackToAnyVersion) {
  EXPECT_THAT(rt_.rules().roll_back(1).to_string(), HasSubstr("there is none"));
  Config value;
  for (const char* id : {"default.a", "default.b", "default.c"}) {
    value.kernel_locks["step"].id = id;
    rt_.rules().set(value).or_throw();
  }
  EXPECT_EQ(ran(), 3);
  rt_.rules().roll_back(2).or_throw();
  EXPECT_EQ(ran(), 2);
  rt_.rules().roll_back(1).or_throw();
  EXPECT_EQ(ran(), 1);
  rt_.rules().roll_back(4).or_throw();
  EXPECT_EQ(ran(), 2);
  ASSERT_TRUE(told(6));
  EXPECT_EQ(events()[3].kind, Kind::kRolledBack);
  EXPECT_EQ(events()[3].version, 4u);
  EXPECT_EQ(events()[5].source, "rollback to 4");
  EXPECT_TRUE(rt_.rules().history().back().in_force);
  // A rollback to rules that are no longer valid is refused.
  rt_.rules().roll_back(3).or_throw();
  bare_.remove("step", "default.b").or_throw();
  std::vector<ConfigProblem> problems;
  EXPECT_FALSE(rt_.rules().roll_back(2, &problems).ok());
  EXPECT_THAT(problems, SizeIs(2));  // the second is a warning that the kernel is missing
  EXPECT_EQ(ran(), 3);
}

TEST_F(ConfigHistory, ARolledBackFileIsNotLoadedUntilItChanges) {
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  base::replace(file_, locked("default.c"));
  EXPECT_TRUE(becomes(3));
  rt_.rules().roll_back(1).or_throw();
  base::replace(file_, locked("default.c"));  // the same contents again
  std::this_thread::sleep_for(150ms);
  EXPECT_EQ(ran(), 2);
  base::replace(file_, locked("default.a"));
  EXPECT_TRUE(becomes(1));
}

TEST_F(ConfigHistory, CallsTheProgramsValidators) {
  std::atomic<int> asked{0};
  const uint64_t id = rt_.rules().add_validator([&](const Config& c) {
    ++asked;
    if (c.kernel_locks.empty()) throw std::runtime_error("no locks");
    if (c.kernel_locks.at("step").id == "default.c") return Status(Code::kInvalidArgument, "not c");
    return Status();
  });
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  base::replace(file_, locked("default.c"));
  ASSERT_TRUE(told(2));
  EXPECT_THAT(to_string(events()[1]), HasSubstr("refused by a validator of the program: "));
  EXPECT_THAT(to_string(events()[1]), HasSubstr("not c"));
  EXPECT_EQ(ran(), 2);
  EXPECT_THAT(rt_.rules().set({}).to_string(), HasSubstr("threw: no locks"));
  EXPECT_GE(asked, 3);
  rt_.rules().remove_callback(id);
  const int before = asked;
  rt_.rules().set({}).or_throw();
  EXPECT_EQ(asked, before);
}

TEST_F(ConfigHistory, AValidatorCannotChangeTheRules) {
  Status inside;
  rt_.rules().add_validator([&](const Config&) {
    inside = rt_.rules().set({});
    return Status();
  });
  rt_.rules().set({}).or_throw();
  EXPECT_EQ(inside.code(), Code::kWouldDeadlock);
}

TEST_F(ConfigHistory, AValidatorThatHangsBlocksNoChangeThatItIsNotAskedAbout) {
  std::atomic<bool> asked{false}, go_on{false}, cleared{false};
  const Config by_b = read_config(written(locked("default.b"))).config;
  rt_.rules().set(by_b).or_throw();
  EXPECT_EQ(ran(), 2);
  rt_.rules().add_validator([&](const Config&) {
    asked = true;
    return eventually([&] { return go_on.load(); }, 60s) ? Status()
                                                         : Status(Code::kDeadline, "waits");
  });
  std::thread first([&] { rt_.rules().set(by_b).or_throw(); });
  ASSERT_TRUE(eventually([&] { return asked.load(); }));
  std::thread other([&] {
    rt_.rules().load("").or_throw();
    cleared = true;
  });
  EXPECT_TRUE(eventually([&] { return cleared.load(); }, 20s));
  EXPECT_EQ(ran(), 1);
  go_on = true;
  first.join(), other.join();
  EXPECT_EQ(ran(), 2);  // submitted first, but in force last
  EXPECT_THAT(rt_.rules().history(), SizeIs(3));
}

TEST_F(ConfigHistory, ALogSinkMayWaitForAThreadThatChangesTheRules) {
  Status here, elsewhere(Code::kNotFound, "not called");
  int told = 0;
  set_log_sink([&](const LogMessage& m) {
    if (m.logger != "policy" || ++told > 1) return;
    here = rt_.rules().set({});
    std::thread([&] { elsewhere = rt_.rules().set({}); }).join();
  });
  const Status refused = rt_.rules().load(file_ + ".missing");
  set_log_sink({});
  EXPECT_FALSE(refused.ok());
  EXPECT_GE(told, 1);
  EXPECT_TRUE(elsewhere.ok()) << elsewhere.to_string();
  EXPECT_EQ(here.code(), Code::kWouldDeadlock);  // because this thread is still submitting
}

TEST_F(ConfigHistory, ListenersMayDoEverything) {
  std::atomic<int> calls{0};
  uint64_t id = 0;
  const auto caller = std::this_thread::get_id();
  id = rt_.rules().on_change([&](const ConfigEvent& e) {
    EXPECT_NE(std::this_thread::get_id(), caller);
    if (++calls == 1) {
      rt_.rules().unwatch();
      rt_.rules().set({}).or_throw();
      EXPECT_THAT(rt_.rules().history(), SizeIs(2));
      throw std::runtime_error("is logged");
    }
    EXPECT_EQ(e.version, 2u);
    rt_.rules().remove_callback(id);
  });
  base::replace(file_, locked("default.b"));
  rt_.rules().watch(file_, quick()).or_throw();
  EXPECT_TRUE(eventually([&] { return calls == 2; }));
  rt_.rules().set({}).or_throw();
  ASSERT_TRUE(told(3));
  EXPECT_EQ(calls, 2);
}

TEST_F(ConfigHistory, RefusesRulesThatLeaveACallWithoutAKernel) {
  yard_kernel_t few = kernel_of("step", "default.few", 4, 1);
  const yard_limit_t limits[] = {{YARD_LIMIT_MAX, 0, "seq_len", 100, 0, 0}};
  few.limits = limits, few.limit_count = 1;
  bare_.add(few).or_throw();
  // The rules are accepted, because no known call would break.
  base::replace(file_, locked("default.few"));
  rt_.rules().load(file_).or_throw();
  rt_.rules().load("").or_throw();
  EXPECT_EQ(ran(100), 1);
  EXPECT_EQ(ran(101), 1);
  std::vector<ConfigProblem> problems;
  EXPECT_FALSE(rt_.rules().load(file_, &problems).ok());
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_THAT(to_string(problems[0]),
              AllOf(HasSubstr("step(f32[101]"), HasSubstr("would be left without a kernel"),
                    HasSubstr("default.a serves it now")));
  EXPECT_EQ(ran(101), 1);
  EXPECT_THAT(rt_.rules()
                  .set([] {
                    Config c;
                    c.kernel_denies = {{"default.*", false, {}}};
                    return c;
                  }())
                  .to_string(),
              HasSubstr("denied"));
}

TEST_F(ConfigHistory, ARefusalNamesTheKernelThatTheRulesChose) {
  EXPECT_EQ(ran(), 1);
  base::replace(file_, locked("default.b", "kernel_denies: [default.b]\n"));
  std::vector<ConfigProblem> problems;
  EXPECT_FALSE(rt_.rules().load(file_, &problems).ok());
  ASSERT_THAT(problems, SizeIs(2));  // the second is a warning that the locked kernel is denied
  EXPECT_THAT(to_string(problems[0]) + to_string(problems[1]),
              AllOf(HasSubstr("(default.b: denied_kernel: "), HasSubstr("; default.a: locked_out"),
                    HasSubstr("default.a serves it now")));
}

TEST_F(ConfigHistory, RefusesRulesThatLeaveACallOfAScopeWithoutAKernel) {
  Policy only_c;
  only_c.allow_kernels = {"default.c"};
  {
    const ScopedPolicy scope(only_c);
    EXPECT_EQ(ran(), 3);
    EXPECT_EQ(ran(), 3);
  }
  Config deny;
  deny.kernel_denies = {{"default.c", false, {}}};
  EXPECT_THAT(rt_.rules().set(deny).to_string(), HasSubstr("default.c serves it now"));
  // A call that forces a kernel does not protect it from a deny.
  deny.kernel_denies = {{"default.b", false, {}}};
  Options force;
  force.force = "default.b";
  EXPECT_EQ(ran(4, force), 2);
  EXPECT_TRUE(rt_.rules().set(deny).ok());
}

}  // namespace
}  // namespace yard::testing
