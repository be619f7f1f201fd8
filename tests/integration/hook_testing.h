// SPDX-License-Identifier: Apache-2.0
// A runtime with nothing in it, for tests of hooks.
#pragma once

#include <gtest/gtest.h>
#include <yard/yard.h>

#include <optional>
#include <string>
#include <utility>

namespace yard::testing {

struct Hooked : ::testing::Test {
  Runtime runtime{RuntimeSettings{false, 64, false}};
  Hooks hooks = runtime.hooks();

  // The hook as it is listed now; none if it is not.
  std::optional<HookInfo> listed(const char* name) const {
    const HookListing list = hooks.list();
    const HookInfo* found = list.find(name);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }

  // Registers and activates one implementation.
  template <class H, class F>
  void engage(const H& hook, F f, const std::string& backend = "acme") {
    const Status s = hooks.add(HookSet(backend).add(hook, std::move(f)));
    ASSERT_TRUE(s.ok()) << s.to_string();
    ASSERT_TRUE(hooks.activate(backend).ok());
  }
};

}  // namespace yard::testing
