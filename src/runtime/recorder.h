// SPDX-License-Identifier: Apache-2.0
// Recording calls: an observer that counts them, and a thread that writes them down. See yard/trace.h.
#pragma once

#include <yard/result.h>
#include <yard/trace.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "registry/call_observer.h"

namespace yard::runtime {

// The calls that go into one file. Runtimes of a process that record to the same file share one.
class Recording {
 public:
  // The one for the path, made if there is none. `%p` in a path stands for the process's number; a forked child
  // writes to the path with a dot and its number behind it. The error says why the file cannot be written.
  static Result<std::shared_ptr<Recording>> open(const std::string& path);
  // The last part of the file is written before it returns.
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // Counts a call that has been seen, under whatever bytes tell it from others. False: it is new.
  bool count(std::string_view key);
  // A new one, with its text.
  void add(std::string_view key, std::string text);
  void drop() noexcept;

  // Writes the file if something has changed since; there is none before the first call.
  Status write();
  RecordingStats stats();

  // In a forked child: a recording of its own.
  void forked() noexcept;

  struct Book;

 private:
  explicit Recording(std::string path);
  std::shared_ptr<Book> state() const;

  const std::string path_;
  // What a forked child leaves behind is never freed: its locks may be held by nobody.
  std::atomic<const std::shared_ptr<Book>*> state_;
};

// One runtime's part in a recording.
class Recorder final : public registry::CallObserver {
 public:
  explicit Recorder(std::shared_ptr<Recording> recording);
  void seen(const registry::ObservedCall& call) noexcept override;
  void forked() noexcept override { recording_->forked(); }
  Recording& recording() const noexcept { return *recording_; }

 private:
  const std::shared_ptr<Recording> recording_;
  const uint64_t id_;  // ops of different runtimes have the same indices
};

}  // namespace yard::runtime
