// SPDX-License-Identifier: Apache-2.0
// The host table: the functions of a runtime that kernels may call. And the built-in backends.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/append_list.h"
#include "registry/features.h"

namespace yard::detail {
class Core;
}

namespace yard::runtime {

// A table for one runtime; `core` is set once it exists.
struct Host {
  yard_host_t table;
  detail::Core* core = nullptr;
  Host();
  Host& operator=(Host&&) = delete;

  // Adds features of devices other than the CPU: "cuda:sm_90", "cuda:1:sm_90". The latest level of
  // a name counts, and that of a device before that of its type. All or none. Thread-safe.
  Status state(const std::vector<std::string>& features);
  // Index -1: any device of that type. Allocates nothing.
  bool has_stated(yard_device_t device, std::string_view name) const noexcept;

 private:
  struct Stated {
    registry::Feature feature;
    Stated* next = nullptr;
  };
  // The latest statement of the name. Returns null if there is none.
  const Stated* find(int32_t type, int32_t index, const registry::FeatureName& name) const noexcept;
  base::OwnedAppendList<Stated> stated_;
};

// Copies as much of the text as there is room for, and ends it by a NUL.
void copy_text(std::string_view text, char* error, size_t size) noexcept;
// In a catch block: the code of what was thrown, with its text in `error`. Allocates nothing: there may be no memory.
// Rethrows the unwinding of a cancelled thread.
int32_t report_exception(char* error, size_t size);

using LoopBody = void (*)(void* context, int64_t begin, int64_t end);

// Runs body over [0, count), never with an empty range, and returns when all of it is done. An
// exception of the body stops further pieces and becomes YARD_FAULT. The caller's policy scope
// holds in every piece. Loops may be nested. Allocates only when more than one thread takes part.
int32_t parallel_for(int64_t count, int64_t grain, LoopBody body, void* context);

// How many threads a loop of this caller may use. Notices a change of its processors within 10 ms.
int32_t concurrency() noexcept;

// As parallel_for(), with a given number of threads. For tests.
int32_t parallel_for_on(int32_t threads, int64_t count, int64_t grain, LoopBody body,
                        void* context);

// The query functions of the built-in backends. backends/CMakeLists.txt writes the list.
std::span<const yard_plugin_query_t> builtin_backends() noexcept;

}  // namespace yard::runtime
