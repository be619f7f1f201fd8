// SPDX-License-Identifier: Apache-2.0
// Recording calls: an observer counts them, and a thread writes the counts to a file.
#pragma once

#include <yard/status.h>
#include <yard/trace.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/tasks.h"
#include "dispatch/core.h"
#include "registry/interfaces.h"
#include "runtime/observed_text.h"

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

  ObservedTexts texts;
  // Counts a call that has one of these texts.
  void count(ObservedTexts::Text& text) noexcept;

  // Writes the file if calls have been counted since. There is no file before the first call.
  Status write();
  yard::Recording::Stats stats();

 private:
  explicit Recording(std::string path);
  void start();
  void write_or_log();
  std::string text();
  void restart_in_child();

  const std::string path_;  // as it was named
  std::string file_;        // under writing_; empty in a child that has not used it
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
  const std::string id_;  // ops of different runtimes have the same indices
};

// Ends the recording of a runtime, if there is one, and begins that of the path unless it is null.
Status record(detail::Core& core, const std::string* path);

}  // namespace yard::runtime
