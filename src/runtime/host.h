// SPDX-License-Identifier: Apache-2.0
// The host table, whose functions kernels may call, and the built-in backends.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "registry/features.h"

namespace yard::detail {
class Core;
}

namespace yard::runtime {

// The host table of one runtime. `core` is set once the core exists.
struct Host {
  yard_host_t table;
  detail::Core* core = nullptr;
  Host();
  Host& operator=(Host&&) = delete;

  // Adds features of devices other than the CPU, such as "cuda:sm_90" or "cuda:1:sm_90". The latest
  // level of a name counts, and a level for one device overrides the level for its type. Adds
  // nothing on error. Thread-safe.
  Status state(const std::vector<std::string>& features);
  // Index -1 means any device of the type. Allocates nothing.
  bool has_stated(yard_device_t device, std::string_view name) const noexcept;

 private:
  // Returns the latest statement of the name, or null if there is none.
  const registry::Feature* find(Device device, const registry::FeatureName& name) const noexcept;
  mutable base::Mutex lock_{base::Rank::kLog};
  std::vector<registry::Feature> stated_;  // latest first
};

// These two functions return the code of an error and write as much of its text as there is room
// for. report_exception() is called in a catch block. It allocates nothing, because memory may have
// run out, and rethrows the unwinding of a cancelled thread.
int32_t report(const Status& status, char* error, size_t size);
int32_t report_exception(char* error, size_t size);

// Exceptions stop here: every function of the C interface that may throw runs inside guarded().
// This costs nothing if nothing is thrown.
template <class F>
int32_t guarded(char* error, size_t size, const F& f) {
  try {
    return report(f(), error, size);
  } catch (...) {
    return report_exception(error, size);
  }
}

using LoopBody = void (*)(void* context, int64_t begin, int64_t end);

// Runs body over [0, count), never with an empty range, and returns when all of it is done. An
// exception of the body stops further pieces and becomes YARD_FAULT. The caller's policy scope
// holds in every piece. Loops may be nested. Allocates only when more than one thread takes part.
int32_t parallel_for(int64_t count, int64_t grain, LoopBody body, void* context);

// Notices a change of the caller's processors within 10 ms.
int32_t concurrency() noexcept;

// Like parallel_for() with the given number of threads. For tests.
int32_t parallel_for_on(int32_t threads, int64_t count, int64_t grain, LoopBody body,
                        void* context);

// Returns the query functions of the built-in backends. backends/CMakeLists.txt writes the list.
std::span<const yard_plugin_query_t> builtin_backends() noexcept;

}  // namespace yard::runtime
