// SPDX-License-Identifier: Apache-2.0
// Asking a child of fork, for tests.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace yard::base {

// Whether `f` says true in a child; one that hangs is ended after a minute.
template <class F>
bool true_in_child(const F& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(f() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace yard::base
