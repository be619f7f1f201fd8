// SPDX-License-Identifier: Apache-2.0
// The data of a report, from a running process or from a trace: one JSON object that the page's
// script shows.
//
//   source, remarks         who and when, as text
//   relative, seconds       whether times are from the start of the trace; the observed time
//   exact, sampled_one_in   whether each call was timed
//   calls, ops              by op, kernel, mode and shape class; by op
//   breakers, reloads       those that are not closed; counts, or null
//   rates                   {unit, times, series: [{op, values}]}, a value for each interval
//   events                  [{at, kind, text, detail}]
#pragma once

#include <yard/stats.h>
#include <yard/status.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"

namespace yard::tool {

// The members that every report has, without calls.
Json empty_report();

// The members of an object: "kernel=vendor.acme when=hidden=5120". Long and deep values are cut.
std::string members_text(const Json& object);

// The largest series by their sums. The others are added up as `other ops`.
Json top_series(const std::map<std::string, std::vector<double>>& all);

// The report of a trace in the trace event format, which Perfetto opens.
Result<Json> report_of_trace(const std::string& text, const std::string& file);

// The answers of a process.
struct ProcessAnswers {
  struct Sample {
    double at = 0;  // seconds since 1970
    RuntimeStats stats;
  };
  Json hello;
  std::vector<Sample> samples;  // at least one
  Json status, health, history, events;
};
Json report_of_process(const ProcessAnswers& answers);

// The page, which needs no other file.
std::string report_page(const std::string& title, const Json& data);

}  // namespace yard::tool
