// SPDX-License-Identifier: Apache-2.0
// Canary checks: the results of sampled calls are checked, as the rule file configures (docs/guides/canaries.md). A call
// that is not sampled costs a counter and a random number of its thread.
#pragma once

#include <yard/config.h>
#include <yard/verify.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/counters.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/tasks.h"
#include "registry/changes.h"
#include "registry/interfaces.h"
#include "select/candidate_set.h"

namespace yard::verification {

// Calls whose tensors span more are not checked.
inline constexpr double kMostCopyBytes = 1 << 30;
// Limits for the tensors of one dump, and for all dumps of a folder together.
inline constexpr uint64_t kMostDumpBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMostFolderBytes = uint64_t{1} << 30;
// Mismatches that are further apart belong to different incidents.
inline constexpr std::chrono::minutes kIncidentGap{10};

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
  // Counts a call. True for one in `one_in` at random. Writes only memory of the thread.
  bool sample(uint64_t one_in) noexcept {
    base::count(base::this_thread(), calls.id());
    return base::one_in(one_in);
  }
};

// A dump to write.
struct DumpRequest {
  std::string folder;
  size_t most = 0;
  CanaryDump dump;
  std::shared_ptr<CanaryMismatch> mismatch = {};  // gets the path of the dump
};

// Results of a runtime's canary checks, and the thread that writes dumps. It outlives the checks of an op, which are made
// again whenever the op changes. Any thread.
class CanaryState {
 public:
  static constexpr size_t kMostMismatches = 64, kMostProblems = 64, kMostWaiting = 4;

  CanaryState() = default;
  ~CanaryState();  // writes the pending dumps
  CanaryState(const CanaryState&) = delete;
  CanaryState& operator=(const CanaryState&) = delete;

  // The same object for the same names.
  std::shared_ptr<CanaryCounters> counters(const std::string& op, const std::string& kernel,
                                           CanaryRule::Check check);
  // A sampled call could not be checked. If `permanent`, no call like it can be, which is reported once as a problem.
  void skip(CanaryCounters& counters, std::string_view why, bool permanent) noexcept;
  // `request` may be null. Dumps are written later. Beyond kMostWaiting pending ones they are dropped.
  void record(CanaryMismatch mismatch, std::unique_ptr<DumpRequest> request);

  // Something that prevents the checks of an op. Logged once.
  void problem(const std::string& op, const std::string& text);
  void clear_problems(const std::string& op);
  std::vector<std::string> problems();

  CanaryReport report();

 private:
  // Writes the oldest pending dump. Returns false if there is none.
  bool write_one() noexcept;

  base::Mutex lock_{base::Rank::kCanary};
  std::map<std::tuple<std::string, std::string, CanaryRule::Check>, std::shared_ptr<CanaryCounters>>
      counters_;
  std::deque<std::shared_ptr<CanaryMismatch>> mismatches_;
  std::deque<std::unique_ptr<DumpRequest>> waiting_;
  std::map<std::string, std::set<std::string>, std::less<>> problems_;  // by op
  base::TaskThread thread_;                                             // after what it uses
  // Pending dumps are written by the parent.
  const base::InChild in_child_{[this] { waiting_.clear(); }};
};

// Adds a file with a unique name, and creates the folder if needed. At most `most` dumps are kept, which take at most
// `most_bytes`: the first ones of an incident. Those of earlier incidents are removed for them, oldest first; other files
// are left alone. Returns the path; empty: the incident has its dumps, and nothing was written.
Result<std::string> add_dump(const std::string& folder, size_t most, const CanaryDump& dump,
                             uint64_t most_bytes = kMostFolderBytes);

// Tolerances for results of an op: the given ones for all float types, then the op's own.
std::vector<yard_tolerance_t> tolerances_of(const registry::Op& op, std::optional<double> rtol,
                                            std::optional<double> atol);

// The checks that the rules configure for one op. Null: none, or none that is possible, which is a problem in `state`.
std::shared_ptr<registry::ResultChecker> make_canary(
    const std::vector<CanaryRule>& rules,
    const std::shared_ptr<const registry::OpRecord>& op_record, const select::ProcessState& where,
    const std::shared_ptr<CanaryState>& state);

}  // namespace yard::verification
