// SPDX-License-Identifier: Apache-2.0
// Tests the services that the dispatcher asks of the runtime, and tables by op index.
#include "dispatch/core.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dispatch/policy_changes.h"
#include "registry/testing.h"

namespace yard::dispatch {
namespace {

using registry::testing::add;
using registry::testing::backend_of;
using registry::testing::kernel_of;
using registry::testing::op_of;

class Services final : public CoreServices {
 public:
  explicit Services(Core& core) : core_(core) { core_.set_services(this); }
  ~Services() { core_.set_services(nullptr); }
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;

  Status check_change(const registry::State& before, const registry::State& after) override {
    before_ = before.backends.size(), after_ = after.backends.size();
    return refuses_ ? Status(Code::kConflict, "refused") : Status();
  }
  void on_change() override { generations_.push_back(core_.snapshot()->generation); }
  void add_successes(std::vector<health::Successes>& to) override {
    to.push_back({"group/f", "implementation", "backend", 7});
  }

  bool refuses_ = false;
  size_t before_ = 0, after_ = 0;
  std::vector<uint64_t> generations_;

 private:
  Core& core_;
};

TEST(CoreServices, OnChangeRunsAfterEachPublishedChange) {
  Core core(nullptr, 64);
  Services services(core);
  const uint64_t first = core.snapshot()->generation;
  ASSERT_TRUE(core.published.apply({add(backend_of("a"))}).ok());
  ASSERT_TRUE(set_policy(core, {}).ok());
  core.published.catch_up();
  EXPECT_EQ(services.generations_, (std::vector<uint64_t>{first + 1, first + 2, first + 2}));
  EXPECT_EQ(services.before_, 0u);
  EXPECT_EQ(services.after_, 1u);
}

TEST(CoreServices, CheckChangeCanRefuseAChange) {
  Core core(nullptr, 64);
  Services services(core);
  services.refuses_ = true;
  const auto before = core.snapshot();
  EXPECT_EQ(core.published.apply({add(backend_of("a"))}).status().code(), Code::kConflict);
  EXPECT_EQ(core.snapshot(), before);
  EXPECT_TRUE(services.generations_.empty());
}

TEST(CoreServices, AreOptional) {
  Core core(nullptr, 64);
  { const Services services(core); }
  ASSERT_TRUE(core.published
                  .apply({add(backend_of("a")), add(op_of("op(out!: T[n], x: T[n])")),
                          add(kernel_of("op", "k", "a"))})
                  .ok());
  core.health_changed();
  ASSERT_EQ(core.successes().size(), 1u);
  const Services services(core);
  ASSERT_EQ(core.successes().size(), 2u);
  EXPECT_EQ(core.successes()[1].kernel, "implementation");
}

TEST(ByIndex, GivesEachIndexAnAddressThatStays) {
  const ByIndex<std::atomic<int>> table;
  std::vector<std::atomic<int>*> at;
  for (uint32_t i = 0; i < 1000; ++i) {
    at.push_back(&table[i]);
    EXPECT_EQ(*at.back(), 0);
    *at.back() = static_cast<int>(i);
  }
  for (uint32_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(&table[i], at[i]);
    EXPECT_EQ(table[i], static_cast<int>(i));
  }
}

TEST(Sites, FindSuggestsASimilarName) {
  Core core(nullptr, 64);
  ASSERT_TRUE(core.published.apply({add(op_of("scale(out!: T[n], x: T[n])"))}).ok());
  EXPECT_EQ(core.sites.find("scale").value().record->op->name, "scale");
  const auto missing = core.sites.find("scal");
  EXPECT_EQ(missing.status().code(), Code::kUnknownOp);
  EXPECT_NE(missing.status().to_string().find("did you mean 'scale'"), std::string::npos);
}

}  // namespace
}  // namespace yard::dispatch
