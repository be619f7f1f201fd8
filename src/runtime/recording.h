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

// The calls that go into one file. Runtimes of a process that record to one file share a Recording.
// A forked child begins its own recording and does not touch the parent's file.
class Recording {
 public:
  // Returns the recording of a path, and creates it if needed. `%p` in the path stands for the
  // process id. A forked child appends a dot and its process id to a path without `%p`. Returns an
  // error if the file cannot be written. The recording ends on its own thread (base/tasks.h).
  static Result<std::shared_ptr<Recording>> open(const std::string& path);
  ~Recording();

  ObservedTexts texts;
  void count(ObservedTexts::Text& text) noexcept;

  // Does nothing if no calls have been counted since the last write.
  Status write();
  yard::Recording::Stats stats();

 private:
  explicit Recording(std::string path);
  void start();
  void write_or_log();
  std::string text();
  void restart_in_child();

  const std::string path_;  // the path before %p is replaced
  std::string file_;        // guarded by writing_; empty in a child that has not used it
  std::atomic<bool> changed_{false}, started_{false};
  base::Mutex writing_{base::Rank::kOutput};  // one writer at a time
  Status problem_;                            // guarded by writing_
  base::TaskThread thread_{"yard-record", {.at_end = [this] { write_or_log(); }}};
  const base::InChild in_child_{[this] { restart_in_child(); }};
};

class Recorder final : public registry::CallObserver {
 public:
  explicit Recorder(std::shared_ptr<Recording> recording);
  void seen(const registry::ObservedCall& call) noexcept override;
  Recording& recording() const noexcept { return *recording_; }

 private:
  const std::shared_ptr<Recording> recording_;
  const std::string id_;  // tells ops of different runtimes apart, whose indices are equal
};

// Ends the recording of a runtime, and begins one to the path unless it is null.
Status record(detail::Core& core, const std::string* path);

}  // namespace yard::runtime
