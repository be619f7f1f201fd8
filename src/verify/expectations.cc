// SPDX-License-Identifier: Apache-2.0
// parse_expectations() of yard/verify.h.
#include <fmt/format.h>
#include <yard/verify.h>

#include <algorithm>

#include "base/text.h"

namespace yard {
namespace {

constexpr const char* kForm = "KERNEL OP CALLSPEC : unsupported|fails : reason";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// The text without blanks at both ends. Lines may end with a carriage return.
std::string_view trim(std::string_view s) {
  while (!s.empty() && is_blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_blank(s.back())) s.remove_suffix(1);
  return s;
}

// Removes and returns the first word.
std::string_view word(std::string_view& s) {
  const auto end = static_cast<size_t>(std::ranges::find_if(s, is_blank) - s.begin());
  const std::string_view w = s.substr(0, end);
  s = trim(s.substr(end));
  return w;
}

// Removes and returns everything up to a colon between blanks, which no CallSpec contains. Empty if there is none.
std::optional<std::string_view> part(std::string_view& s) {
  for (size_t at = 0; at < s.size(); ++at) {
    if (s[at] != ':' || (at > 0 && !is_blank(s[at - 1])) ||
        (at + 1 < s.size() && !is_blank(s[at + 1])))
      continue;
    const std::string_view head = trim(s.substr(0, at));
    s = trim(s.substr(at + 1));
    return head;
  }
  return std::nullopt;
}

// The error in the line; empty if there is none.
std::string read_expectation(std::string_view line, Expectation& to) {
  const auto subject = part(line);
  const auto kind = subject ? part(line) : std::nullopt;
  if (!kind) return fmt::format("expected `{}`, with blanks around each ':'", kForm);
  std::string_view rest = *subject;
  to.kernel = word(rest);
  to.op = word(rest);
  to.call = rest;
  if (to.kernel.empty() || to.op.empty() || to.call.empty())
    return fmt::format(
        "expected three globs before the first ':', for kernel, op and call; got '{}'", *subject);
  if (*kind != "unsupported" && *kind != "fails")
    return fmt::format("expected 'unsupported' or 'fails', got '{}'{}", *kind,
                       base::did_you_mean(*kind, {"unsupported", "fails"}));
  to.kind = *kind == "fails" ? Expectation::Kind::kFails : Expectation::Kind::kUnsupported;
  to.reason = line;
  return to.reason.empty() ? "the reason is missing: expected it after the second ':'" : "";
}

}  // namespace

Result<std::vector<Expectation>> parse_expectations(std::string_view text, std::string_view name) {
  std::vector<Expectation> to;
  std::vector<std::string> problems;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line[0] == '#') continue;
    Expectation e;
    e.line = number;
    const std::string problem = read_expectation(line, e);
    if (problem.empty())
      to.push_back(std::move(e));
    else
      problems.push_back(fmt::format("{}:{}: {}", name, number, problem));
  }
  if (problems.empty()) return to;
  Status s(Code::kParse, problems[0]);
  for (size_t i = 1; i < problems.size(); ++i) s.note(problems[i]);
  return s;
}

}  // namespace yard
