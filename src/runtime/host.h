// SPDX-License-Identifier: Apache-2.0
// The host table: the functions of a runtime that kernels may call.
#pragma once

#include <yard/plugin.h>
#include <yard/status.h>

#include <atomic>
#include <string>
#include <vector>

namespace yard::detail {
class Core;
}

namespace yard::runtime {

// A table for one runtime; `core` is set once it exists.
struct Host {
  yard_host_t table;
  detail::Core* core = nullptr;
  Host();
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Adds features of devices other than the CPU, which this library cannot detect: "cuda:sm_90". All or none. Any thread.
  Status state(const std::vector<std::string>& features);
  std::vector<std::string> stated() const;
  bool has_stated(int32_t device, std::string_view name) const noexcept;

 private:
  // Only added to: readers need no lock, also in a forked child.
  struct Stated {
    int32_t device;
    std::string name, text;
    const Stated* next;
  };
  std::atomic<const Stated*> stated_{nullptr};
};

}  // namespace yard::runtime
