// SPDX-License-Identifier: Apache-2.0
// The host table: what kernels may ask of the runtime they run in.
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

  // What devices have beside the processor, which this library cannot find out: "cuda:sm_90". From now on; all or
  // nothing. Any thread.
  Status state(const std::vector<std::string>& features);
  std::vector<std::string> stated() const;
  bool has_stated(int32_t device, std::string_view name) const noexcept;

 private:
  // Only added to, so that nobody waits, not even a forked child.
  struct Stated {
    int32_t device;
    std::string name, text;
    const Stated* next;
  };
  std::atomic<const Stated*> stated_{nullptr};
};

}  // namespace yard::runtime
