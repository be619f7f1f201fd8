// SPDX-License-Identifier: Apache-2.0
// An explanation as text and as JSON.
#include <fmt/format.h>
#include <yard/explain.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace yard {
namespace {

std::string as_json(std::string_view s) { return base::json_string(s); }
std::string quoted_or_null(std::string_view s) { return s.empty() ? "null" : base::json_string(s); }

std::string number_json(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

template <class List, class F>
std::string json_list(const List& list, const F& f) {
  std::string out = "[";
  for (const auto& x : list) out += (out.size() > 1 ? "," : "") + f(x);
  return out + "]";
}

std::string score_json(const ScoreNote& s) {
  return fmt::format("{{\"name\":{},\"place\":{},\"add\":{},\"multiply\":{}}}",
                     quoted_or_null(s.name), as_json(s.place), number_json(s.add),
                     number_json(s.multiply));
}

std::string candidate_json(const Candidate& c) {
  return fmt::format(
      "{{\"id\":{},\"verdict\":{},\"reason\":{},\"detail\":{},\"kind\":{},\"vendor\":{},"
      "\"backend\":{},"
      "\"priority\":{},\"adjusted_priority\":{},\"scores\":{},\"placed_by\":{},\"estimate_ns\":{}}"
      "}",
      as_json(c.id), as_json(c.verdict), quoted_or_null(c.reason), quoted_or_null(c.detail),
      as_json(to_string(c.kind)), quoted_or_null(c.vendor), as_json(c.backend), c.priority,
      number_json(c.adjusted_priority), json_list(c.scores, score_json),
      quoted_or_null(c.placed_by), c.estimate_ns ? number_json(*c.estimate_ns) : "null");
}

// The line below a candidate on how scores adjust its priority; empty without scores.
std::string score_line(const Candidate& c) {
  if (c.scores.empty()) return "";
  std::string by;
  for (const ScoreNote& s : c.scores) by += (by.empty() ? "" : "; ") + to_string(s);
  return fmt::format("      priority {} counts as {:g}: {}", c.priority, c.adjusted_priority, by);
}

// Texts of plugins may hold anything; control characters must not reach a terminal.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

}  // namespace

std::string to_string(const ScoreNote& s) {
  std::string text = s.name.empty() ? s.place : fmt::format("'{}', {}", s.name, s.place);
  std::string what;
  if (s.add != 0) what = fmt::format("{} {:g}", s.add < 0 ? "-" : "+", std::abs(s.add));
  if (s.multiply != 1 || what.empty())
    what += fmt::format("{}x {:g}", what.empty() ? "" : ", ", s.multiply);
  return text + ": " + what;
}

std::string Explanation::to_json() const {
  return fmt::format(
      "{{\"op\":{},\"call\":{},\"selected\":{},\"candidates\":{},\"policy\":{},\"counterfactuals\":"
      "{},"
      "\"generation\":{}}}",
      as_json(op), as_json(call), quoted_or_null(selected), json_list(candidates, candidate_json),
      json_list(policy,
                [](const PolicyNote& n) {
                  return fmt::format("{{\"field\":{},\"value\":{},\"source\":{}}}",
                                     as_json(n.field), as_json(n.value), as_json(n.source));
                }),
      json_list(counterfactuals, [](const std::string& s) { return as_json(s); }), generation);
}

std::string Explanation::to_text(bool colour) const {
  const auto paint = [&](const char* code, const std::string& s) {
    return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, s) : s;
  };
  std::string out = call + "\n";
  out += selected.empty() ? "  " + paint("31", "no kernel is allowed, able and healthy") + "\n"
                          : "  runs " + paint("1;32", selected) + "\n";
  size_t id_width = 2, kind_width = 4, estimate_width = 0;
  const auto estimate = [](const Candidate& c) {
    return c.estimate_ns ? fmt::format("~{:.0f} ns", *c.estimate_ns) : std::string();
  };
  for (const Candidate& c : candidates) {
    estimate_width = std::max(estimate_width, estimate(c).size());
    id_width = std::max(id_width, c.id.size());
    kind_width = std::max(kind_width, std::string_view(to_string(c.kind)).size());
  }
  for (const Candidate& c : candidates) {
    const char* code = c.verdict == "selected" ? "32" : c.verdict == "able" ? "33" : "31";
    std::string line = fmt::format("  {:<{}}  {:<{}}  {:>4}  ", c.id, id_width, to_string(c.kind),
                                   kind_width, c.priority);
    line += paint(code, fmt::format("{:<8}", c.verdict));
    if (estimate_width > 0) line += fmt::format("  {:>{}}", estimate(c), estimate_width);
    if (!c.reason.empty())
      line += fmt::format("  {}: {}", c.reason, printable(c.detail));
    else if (!c.detail.empty())
      line += "  " + printable(c.detail);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
    if (const std::string s = score_line(c); !s.empty()) out += printable(s) + "\n";
  }
  if (policy.empty()) out += "  policy: nothing set\n";
  for (const PolicyNote& n : policy)
    out += printable(fmt::format("  policy: {} = {} (from {})", n.field, n.value, n.source)) + "\n";
  for (const std::string& s : counterfactuals) out += "  " + s + "\n";
  return out;
}

}  // namespace yard
