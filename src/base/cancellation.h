// SPDX-License-Identifier: Apache-2.0
// pthread_cancel and calls.
//
// A thread that is cancelled unwinds out of the next cancellation point, such as close() or read(). Out of a destructor, a
// noexcept function or a catch block that ends the process. So calls defer it where they do more than run a kernel.
#pragma once

#include <pthread.h>

namespace yard::base {

// Defers the cancellation of this thread while it lives.
class CancellationOff {
 public:
  CancellationOff() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationOff() { pthread_setcancelstate(before_, nullptr); }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  int before_ = 0;
};

}  // namespace yard::base
