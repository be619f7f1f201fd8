// SPDX-License-Identifier: Apache-2.0
// Uses one source in three ways: as a shared library, registered by the program that links it, and
// as a built-in backend. All three behave alike.
// This program replaces the list of built-in backends that the build makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "plugin_files.h"
#include "runtime/host.h"

extern "C" {
const yard_plugin_t* yard_query_reference(uint32_t host_abi, const yard_host_t* host);
const yard_plugin_t* yard_query_example_cpp(uint32_t host_abi, const yard_host_t* host);
}

namespace yard::testing {
namespace {

bool g_built_in = false;

std::vector<float> caller(Runtime& runtime) {
  std::vector<float> x(1000), out(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.37f * static_cast<float>(i) - 180;
  runtime.call("softcap", {view(out, {10, 100}), view(x, {10, 100}), 12.0f}).or_throw();
  EXPECT_EQ(runtime.resolve("softcap(f32[10,100])").value().kernel, "default.example_cpp");
  return out;
}

std::vector<float> from_the_library() {
  g_built_in = false;
  Runtime runtime(alone({built_plugin("example_cpp")}));
  return caller(runtime);
}

TEST(OneSource, BehavesTheSameAsALibraryAndRegisteredByTheProgram) {
  g_built_in = false;
  Runtime runtime(alone());
  EXPECT_FALSE(runtime.resolve("softcap(f32[10,100])").ok());
  Changes changes;
  changes.add_plugin(*yard_query_example_cpp(YARD_ABI_VERSION, nullptr));
  runtime.apply(std::move(changes)).or_throw();
  const std::vector<float> out = caller(runtime);
  EXPECT_FLOAT_EQ(out[0], 12 * std::tanh(-15.0f));
  EXPECT_EQ(out, from_the_library());
}

TEST(OneSource, BehavesTheSameAsALibraryAndBuiltIn) {
  g_built_in = true;
  Runtime runtime(alone());
  const std::vector<float> out = caller(runtime);
  EXPECT_EQ(out, from_the_library());
}

TEST(OneSource, AnInstalledLibraryIsHarmlessOnceItsOpIsBuiltIn) {
  g_built_in = true;
  Runtime runtime(alone({built_plugin("example_cpp")}));
  const std::vector<float> out = caller(runtime);
  EXPECT_EQ(info_of(runtime, "example_cpp").reason, PluginReason::kConflict);
  EXPECT_EQ(out, from_the_library());
}

}  // namespace
}  // namespace yard::testing

namespace yard::runtime {

std::span<const yard_plugin_query_t> builtin_backends() noexcept {
  static constexpr yard_plugin_query_t kQueries[] = {yard_query_reference, yard_query_example_cpp};
  return {kQueries, testing::g_built_in ? 2u : 1u};
}

}  // namespace yard::runtime
