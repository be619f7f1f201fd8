// SPDX-License-Identifier: Apache-2.0
// Checks in a forked child, for tests.
#pragma once

#include <execinfo.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace yard::base {

// Makes a child that hangs print a backtrace and exit after a minute.
inline void end_after_a_minute() {
  ::signal(SIGALRM, [](int) {
    void* frames[64];
    ::backtrace_symbols_fd(frames, ::backtrace(frames, 64), 2);
    ::_exit(125);
  });
  ::alarm(60);
}

// Whether `f` returns true in a child; one that hangs is ended after a minute.
template <class F>
bool true_in_child(const F& f) {
  void* here[1];
  ::backtrace(here, 1);  // loads what it needs, which a child may not be able to
  const pid_t child = ::fork();
  if (child == 0) {
    end_after_a_minute();
    ::_exit(f() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace yard::base
