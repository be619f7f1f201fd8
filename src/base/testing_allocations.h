// SPDX-License-Identifier: Apache-2.0
// Allocations that fail, for tests and fuzzers: a program that is linked with testing_allocations.cc can have the n-th
// allocation of a thread fail, alone or with all later ones.
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
  // From now on, on this thread or on all others, `before` allocations succeed, then one or all later ones fail. One object
  // at a time.
  FailingAllocations(uint64_t before, Which which, Where where = kThisThread) noexcept;
  ~FailingAllocations() { end(); }
  FailingAllocations(const FailingAllocations&) = delete;
  FailingAllocations& operator=(const FailingAllocations&) = delete;

  // Allocations succeed again. Whether one has failed.
  bool end() noexcept;
};

}  // namespace yard::base
