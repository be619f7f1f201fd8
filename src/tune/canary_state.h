// SPDX-License-Identifier: Apache-2.0
// What the canaries of a runtime have seen, and the thread that writes their dumps. It outlives the canaries
// themselves, which are recreated whenever something about their op changes.
#pragma once

#include <yard/verify.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/counters.h"
#include "base/log_limit.h"
#include "base/owned_per_process.h"
#include "base/task_thread.h"

namespace yard::tune {

// The calls of one kernel under one check.
struct CanaryTally {
  std::string op, kernel;
  CanaryCheck check;
  base::Counter calls, checked;
  std::atomic<uint64_t> skipped{0}, mismatches{0};
  std::atomic<bool> told{false};  // why calls cannot be judged, as a problem
  base::LogLimit said;

  CanaryTally(std::string o, std::string k, CanaryCheck c)
      : op(std::move(o)), kernel(std::move(k)), check(c) {}
  // Counts a call. True for one in `one_in` of those of this thread, exactly: of so many in a row one is. Which is
  // left to chance, so that threads that make fewer calls have their share. Writes only memory of the thread.
  bool is_due(uint64_t one_in) noexcept;
};

// Where a dump goes.
struct DumpOrder {
  std::string folder;
  size_t most = 0;
  CanaryDump dump;
};

// Any thread. Must outlive whoever may still record.
class CanaryState {
 public:
  static constexpr size_t kMostMismatches = 64, kMostProblems = 64, kMostWaiting = 4;

  CanaryState() = default;
  ~CanaryState();  // writes the dumps that wait
  CanaryState(const CanaryState&) = delete;
  CanaryState& operator=(const CanaryState&) = delete;

  // The same for the same names.
  std::shared_ptr<CanaryTally> tally(const std::string& op, const std::string& kernel,
                                     CanaryCheck check);
  // A call that was due could not be judged. As a problem, that is told once: such calls never can.
  void skip(CanaryTally& tally, std::string_view why, bool problem) noexcept;
  // `order` may be null. Dumps are written later; so many may wait, others are not written.
  void record(CanaryMismatch mismatch, std::unique_ptr<DumpOrder> order);

  // Something that keeps canaries of an op from working; logged once.
  void problem(const std::string& op, const std::string& text);
  void forget_problems(const std::string& op);
  std::vector<std::string> problems();

  CanaryReport report();

 private:
  struct Numbered {
    uint64_t number;
    CanaryMismatch mismatch;
  };
  struct Waiting {
    uint64_t number;
    std::unique_ptr<DumpOrder> order;
  };
  struct Shared {
    std::mutex lock;
    std::map<std::tuple<std::string, std::string, CanaryCheck>, std::shared_ptr<CanaryTally>>
        tallies;
    std::map<const CanaryTally*, std::string> why_skipped;
    std::deque<Numbered> mismatches;
    std::deque<Waiting> waiting;
    std::map<std::string, std::set<std::string>, std::less<>> problems;  // by op
    uint64_t last_number = 0;
    void inherit(Shared& parents);
  };
  // The dump that has waited longest. False if there is none.
  bool write_one() noexcept;

  base::OwnedPerProcess<Shared> shared_;
  base::TaskThread thread_;  // last: it uses the rest
};

}  // namespace yard::tune
