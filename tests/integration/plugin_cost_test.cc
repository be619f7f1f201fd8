// SPDX-License-Identifier: Apache-2.0
// What plugins may cost, beside a bare dlopen of the same file in the same run.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "plugin_files.h"

namespace yard::testing {
namespace {

template <class F>
double microseconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// The best of several: other programs of a busy machine are not what is measured.
template <class F>
double best_of(int rounds, const F& f) {
  double best = 1e12;
  for (int i = 0; i < rounds; ++i) best = std::min(best, f());
  return best;
}

// Opening and closing the library with no check at all.
double bare_open(const std::string& path) {
  return best_of(20, [&] {
    return microseconds([&] {
      if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) ::dlclose(library);
    });
  });
}

TEST(PluginCost, LoadWithAllChecksTakesSomeTimesABareOpen) {
  Folder folder;
  const std::string path = folder.put("answer");
  Runtime runtime(alone({folder.path()}));
  const double us = best_of(20, [&] {
    const double t = microseconds([&] { runtime.plugins().load("answer").or_throw(); });
    runtime.plugins().unload("answer").value().wait().or_throw();
    return t;
  });
  const double bare = bare_open(path);
  std::printf("load with all checks: %.0f us, bare dlopen: %.0f us\n", us, bare);
  EXPECT_LE(us, 20 * bare);
}

TEST(PluginCost, LookingAtAManifestTakesNoLongerThanABareOpen) {
  Folder folder;
  const std::string path = folder.put("answer");
  RuntimeSettings settings = alone();
  settings.builtin_backends = false;
  Runtime runtime(settings);
  // A search through one file: opens it, reads and checks its manifest.
  const double us = best_of(20, [&] {
    runtime.plugins().discover({path}).or_throw();
    runtime.plugins().forget("answer").or_throw();
    return microseconds([&] { runtime.plugins().discover({path}).or_throw(); });
  });
  const double bare = bare_open(path);
  std::printf("manifest check: %.0f us, bare dlopen: %.0f us\n", us, bare);
  EXPECT_LE(us, 2 * bare);
}

TEST(PluginCost, AHundredPluginsAreFoundWithoutBeingOpened) {
  Folder folder;
  const std::string good = read_file(built_plugin("answer"));
  // Each with a name of its own, of the same length.
  for (int i = 0; i < 100; ++i) {
    std::string bytes = good;
    char name[16];
    std::snprintf(name, sizeof name, "ans%03d", i);
    for (size_t at = 0; (at = bytes.find("name=answer", at)) != bytes.npos; ++at)
      bytes.replace(at + 5, 6, name);
    folder.put_bytes(bytes, std::string(name) + ".so");
  }
  double us = best_of(
      5, [&] { return microseconds([&] { const Runtime runtime(alone({folder.path()})); }); });
  const double bare = bare_open(built_plugin("answer"));
  std::printf("start with 100 plugins: %.1f ms, bare dlopen: %.0f us\n", us / 1000, bare);
  EXPECT_LE(us, 400 * bare);
  Runtime runtime(alone({folder.path()}));
  size_t found = 0;
  for (const PluginInfo& p : runtime.plugins().list()) found += p.state == PluginState::kFound;
  EXPECT_EQ(found, 100u);
  const std::string maps = read_file("/proc/self/maps");
  EXPECT_EQ(maps.find(folder.path()), maps.npos);
}

}  // namespace
}  // namespace yard::testing
