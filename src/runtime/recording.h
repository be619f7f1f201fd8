// SPDX-License-Identifier: Apache-2.0
// Recording calls: an observer that counts them, and a thread that writes them to a file. See yard/trace.h.
#pragma once

#include <yard/status.h>
#include <yard/trace.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/tasks.h"
#include "registry/interfaces.h"

namespace yard::runtime {

// The calls that go into one file. Runtimes of a process that record to the same file share one.
class Recording {
 public:
  // The recording of a path, made if there is none. `%p` in the path stands for the process id; a forked child appends a
  // dot and its process id. An error if the file cannot be written. Ends on a thread of its own (base/tasks.h).
  static Result<std::shared_ptr<Recording>> open(const std::string& path);
  // Writes the rest of the file.
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Counts a call under the bytes that identify it. False: it is new, and add() must follow.
  bool count(std::string_view key);
  // Adds a new call with its text.
  void add(std::string_view key, std::string text);
  void drop() noexcept;

  // Writes the file if calls have been counted since; there is no file before the first call.
  Status write();
  RecordingStats stats();

  struct Table;

 private:
  explicit Recording(std::string path);
  Table& table() const noexcept;

  const std::string path_;
  // A forked child begins a recording of its own, and leaves the parent's as it is.
  void restart_in_child();
  std::atomic<Table*> state_;
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
  const uint64_t id_;  // ops of different runtimes have the same indices
};

}  // namespace yard::runtime
