// SPDX-License-Identifier: Apache-2.0
// What oneDNN needs of the process: OpenMP threads, which no forked child has.
#pragma once

#include <yard/plugin.h>

namespace yard::onednn {

// Begins to watch for forks; after the first time it does nothing.
void watch_forks();

// Turns off what oneDNN notes for profilers, unless the environment asks for it. On aarch64 it would
// write /tmp/perf-PID.map by default, through symbolic links of other users. Call it before the
// first use of oneDNN.
void stop_profiling() noexcept;

// Whether this process was forked from one in which forks were watched. OpenMP's threads do not exist
// here, and the first parallel region would wait for them for ever.
bool forked() noexcept;

// Whether so many more threads can be started now: starts them, and waits for their end.
bool can_start(int count) noexcept;

// As long as it lives, oneDNN uses as many OpenMP threads for this caller as the host would use of its
// own, and no more than `most`: one where the caller is itself a piece of a parallel_for. No more than can be had.
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
