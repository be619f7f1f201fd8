// SPDX-License-Identifier: Apache-2.0
// Canary checks of the results of sampled calls, as the rule file configures them
// (docs/guides/canaries.md). A call that is not sampled costs a counter and a random number.
#pragma once

#include <yard/verify.h>

#include <deque>
#include <tuple>

#include "base/counters.h"
#include "base/log.h"
#include "base/random.h"
#include "base/tasks.h"
#include "select/candidate_set.h"

namespace yard::verification {

// Counters of one kernel under one check.
struct CanaryCounters {
  std::string op, kernel;
  CanaryRule::Check check;
  base::Counter calls, checked;
  std::atomic<uint64_t> skipped{0}, mismatches{0};
  std::atomic<bool> problem_reported{false};  // that its calls cannot be checked
  std::string why_skipped;                    // the first reason; under the lock of CanaryState
  base::LogLimit log_limit;

  CanaryCounters(std::string o, std::string k, CanaryRule::Check c)
      : op(std::move(o)), kernel(std::move(k)), check(c) {}
  // Counts a call, and returns true for one in `one_in` at random. Writes only to its thread.
  bool sample(uint64_t one_in) noexcept {
    base::count(base::this_thread(), calls.id());
    return base::one_in(one_in);
  }
};

struct DumpRequest {
  std::string folder;
  size_t most = 0;
  CanaryDump dump;
  std::shared_ptr<CanaryReport::Mismatch> mismatch = {};  // gets the path of the dump
};

// Results of a runtime's canary checks, and the thread that writes dumps. It outlives the checks,
// which are made again when their op changes. Any thread may call it.
class CanaryState {
 public:
  static constexpr size_t kMostMismatches = 64, kMostProblems = 64, kMostWaiting = 4;

  CanaryState() = default;
  ~CanaryState();  // writes the pending dumps
  CanaryState(const CanaryState&) = delete;
  CanaryState& operator=(const CanaryState&) = delete;

  // Returns the same object for the same names.
  std::shared_ptr<CanaryCounters> counters(const std::string& op, const std::string& kernel,
                                           CanaryRule::Check check);
  // Notes that a sampled call was not checked. If this is `permanent`, it is also a problem.
  void skip(CanaryCounters& counters, std::string_view why, bool permanent) noexcept;
  // `request` may be null. The dump is written later, or dropped if kMostWaiting are pending.
  void record(CanaryReport::Mismatch mismatch, std::unique_ptr<DumpRequest> request);

  // Keeps and logs, once, why calls of an op cannot be checked.
  void problem(const std::string& op, const std::string& text);
  void clear_problems(const std::string& op);
  std::vector<std::string> problems();

  CanaryReport report();

 private:
  // Writes the oldest pending dump, or returns false if there is none.
  bool write_one() noexcept;

  base::Mutex lock_{base::Rank::kCanary};
  std::map<std::tuple<std::string, std::string, CanaryRule::Check>, std::shared_ptr<CanaryCounters>>
      counters_;
  std::deque<std::shared_ptr<CanaryReport::Mismatch>> mismatches_;
  std::deque<std::unique_ptr<DumpRequest>> waiting_;
  std::map<std::string, std::set<std::string>, std::less<>> problems_;  // by op
  base::TaskThread thread_;  // declared after the members that it uses
  // The parent writes the pending dumps.
  const base::InChild in_child_{[this] { waiting_.clear(); }};
};

// Writes a dump to a new file and returns its path. Creates the folder if needed. The folder keeps
// the first dumps of an incident, at most `most` dumps of `most_bytes` together. The oldest dumps
// of earlier incidents are removed for them. Returns "" if the incident has its dumps.
Result<std::string> add_dump(const std::string& folder, size_t most, const CanaryDump& dump,
                             uint64_t most_bytes = uint64_t{1} << 30);

// Returns the given tolerances for all float types, then the op's tolerances.
std::vector<yard_tolerance_t> tolerances_of(const registry::Op& op, std::optional<double> rtol,
                                            std::optional<double> atol);

// Makes the checks that the rules configure for one op. Returns null if there are none. Checks that
// are impossible become problems in `state`.
std::shared_ptr<registry::ResultChecker> make_canary(
    const std::vector<CanaryRule>& rules,
    const std::shared_ptr<const registry::OpRecord>& op_record, const select::ProcessState& where,
    const std::shared_ptr<CanaryState>& state);

}  // namespace yard::verification
