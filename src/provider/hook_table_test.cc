// SPDX-License-Identifier: Apache-2.0
// The table of hooks follows registry and policy. How hooks behave is tested in tests/integration.
#include "provider/hook_table.h"

#include <gtest/gtest.h>

#include "registry/testing.h"

namespace yard::provider {
namespace {

using registry::declared_hooks;
using registry::testing::backend_of;
using registry::testing::hook_of;
using registry::testing::kNorm;
using registry::testing::op_of;
using registry::testing::Shelf;

std::shared_ptr<const dispatch::Snapshot> snapshot(const registry::State& state,
                                                   const Policy& policy) {
  auto to = dispatch::Snapshot::make();
  auto process = std::make_shared<policy::ProcessPolicy>();
  process->set = policy;
  process->settle({});
  to->state = std::make_shared<const registry::State>(state);
  to->policy = std::move(process);
  return to;
}

TEST(HookTables, ChangeOnlyWhatHasChanged) {
  Shelf shelf;
  Policy policy;
  HookTable table([&] { return snapshot(shelf.state(), policy); });
  const HookDeclaration& declared = *detail::declare_hook("table.a", "i64(i64)");
  HookTable::Site& site = table.site(declared);
  EXPECT_EQ(&site, &table.site(declared));
  EXPECT_EQ(site.all.load(), nullptr);
  EXPECT_TRUE(table.in_use("table.a"));
  EXPECT_FALSE(table.in_use("table.b"));
  shelf.put(hook_of("table.a", "acme"));
  table.refresh();
  const auto* chains = site.all.load();
  ASSERT_NE(chains, nullptr);
  EXPECT_EQ(site.process.load(), nullptr);
  shelf.put(op_of(kNorm));
  table.refresh();
  EXPECT_EQ(site.all.load(), chains);
  ASSERT_TRUE(table.activate({"acme", {}}, false).ok());
  EXPECT_NE(site.process.load(), nullptr);
  table.deactivate_all();
  EXPECT_EQ(site.process.load(), nullptr);
  detail::undeclare_hook(&declared);
  EXPECT_TRUE(declared_hooks("table.a").empty());
}

TEST(HookTables, ADeniedVendorIsLeftOut) {
  Shelf shelf;
  shelf.put(backend_of("acme", "maker"), hook_of("table.v", "acme"));
  Policy policy;
  HookTable table([&] { return snapshot(shelf.state(), policy); });
  const HookDeclaration& declared = *detail::declare_hook("table.v", "i64(i64)");
  const HookTable::Site& site = table.site(declared);
  ASSERT_TRUE(table.activate({"acme", {}}, false).ok());
  EXPECT_NE(site.process.load(), nullptr);
  policy.deny_vendors = {"maker"};
  table.refresh();
  EXPECT_EQ(site.process.load(), nullptr);
  const auto now = snapshot(shelf.state(), policy);
  const auto providers = hook_providers(Situation(*now), "table.v", "i64(i64)");
  ASSERT_EQ(providers.size(), 1u);
  EXPECT_EQ(providers[0].eligibility.reason, YARD_REASON_DENIED_VENDOR);
  EXPECT_EQ(providers[0].eligibility.why(), "vendor 'maker' is denied");
  policy = {};
  table.refresh();
  EXPECT_NE(site.process.load(), nullptr);
  detail::undeclare_hook(&declared);
}

}  // namespace
}  // namespace yard::provider
