// SPDX-License-Identifier: Apache-2.0
// CPU features: known names, unknown names, and agreement with the kernel's list.
#include "base/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

namespace yard::base {
namespace {

TEST(CpuFeatures, KnowsTheNamesOfBothArchitectures) {
  for (const char* name :
       {"sse2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bf16", "avxvnni", "amx_tile",
        "neon", "asimdhp", "dotprod", "i8mm", "bf16", "sve", "sve2", "lse", "sme"})
    EXPECT_GE(has_cpu_feature(name), 0) << name;
}

TEST(CpuFeatures, UnknownNamesAreNotMerelyAbsent) {
  for (const char* name : {"", "AVX2", "avx3", "avx2 ", "sse", "everything"})
    EXPECT_EQ(has_cpu_feature(name), -1) << name;
}

TEST(CpuFeatures, HasTheBaselineAndNothingOfTheOtherArchitecture) {
#if defined(__x86_64__)
  EXPECT_EQ(has_cpu_feature("sse2"), 1);
  EXPECT_EQ(has_cpu_feature("neon"), 0);
  EXPECT_EQ(has_cpu_feature("sve"), 0);
#elif defined(__aarch64__)
  EXPECT_EQ(has_cpu_feature("neon"), 1);
  EXPECT_EQ(has_cpu_feature("avx2"), 0);
  EXPECT_EQ(has_cpu_feature("sse2"), 0);
#endif
}

TEST(CpuFeatures, ListsEachKnownOneOnce) {
  const auto names = known_cpu_features();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  for (const std::string& n : names) EXPECT_GE(has_cpu_feature(n), 0) << n;
}

// The kernel lists features that are present and enabled, so the answers must agree.
TEST(CpuFeatures, AgreeWithTheKernel) {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> listed;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string w; words >> w;) listed.insert(w);
    break;
  }
  if (listed.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no features here";
  // Maps our names to the kernel's. Tiles are missing, because the kernel lists them even if it
  // refuses their use.
  const std::map<std::string, std::string> names = {
#if defined(__x86_64__)
    {"sse3", "pni"},
    {"ssse3", "ssse3"},
    {"sse4.1", "sse4_1"},
    {"sse4.2", "sse4_2"},
    {"avx", "avx"},
    {"avx2", "avx2"},
    {"fma", "fma"},
    {"f16c", "f16c"},
    {"bmi1", "bmi1"},
    {"bmi2", "bmi2"},
    {"avx512f", "avx512f"},
    {"avx512bw", "avx512bw"},
    {"avx512cd", "avx512cd"},
    {"avx512dq", "avx512dq"},
    {"avx512vl", "avx512vl"},
    {"avx512vnni", "avx512_vnni"},
    {"avx512bf16", "avx512_bf16"},
#elif defined(__aarch64__)
    {"neon", "asimd"},
    {"fphp", "fphp"},
    {"asimdhp", "asimdhp"},
    {"dotprod", "asimddp"},
    {"lse", "atomics"},
    {"sve", "sve"},
    {"sve2", "sve2"},
    {"i8mm", "i8mm"},
    {"bf16", "bf16"},
    {"crypto", "aes"},
#endif
  };
  for (const auto& [ours, theirs] : names)
    EXPECT_EQ(has_cpu_feature(ours), listed.count(theirs) != 0 ? 1 : 0) << ours;
}

}  // namespace
}  // namespace yard::base
