// SPDX-License-Identifier: Apache-2.0
// parse_expectations() of yard/verify.h.
#include <fmt/format.h>
#include <yard/verify.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "base/text.h"

namespace yard {
namespace {

constexpr const char* kForm = "KERNEL OP CALLSPEC : unsupported|fails : reason";

// Returns an error, or an empty text. Colons stand alone, because no CallSpec contains one.
std::string read_expectation(const std::vector<std::string>& words, Expectation& to) {
  const auto join = [](auto from, auto end) {
    return fmt::format("{}", fmt::join(from, end, " "));
  };
  const auto first = std::ranges::find(words, ":");
  const auto second = std::find(first == words.end() ? first : first + 1, words.end(), ":");
  if (second == words.end())
    return fmt::format("expected `{}`, with blanks around each ':'", kForm);
  if (first - words.begin() < 3)
    return fmt::format(
        "expected three globs before the first ':', for kernel, op and call; got '{}'",
        join(words.begin(), first));
  to.kernel = words[0], to.op = words[1], to.call = join(words.begin() + 2, first);
  const std::string kind = join(first + 1, second);
  if (kind != "unsupported" && kind != "fails")
    return fmt::format("expected 'unsupported' or 'fails', got '{}'{}", kind,
                       base::did_you_mean(kind, {"unsupported", "fails"}));
  to.kind = kind == "fails" ? Expectation::Kind::kFails : Expectation::Kind::kUnsupported;
  to.reason = join(second + 1, words.end());
  return to.reason.empty() ? "the reason is missing: expected it after the second ':'" : "";
}

}  // namespace

Result<std::vector<Expectation>> parse_expectations(std::string_view text, std::string_view name) {
  std::vector<Expectation> to;
  std::vector<std::string> problems;
  int number = 0;
  for (const std::string_view line : base::split(text, '\n')) {
    ++number;
    std::istringstream in{std::string(line)};
    const std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
    if (words.empty() || words[0].starts_with('#')) continue;
    Expectation e;
    e.line = number;
    const std::string problem = read_expectation(words, e);
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
