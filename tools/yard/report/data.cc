// SPDX-License-Identifier: Apache-2.0
#include "report/data.h"

#include <yard/version.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "templates.h"

namespace yard::tool {
namespace {

constexpr size_t kMostSeries = 6, kLongestText = 2000;

// Text of which nothing is markup.
std::string html(std::string_view text) {
  std::string to;
  for (const char c : text) {
    if (c == '<')
      to += "&lt;";
    else if (c == '>')
      to += "&gt;";
    else if (c == '&')
      to += "&amp;";
    else if (c == '"')
      to += "&quot;";
    else
      to += c;
  }
  return to;
}

// JSON that ends no script element: names in it may be hostile.
std::string script_json(const Json& data) {
  std::string to;
  for (const char c : data.dump(-1, ' ', true, Json::error_handler_t::replace)) {
    if (c == '<')
      to += "\\u003c";
    else if (c == '>')
      to += "\\u003e";
    else if (c == '&')
      to += "\\u0026";
    else
      to += c;
  }
  return to;
}

}  // namespace

Json empty_report() {
  return {{"source", ""},
          {"remarks", Json::array()},
          {"relative", false},
          {"seconds", 0},
          {"exact", false},
          {"sampled_one_in", 0},
          {"calls", Json::array()},
          {"ops", Json::array()},
          {"breakers", Json::array()},
          {"reloads", nullptr},
          {"rates", {{"unit", ""}, {"times", Json::array()}, {"series", Json::array()}}},
          {"events", Json::array()}};
}

void ReportLatency::add(uint64_t ns) {
  ++count_, sum_ns_ += ns;
  // Four buckets for each factor of two.
  uint64_t up_to = ns;
  if (ns >= 4) {
    const int shift = std::bit_width(ns) - 3;
    up_to = ((ns >> shift) << shift) + ((uint64_t{1} << shift) - 1);
  }
  ++buckets_[up_to];
}

Json ReportLatency::json() const {
  Json list = Json::array();
  for (const auto& [up_to, count] : buckets_) list.push_back({up_to, count});
  return {{"count", count_}, {"sum_ns", sum_ns_}, {"buckets", std::move(list)}};
}

std::string members_text(const Json& object) {
  std::string to;
  if (!object.is_object()) return to;
  for (const auto& [key, value] : object.items()) {
    std::string text;
    if (value.is_string()) {
      text = value.get<std::string>();
    } else if (!value.is_structured()) {
      text = value.dump();
    } else {
      for (const auto& [inner, part] : value.items())
        text += (text.empty() ? "" : ",") + (value.is_object() ? inner + ":" : "") +
                (part.is_string()       ? part.get<std::string>()
                 : part.is_structured() ? "..."
                                        : part.dump());
    }
    if (to.size() > kLongestText) break;
    to += (to.empty() ? "" : " ") + key + "=" + text.substr(0, kLongestText);
  }
  return to;
}

Json top_series(const std::map<std::string, std::vector<double>>& all) {
  std::vector<std::pair<double, const std::string*>> order;
  for (const auto& [op, values] : all) {
    double sum = 0;
    for (const double v : values) sum += v;
    order.emplace_back(-sum, &op);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, *a.second) < std::pair(b.first, *b.second);
  });
  Json to = Json::array();
  std::vector<double> rest;
  for (size_t i = 0; i < order.size(); ++i) {
    const std::vector<double>& values = all.at(*order[i].second);
    if (i < kMostSeries) {
      to.push_back({{"op", *order[i].second}, {"values", values}});
      continue;
    }
    rest.resize(std::max(rest.size(), values.size()));
    for (size_t k = 0; k < values.size(); ++k) rest[k] += values[k];
  }
  if (!rest.empty()) to.push_back({{"op", "other ops"}, {"values", rest}});
  return to;
}

std::string report_page(const std::string& title, const Json& data) {
  return fill_in("report.html",
                 {{"TITLE", html(title)},
                  {"STYLE", fill_in("report.css", {})},
                  {"VERSION", YARD_VERSION},
                  {"DATA", script_json(data)},
                  {"SCRIPT", fill_in("report.js", {}) + fill_in("report_charts.js", {})}});
}

}  // namespace yard::tool
