// SPDX-License-Identifier: Apache-2.0
// Failing allocations, for tests and fuzzers. A program that is linked with testing_allocations.cc
// can make the n-th allocation of a thread fail, alone or with all later ones.
//
//   for (uint64_t n = 0;; ++n) {
//     base::FailingAllocations failing(n, base::FailingAllocations::kOne);
//     const Status s = runtime.set_policy(std::move(policy));
//     if (!failing.end()) break;              // it needed no more than n
//     ...
//   }
#pragma once

#include <cstdint>

namespace yard::base {

class FailingAllocations {
 public:
  enum Which { kOne, kAllLater };
  enum Where { kThisThread, kOtherThreads };
  // Lets `before` allocations succeed, on this thread or on all others. Then one fails, or all
  // later ones do. Only one object may exist at a time.
  FailingAllocations(uint64_t before, Which which, Where where = kThisThread) noexcept;
  ~FailingAllocations() { end(); }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  // Lets allocations succeed again. Returns whether one has failed.
  bool end() noexcept;
};

}  // namespace yard::base
