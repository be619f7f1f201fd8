// SPDX-License-Identifier: Apache-2.0
// Tests records of functions, and changes that add and remove them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "registry/testing.h"

namespace yard::registry {
namespace {

using ::testing::AllOf;
using testing::Cut;
using testing::function_of;
using ::testing::HasSubstr;
using testing::Shelf;

TEST(FunctionDescriptors, AreReadAsFarAsTheySay) {
  static const char* const reasons[] = {"{0} is odd"};
  yard_function_t d = function_of("chunk", "acme");
  d.group = "kda", d.verify = d.function, d.reasons = reasons, d.reason_count = 1;
  for (uint32_t size = 4; size <= sizeof d + 16; ++size) {
    const auto h = read_function(Cut<yard_function_t>(d, size).get(), {});
    EXPECT_EQ(h.ok(), size >= offsetof(yard_function_t, verify)) << size << h.status().to_string();
    if (!h.ok()) continue;
    EXPECT_EQ((*h)->d.verify != nullptr, size >= offsetof(yard_function_t, reasons));
    EXPECT_EQ((*h)->reasons.size(), size >= offsetof(yard_function_t, pad1_) + 4 ? 1u : 0u) << size;
  }
}

TEST(FunctionDescriptors, AreCopiedWithTheirTexts) {
  std::string name = "atomic_add", backend = "acme", signature = "void()";
  auto read = read_function(function_of(name.c_str(), backend.c_str(), signature.c_str()), {});
  ASSERT_TRUE(read.ok());
  name = backend = signature = "gone";
  EXPECT_EQ((*read)->name, "atomic_add");
  EXPECT_EQ((*read)->backend, "acme");
  EXPECT_EQ((*read)->signature, "void()");
  EXPECT_EQ((*read)->d.name, nullptr);
}

TEST(FunctionChanges, ABackendProvidesAFunctionOnce) {
  Shelf shelf;
  yard_function_t function = function_of("chunk", "acme");
  shelf.put(function, function_of("chunk", "other"));
  ASSERT_EQ(shelf.state().functions.size(), 2u);
  function.priority = 5;
  EXPECT_THAT(shelf.fails({testing::add(function)}).to_string(),
              AllOf(HasSubstr("function 'chunk' of group 'kda'"), HasSubstr("priority 0 and 5")));
}

TEST(FunctionChanges, WhatIsRemovedIsWhatHoldsOrBelongs) {
  Shelf shelf;
  const auto keep = std::make_shared<int>(0);
  shelf.put(testing::backend_of("acme"), function_of("a", "acme"));
  shelf.apply({testing::add(function_of("b", "acme"), keep),
               testing::add(function_of("a", "other"), keep)});
  EXPECT_EQ(shelf.apply({RemoveKept{keep.get()}}).removed.size(), 2u);
  ASSERT_EQ(shelf.state().functions.size(), 1u);
  EXPECT_EQ(shelf.apply({RemoveBackend{"acme"}}).removed.size(), 2u);
  EXPECT_TRUE(shelf.state().functions.empty());
}

TEST(FunctionChanges, APluginsOwnBackendGoesWithoutTheFunctionsOfOthers) {
  Shelf shelf;
  const auto keep = std::make_shared<int>(0);
  shelf.apply({testing::add(testing::backend_of("acme"), keep),
               testing::add(function_of("a", "acme"), keep),
               testing::add(function_of("b", "acme"))});
  EXPECT_EQ(shelf.apply({RemoveKept{keep.get()}}).removed.size(), 2u);
  ASSERT_EQ(shelf.state().functions.size(), 1u);
  EXPECT_EQ(shelf.state().functions[0]->name, "b");
}

TEST(FunctionChanges, AReplacedFunctionKeepsItsPlace) {
  Shelf shelf;
  const auto old = std::make_shared<int>(0), fresh = std::make_shared<int>(0);
  shelf.apply(
      {testing::add(function_of("a", "first"), old), testing::add(function_of("a", "second"))});
  shelf.apply({RemoveKept{old.get(), true}, testing::add(function_of("b", "first"), fresh),
               testing::add(function_of("a", "first"), fresh)});
  ASSERT_EQ(shelf.state().functions.size(), 3u);
  EXPECT_EQ(shelf.state().functions[0]->backend, "first");
  EXPECT_EQ(shelf.state().functions[0]->keep, fresh);
  EXPECT_EQ(shelf.state().functions[1]->backend, "second");
  EXPECT_EQ(shelf.state().functions[2]->name, "b");
}

TEST(FunctionChanges, ABackendWithoutARecordIsRemoved) {
  Shelf shelf;
  shelf.put(function_of("a", "only_functions"));
  EXPECT_EQ(shelf.apply({RemoveBackend{"only_functions"}}).removed.size(), 1u);
  EXPECT_FALSE(shelf.fails({RemoveBackend{"only_functions"}}).ok());
}

}  // namespace
}  // namespace yard::registry
