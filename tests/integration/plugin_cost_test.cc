// SPDX-License-Identifier: Apache-2.0
// Compares the cost of plugins with a bare dlopen of the same file in the same run.
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "plugin_files.h"
#include "testing.h"

namespace yard::testing {
namespace {

template <class F>
double microseconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// Measures the CPU time of this thread, so that other work on the machine does not count.
template <class F>
double cpu_microseconds(const F& f) {
  const auto now = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
  };
  const double start = now();
  f();
  return now() - start;
}

// Returns the best of several rounds, to leave out other programs of a busy machine.
template <class F>
double best_of(int rounds, const F& f) {
  double best = 1e12;
  for (int i = 0; i < rounds; ++i) best = std::min(best, f());
  return best;
}

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

TEST(PluginCost, ReadingAManifestTakesNoLongerThanABareOpen) {
  Folder folder;
  const std::string path = folder.put("answer");
  RuntimeSettings settings = alone();
  settings.builtin_backends = false;
  Runtime runtime(settings);
  const double us = best_of(20, [&] {
    runtime.plugins().discover({path}).or_throw();
    runtime.plugins().forget("answer").or_throw();
    return microseconds([&] { runtime.plugins().discover({path}).or_throw(); });
  });
  const double bare = bare_open(path);
  std::printf("manifest check: %.0f us, bare dlopen: %.0f us\n", us, bare);
  EXPECT_LE(us, 2 * bare);
}

// Writes a hundred plugins with ten kernels each, all with different names.
void put_hundred(const Folder& folder) {
  const std::string one = read_file(built_plugin("ten_kernels"));
  for (int i = 0; i < 100; ++i) {
    std::string bytes = one;
    char name[16];
    std::snprintf(name, sizeof name, "ten%03d", i);
    for (size_t at = 0; (at = bytes.find("ten000", at)) != bytes.npos; ++at)
      bytes.replace(at, 6, name);
    folder.put_bytes(bytes, std::string(name) + ".so");
  }
}

size_t kernels_of_plugins(const Runtime& runtime) {
  size_t count = 0;
  for (const OpInfo& op : runtime.list().ops)
    if (op.name.starts_with("ten")) count += op.kernels.size();
  return count;
}

bool any_is_open(const Folder& folder) {
  const std::string maps = read_file("/proc/self/maps");
  return maps.find(folder.path()) != maps.npos;
}

TEST(PluginCost, AHundredPluginsAreFoundWithoutBeingOpened) {
  Folder folder;
  put_hundred(folder);
  const auto start = [&](const RuntimeSettings& settings) {
    return best_of(7, [&] { return cpu_microseconds([&] { const Runtime runtime(settings); }); });
  };
  const double without = start(alone()), with = start(alone({folder.path()}));
  std::printf("start: %.2f ms, with 100 plugins of 10 kernels: %.2f ms, %.1f times\n",
              without / 1000, with / 1000, with / without);
  // A load takes about half a bare start, so loading all plugins would take longer than this.
  EXPECT_LE(with, 40 * without);
  Runtime runtime(alone({folder.path()}));
  size_t found = 0;
  for (const PluginInfo& p : runtime.plugins().list()) found += p.state == PluginState::kFound;
  EXPECT_EQ(found, 100u);
  EXPECT_EQ(kernels_of_plugins(runtime), 0u);
  EXPECT_FALSE(any_is_open(folder));
}

TEST(PluginCost, AThousandKernelsOfPluginsCostAHitNothing) {
  Folder folder;
  put_hundred(folder);
  Runtime plain(alone()), found(alone({folder.path()})), loaded(alone({folder.path()}));
  for (const PluginInfo& p : loaded.plugins().list()) loaded.plugins().load(p.name).or_throw();
  EXPECT_EQ(kernels_of_plugins(loaded), 1000u);
  EXPECT_EQ(kernels_of_plugins(found), 0u);
  for (Runtime* r : {&plain, &found, &loaded}) {
    Changes c;
    c.add_backend(backend_of("test")).add_op(op_of(kCopy)).add_kernel(kernel_of("copy", "a", 1));
    r->apply(std::move(c)).or_throw();
  }
  constexpr Op<void(Out, In, int)> copy{"copy"};
  Floats out(64), x(64);
  const auto hit = [&](Runtime& r) {
    const auto on = copy.on(r);
    on(out.view, x.view, 0).or_throw();
    return best_of(31, [&] {
      return microseconds([&] {
        for (int k = 0; k < 2000; ++k) on(out.view, x.view, 0).ignore();
      });
    });
  };
  double best_found = 1e9, best_loaded = 1e9;
  for (int attempt = 0; attempt < 10 && std::max(best_found, best_loaded) > 1.1; ++attempt) {
    const double a = hit(plain);
    best_found = std::min(best_found, hit(found) / a);
    best_loaded = std::min(best_loaded, hit(loaded) / a);
  }
  std::printf(
      "a hit with 100 plugins found: %.2f times, with their 1,000 kernels loaded: %.2f times\n",
      best_found, best_loaded);
  EXPECT_LT(best_found, 1.3);
  EXPECT_LT(best_loaded, 1.3);
}

}  // namespace
}  // namespace yard::testing
