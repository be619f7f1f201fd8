// SPDX-License-Identifier: Apache-2.0
// Tests the forms of features, levels and ranges, and invalid texts.
#include "registry/features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace yard::registry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

bool satisfies(std::string_view stated, std::string_view wanted) {
  const auto s = FeatureName::read(stated), w = FeatureName::read(wanted);
  return s.same_name(w) && s.satisfies(w);
}

TEST(Features, AHigherLevelSatisfiesALowerOne) {
  EXPECT_TRUE(satisfies("sm_89", "sm_80"));
  EXPECT_TRUE(satisfies("sm_80", "sm_80"));
  EXPECT_TRUE(satisfies("sm_100", "sm_90"));
  EXPECT_FALSE(satisfies("sm_75", "sm_80"));
  EXPECT_FALSE(satisfies("driver_535", "sm_80"));
}

TEST(Features, ARangeHasAHighestLevel) {
  EXPECT_TRUE(satisfies("sm_80", "sm_80..89"));
  EXPECT_TRUE(satisfies("sm_89", "sm_80..89"));
  EXPECT_FALSE(satisfies("sm_90", "sm_80..89"));
  EXPECT_FALSE(satisfies("sm_79", "sm_80..89"));
  EXPECT_TRUE(satisfies("sm_90", "sm_90..90"));
}

TEST(Features, ANameWithoutANumberAtItsEndIsThatVeryName) {
  EXPECT_TRUE(satisfies("sm_90a", "sm_90a"));
  EXPECT_FALSE(satisfies("sm_90a", "sm_90"));
  EXPECT_FALSE(satisfies("sm_90", "sm_90a"));
  EXPECT_FALSE(satisfies("gfx942", "gfx90a"));
  EXPECT_TRUE(satisfies("tensor_cores", "tensor_cores"));
}

TEST(Features, NameADeviceOrEveryDeviceOfAType) {
  const Feature every = parse_feature("cuda:sm_80").value();
  EXPECT_EQ(every.device, (Device{2, Feature::kEvery}));
  EXPECT_EQ(every.name, "sm_80");
  EXPECT_EQ(parse_feature("cuda:0:sm_80").value().device, (Device{2, 0}));
  EXPECT_EQ(parse_feature("cuda:13:sm_80..89").value().device, (Device{2, 13}));
  EXPECT_TRUE(parse_feature("avx2").value().of_processor());
}

TEST(Features, OfAnotherFormAreErrors) {
  for (const char* wrong : {"", "cuda:", ":sm_90", "toaster:hot", "cuda:x:sm_90", "cuda:sm_90..80",
                            "cuda:sm_80..", "cuda:sm..90", "cuda:0:1:sm_90", "cuda:a b"})
    EXPECT_THAT(parse_feature(wrong).status().to_string(),
                AllOf(HasSubstr("invalid feature"), HasSubstr("like cuda:sm_90")))
        << wrong;
}

TEST(Features, AnUnknownFeatureOfTheProcessorIsRefusedWithASuggestion) {
  for (const char* known : {"neon", "avx2", "sse4.1", "cpu:sve2"})
    EXPECT_TRUE(parse_needed_feature(known).ok()) << known;
  EXPECT_THAT(parse_needed_feature("nean").status().to_string(),
              AllOf(HasSubstr("invalid feature \"nean\""), HasSubstr("did you mean 'neon'")));
  EXPECT_FALSE(parse_needed_feature("avx1024x").ok());
}

}  // namespace
}  // namespace yard::registry
