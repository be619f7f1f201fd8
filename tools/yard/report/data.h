// SPDX-License-Identifier: Apache-2.0
// Collects the data of a report from a running process or a trace, as one JSON object that the
// page's script shows. Its members are:
//
//   source, remarks         who and when, as text
//   relative, seconds       whether times count from the start of the trace; the observed time
//   exact, sampled_one_in   whether each call was timed
//   calls, ops              by op, kernel, mode and shape class; by op
//   breakers, reloads       breakers that are not closed; counts, or null
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

// Returns a report with all members and without calls.
Json empty_report();

// Formats an object as "kernel=vendor.acme when=hidden=5120". Long and deep values are cut.
std::string members_text(const Json& object);

// Keeps the series with the largest sums and adds the others up as `other ops`.
Json top_series(const std::map<std::string, std::vector<double>>& all);

// Reads a trace in the trace event format, which Perfetto opens.
Result<Json> report_of_trace(const std::string& text, const std::string& file);

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

// Returns an HTML page that needs no other file.
std::string report_page(const std::string& title, const Json& data);

}  // namespace yard::tool
