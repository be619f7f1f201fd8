// SPDX-License-Identifier: Apache-2.0
// Computes rates, latencies and shares of time for `yard top` from two successive answers of a
// process. These are plain data and pure functions; top.cc asks the process.
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
  double until_s = 0;  // 0 if it stays so until somebody closes it
};

struct TopSample {
  double at_s = 0;       // a steady clock
  double counted_s = 0;  // how long the process has counted
  RuntimeStats stats;
  std::vector<TopBreaker> breakers;  // without closed breakers
};

// Reads answers to `stats` and `health`. `now_s` is the time of day.
TopSample read_sample(const Json& stats, const Json& health, double at_s, double now_s);

enum class TopHealth { kHealthy, kFailing, kHalfOpen, kOpen };
const char* to_string(TopHealth health);

struct TopRow {
  std::string op, kernel;
  std::string mode, call;  // for a class, otherwise empty
  uint64_t calls = 0;      // since the process started to count
  double calls_per_s = 0, failures_per_s = 0, fallbacks_per_s = 0;
  // Times of the calls that were sampled in the interval. If there are none, times since the
  // process started to count.
  double mean_ns = 0, p50_ns = 0, p99_ns = 0;
  double share = 0;  // share of the time of all kernels in the interval, 0 to 1
  TopHealth health = TopHealth::kHealthy;
};

struct TopModel {
  double interval_s = 0;
  double calls_per_s = 0;
  double hit_rate = 1;  // in the interval
  uint64_t generation = 0, sampled_one_in = 0;
  std::vector<TopRow> rows;     // by op and kernel
  std::vector<TopRow> classes;  // by op, kernel, mode and call
  std::vector<TopBreaker> breakers;
  std::vector<SlowerKernel> slower;  // in the interval
  RuntimeStats::Reloads reloads;
};

// Computes the figures of the interval from `before` to `now`. If `before` is null, the interval
// begins when the process started to count. A count that decreased was reset in between and starts
// at zero.
TopModel compare(const TopSample* before, const TopSample& now);

enum class TopSort { kShare, kCalls, kLatency, kHealth, kOp, kKernel };
const char* to_string(TopSort sort);

// Returns the rows with `filter` in their op, kernel or call, ignoring case. Numbers are sorted
// from the largest and names from a to z, unless `reverse` is set.
std::vector<TopRow> chosen_rows(const std::vector<TopRow>& rows, const std::string& filter,
                                TopSort sort, bool reverse);

Json to_json(const TopModel& model);

}  // namespace yard::tool
