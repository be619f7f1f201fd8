// SPDX-License-Identifier: Apache-2.0
#include "config/moves.h"

#include "output.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace yard::tool {
namespace {

constexpr size_t kMostProblems = 20;
constexpr size_t kLargestTrace = size_t{256} << 20;
constexpr std::string_view kBlanks = " \t\r";

std::string_view trim(std::string_view s) {
  const size_t first = s.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(kBlanks) - first + 1);
}

// Keeps each call once, in the order of first occurrence.
class Collected {
 public:
  explicit Collected(UnknownOps* unknown = nullptr) : unknown_(unknown) {}

  Status add(const Runtime& runtime, std::string_view text, uint64_t count) {
    auto call = runtime.parse(text);
    if (call.status().code() == Code::kUnknownOp && unknown_ != nullptr) {
      UnknownOp& op = (*unknown_)[std::string(trim(text.substr(0, text.find('('))))];
      add_count(op.calls, count), op.message = std::string(call.status().message());
      return {};
    }
    if (!call.ok()) return std::move(call).status();
    const auto [it, fresh] = at_.try_emplace(call->text, calls_.size());
    if (fresh) calls_.push_back({call->op, call->text, 0});
    add_count(calls_[it->second].count, count);
    return {};
  }
  std::vector<CountedCall> take() { return std::move(calls_); }

 private:
  std::vector<CountedCall> calls_;
  std::map<std::string, size_t> at_;
  UnknownOps* const unknown_;
};

// Adds a line such as `12<TAB>softmax(...)` or `softmax(...)`.
Status add_line(const Runtime& runtime, std::string_view line, Collected& to) {
  const size_t tab = line.find('\t');
  const bool counted = tab != std::string_view::npos && line.find('(') > tab;
  if (!counted) return to.add(runtime, line, 1);
  const std::string_view digits = trim(line.substr(0, tab));
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size() || count == 0)
    return Status(
        Code::kParse,
        fmt::format("invalid count '{}'; expected a whole number from 1, a tab and a CallSpec, "
                    "or a CallSpec alone",
                    digits));
  return to.add(runtime, trim(line.substr(tab + 1)), count);
}

// Returns the kernel that would serve the call, or an empty text.
std::string winner(const Runtime& runtime, const std::string& call) {
  const auto e = runtime.explain(call);
  return e.ok() ? e->selected : std::string();
}

}  // namespace

Result<std::vector<CountedCall>> read_calls(const Runtime& runtime,
                                            const std::vector<std::string>& texts) {
  Collected to;
  for (const std::string& text : texts) YARD_RETURN_IF_ERROR(to.add(runtime, text, 1));
  return to.take();
}

Result<std::vector<CountedCall>> read_trace(const Runtime& runtime, const std::string& path,
                                            UnknownOps* unknown) {
  const auto text = read_input(path, kLargestTrace);
  if (!text.ok()) return text.status();
  Collected to(unknown);
  Status problem;
  size_t problems = 0, number = 0;
  for (std::string_view rest = *text; !rest.empty();) {
    ++number;
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trim(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty() || line[0] == '#') continue;
    const Status s = add_line(runtime, line, to);
    if (s.ok() || ++problems > kMostProblems) continue;
    const std::string message = fmt::format("{}:{}: {}", path, number, s.message());
    if (problem.ok())
      problem = Status(Code::kParse, message);
    else
      problem.note(message);
  }
  if (problems > kMostProblems)
    problem.note(fmt::format("and {} more lines", problems - kMostProblems));
  if (!problem.ok()) return problem;
  auto calls = to.take();
  if (calls.empty())
    return Status(Code::kParse,
                  fmt::format("{}: there is no call {}in it", path,
                              unknown != nullptr && !unknown->empty() ? "of a known op " : ""));
  return calls;
}

void print_unknown_ops(const std::string& path, const UnknownOps& unknown) {
  for (const auto& [name, op] : unknown)
    print_err("yard: {}: skipped {} call{}: {}\n", path, op.calls, op.calls == 1 ? "" : "s",
              op.message);
}

std::vector<Move> compare(const Runtime& before, const Runtime& after,
                          const std::vector<CountedCall>& calls) {
  std::vector<Move> to;
  to.reserve(calls.size());
  for (const CountedCall& c : calls)
    to.push_back({c, winner(before, c.call), winner(after, c.call)});
  return to;
}

}  // namespace yard::tool
