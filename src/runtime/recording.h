// SPDX-License-Identifier: Apache-2.0
// Recording calls: an observer that counts them, and a thread that writes them to a file. See yard/trace.h.
#pragma once

#include <yard/status.h>
#include <yard/trace.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"
#include "base/tasks.h"
#include "op/call.h"
#include "registry/interfaces.h"

namespace yard::runtime {

// The calls that go into one file. Runtimes of a process that record to the same file share one. A forked child begins a
// recording of its own, and leaves the parent's file as it is.
class Recording {
 public:
  // The recording of a path, made if there is none. `%p` in the path stands for the process id; a forked child appends a
  // dot and its process id. An error if the file cannot be written. Ends on a thread of its own (base/tasks.h).
  static Result<std::shared_ptr<Recording>> open(const std::string& path);
  // Writes the rest of the file.
  ~Recording();

  // Counts a call under the bytes that identify it. Makes its text if it is new.
  void count(std::string_view key, const std::function<std::string()>& make_text);
  void drop() noexcept;

  // Writes the file if calls have been counted since. There is no file before the first call.
  Status write();
  yard::Recording::Stats stats();

 private:
  struct Counted {
    std::string text;
    uint64_t count = 0;
  };
  // Threads that make different calls seldom share a lock.
  struct alignas(64) Shard {
    base::Mutex lock{base::Rank::kOutputShard};
    std::unordered_map<std::string, Counted, op::CallKeyHash, std::equal_to<>> calls;
  };

  explicit Recording(std::string path);
  void start();
  void write_or_log();
  std::string text();
  void restart_in_child();

  const std::string path_;  // as it was named
  std::string file_;
  std::array<Shard, 64> shards_;
  std::atomic<size_t> distinct_{0};
  std::atomic<uint64_t> dropped_{0};
  std::atomic<bool> changed_{false}, started_{false};
  base::Mutex writing_{base::Rank::kOutput};  // one writer at a time
  Status problem_;                            // under writing_
  base::TaskThread thread_{"yard-record", {.at_end = [this] { write_or_log(); }}};
  const base::InChild in_child_{[this] { restart_in_child(); }};
};

// One runtime's part in a recording.
class Recorder final : public registry::CallObserver {
 public:
  explicit Recorder(std::shared_ptr<Recording> recording);
  void seen(const registry::ObservedCall& call) noexcept override;
  Recording& recording() const noexcept { return *recording_; }

 private:
  const std::shared_ptr<Recording> recording_;
  uint64_t id_;  // ops of different runtimes have the same indices
};

}  // namespace yard::runtime
