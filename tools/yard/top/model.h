// SPDX-License-Identifier: Apache-2.0
// What `yard top` shows: rates, latencies and shares of time of a process, from two successive
// answers of it. These are plain data and pure functions; top.cc asks the process.
#pragma once

#include <yard/stats.h>

#include <cstdint>
#include <string>
#include <vector>

#include "json.h"
#include "live/answers.h"

namespace yard::tool {

struct TopBreaker {
  std::string op, kernel, key, state, reason;
  double until_s = 0;  // 0 if it stays so until it is closed manually
};

// One answer of a process.
struct TopSample {
  double at_s = 0;       // on a steady clock
  double counted_s = 0;  // for how long it has counted
  RuntimeStats stats;
  std::vector<TopBreaker> breakers;  // that are not closed
};

// From answers to `stats` and `health`. `now_s` is the time of day.
TopSample read_sample(const Json& stats, const Json& health, double at_s, double now_s);

enum class TopHealth { kHealthy, kFailing, kHalfOpen, kOpen };
const char* to_string(TopHealth health);

struct TopRow {
  std::string op, kernel;
  std::string mode, call;  // of a class, otherwise empty
  uint64_t calls = 0;      // since the process started to count
  double calls_per_s = 0, failures_per_s = 0, fallbacks_per_s = 0;
  // Of calls sampled in the interval, or, if there are none, since the process started to count.
  double mean_ns = 0, p50_ns = 0, p99_ns = 0;
  double share = 0;  // of the time that all kernels took in the interval, 0 to 1
  TopHealth health = TopHealth::kHealthy;
};

struct TopModel {
  double interval_s = 0;
  double calls_per_s = 0;
  double hit_rate = 1;  // of the interval
  uint64_t generation = 0, sampled_one_in = 0;
  std::vector<TopRow> rows;     // by op and kernel
  std::vector<TopRow> classes;  // by op, kernel, mode and call
  std::vector<TopBreaker> breakers;
  std::vector<SlowerKernel> slower;  // in the interval
  RuntimeStats::Reloads reloads;
};

// The interval from `before` to `now`. If `before` is null, it begins when the process started to
// count. Counts that went down were reset in between, and count from zero.
TopModel compare(const TopSample* before, const TopSample& now);

enum class TopSort { kShare, kCalls, kLatency, kHealth, kOp, kKernel };
const char* to_string(TopSort sort);

// The rows that have `filter` in the name of their op or kernel or in their call, ignoring case.
// They are sorted, largest first and names from a to z, or the other way round.
std::vector<TopRow> chosen_rows(const std::vector<TopRow>& rows, const std::string& filter,
                                TopSort sort, bool reverse);

// For `yard top --json`.
Json to_json(const TopModel& model);

}  // namespace yard::tool
