// SPDX-License-Identifier: Apache-2.0
// Guards oneDNN's use of OpenMP threads, which do not exist in a forked child.
#pragma once

#include <yard/plugin.h>

namespace yard::onednn {

// Begins to watch for forks. Later calls do nothing.
void watch_forks();

// Turns off oneDNN's output for profilers, unless the environment asks for it. By default oneDNN on
// aarch64 writes /tmp/perf-PID.map and follows symbolic links of other users. Call this function
// before the first use of oneDNN.
void stop_profiling() noexcept;

// Returns whether this process was forked after watch_forks(). OpenMP's threads do not exist in
// such a process, and its first parallel region would wait for them for ever.
bool forked() noexcept;

// Returns whether `count` more threads can be started now. Starts them and waits for their end.
bool can_start(int count) noexcept;

// While this lives, oneDNN uses as many OpenMP threads for this caller as the host would use, at
// most `most` and as many as can be started. A piece of a parallel_for gets one thread.
class ThreadCount {
 public:
  ThreadCount(const yard_host_t* host, int64_t most) noexcept;
  ~ThreadCount();
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;
  int value() const noexcept { return value_; }

 private:
  int value_ = 0, before_ = 0;
};

}  // namespace yard::onednn
