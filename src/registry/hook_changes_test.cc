// SPDX-License-Identifier: Apache-2.0
// Records of hooks and functions, and changes that add and remove them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "registry/testing.h"

namespace yard::registry {
namespace {

using ::testing::AllOf;
using testing::Cut;
using ::testing::HasSubstr;
using testing::hook_of;
using testing::Shelf;

TEST(HookDescriptors, AreReadAsFarAsTheySay) {
  static const char* const reasons[] = {"{0} is odd"};
  yard_hook_t d = hook_of("chunk", "acme");
  d.group = "kda", d.verify = d.function, d.reasons = reasons, d.reason_count = 1;
  for (uint32_t size = 4; size <= sizeof d + 16; ++size) {
    const auto h = read_hook(Cut<yard_hook_t>(d, size).get(), {});
    EXPECT_EQ(h.ok(), size >= offsetof(yard_hook_t, verify)) << size << h.status().to_string();
    if (!h.ok()) continue;
    EXPECT_EQ((*h)->d.verify != nullptr, size >= offsetof(yard_hook_t, reasons));
    EXPECT_EQ((*h)->reasons.size(), size >= offsetof(yard_hook_t, pad1_) + 4 ? 1u : 0u) << size;
  }
}

TEST(HookDescriptors, AreCopiedWithTheirTexts) {
  std::string name = "atomic_add", backend = "acme", signature = "void()";
  auto read = read_hook(hook_of(name.c_str(), backend.c_str(), signature.c_str()), {});
  ASSERT_TRUE(read.ok());
  name = backend = signature = "gone";
  EXPECT_STREQ((*read)->d.name, "atomic_add");
  EXPECT_STREQ((*read)->d.backend, "acme");
  EXPECT_STREQ((*read)->d.signature, "void()");
  EXPECT_EQ((*read)->d.group, nullptr);
}

TEST(HookChanges, HooksAndFunctionsAreKeptApart) {
  Shelf shelf;
  yard_hook_t function = hook_of("chunk", "acme");
  function.group = "kda";
  shelf.put(hook_of("chunk", "acme"), function);
  ASSERT_EQ(shelf.state().hooks.size(), 1u);
  ASSERT_EQ(shelf.state().functions.size(), 1u);
  EXPECT_EQ(shelf.state().functions[0]->group, "kda");
  function.priority = 5;
  EXPECT_THAT(shelf.fails({testing::add(function)}).to_string(),
              AllOf(HasSubstr("function 'chunk' of group 'kda'"), HasSubstr("priority 0 and 5")));
}

TEST(HookChanges, WhatIsRemovedIsWhatHoldsOrBelongs) {
  Shelf shelf;
  const auto keep = std::make_shared<int>(0);
  shelf.put(testing::backend_of("acme"), hook_of("a", "acme"));
  shelf.apply(
      {testing::add(hook_of("b", "acme"), keep), testing::add(hook_of("a", "other"), keep)});
  EXPECT_EQ(shelf.apply({RemoveKept{keep.get()}}).removed.size(), 2u);
  ASSERT_EQ(shelf.state().hooks.size(), 1u);
  EXPECT_THAT(shelf.fails({RemoveHooks{"other"}}).to_string(), HasSubstr("has no hooks"));
  EXPECT_EQ(shelf.apply({RemoveBackend{"acme"}}).removed.size(), 2u);
  EXPECT_TRUE(shelf.state().hooks.empty());
}

TEST(HookChanges, APluginsOwnBackendGoesWithoutTheHooksOfOthers) {
  Shelf shelf;
  const auto keep = std::make_shared<int>(0);
  shelf.apply({testing::add(testing::backend_of("acme"), keep),
               testing::add(hook_of("a", "acme"), keep), testing::add(hook_of("b", "acme"))});
  EXPECT_EQ(shelf.apply({RemoveKept{keep.get()}}).removed.size(), 2u);
  ASSERT_EQ(shelf.state().hooks.size(), 1u);
  EXPECT_EQ(shelf.state().hooks[0]->name, "b");
}

TEST(HookChanges, AReplacedHookKeepsItsPlace) {
  Shelf shelf;
  const auto old = std::make_shared<int>(0), fresh = std::make_shared<int>(0);
  shelf.apply({testing::add(hook_of("a", "first"), old), testing::add(hook_of("a", "second"))});
  shelf.apply({RemoveKept{old.get(), true}, testing::add(hook_of("b", "first"), fresh),
               testing::add(hook_of("a", "first"), fresh)});
  ASSERT_EQ(shelf.state().hooks.size(), 3u);
  EXPECT_EQ(shelf.state().hooks[0]->backend, "first");
  EXPECT_EQ(shelf.state().hooks[0]->keep, fresh);
  EXPECT_EQ(shelf.state().hooks[1]->backend, "second");
  EXPECT_EQ(shelf.state().hooks[2]->name, "b");
}

}  // namespace
}  // namespace yard::registry
