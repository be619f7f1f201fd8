// SPDX-License-Identifier: Apache-2.0
// Word of when what was taken out is gone.
#include <fmt/format.h>

#include <thread>

#include "base/reclaimer.h"
#include "dispatch/core.h"

namespace yard {

Ticket::Ticket() = default;
Ticket::Ticket(std::shared_ptr<detail::TicketState> state) : state_(std::move(state)) {}
Ticket::~Ticket() = default;
Ticket::Ticket(const Ticket&) = default;
Ticket& Ticket::operator=(const Ticket&) = default;

bool Ticket::done() const {
  if (state_ == nullptr) return true;
  if (state_->forks != base::forks()) return base::inherited_calls_ended();
  if (state_->calls_ended != nullptr) {
    base::reclaimer().collect();
    return state_->calls_ended->load(std::memory_order_acquire);
  }
  const auto gone = [&] {
    for (const auto& w : state_->removed)
      if (!w.expired()) return false;
    return true;
  };
  if (gone()) return true;
  base::reclaimer().collect();
  return gone();
}

Status Ticket::wait(std::chrono::nanoseconds timeout) const {
  if (base::inside_call() || select::inside_select())
    return done() ? Status()
                  : Status(Code::kWouldDeadlock,
                           "waiting inside a kernel, verifier or callback for what it may itself "
                           "be using");
  const auto start = std::chrono::steady_clock::now();
  for (auto pause = std::chrono::microseconds(10); !done();
       pause = std::min(pause * 2, std::chrono::microseconds(2000))) {
    if (std::chrono::steady_clock::now() - start >= timeout)
      return Status(Code::kDeadline, "what was removed is still in use");
    std::this_thread::sleep_for(pause);
  }
  return {};
}

}  // namespace yard
