// SPDX-License-Identifier: Apache-2.0
#include "op/verbose_line.h"

#include <fmt/format.h>

#include "base/text.h"

namespace yard::op {
namespace {

constexpr std::string_view kStart = "yard,";

// The end of an argument that begins at `from`: the next space outside of quotes and brackets, or the end.
size_t end_of_argument(std::string_view text, size_t from) noexcept {
  int depth = 0;
  bool quoted = false;
  for (size_t i = from; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '[' || c == '(' || c == '{'))
      ++depth;
    else if (!quoted && (c == ']' || c == ')' || c == '}'))
      --depth;
    else if (!quoted && depth == 0 && c == ' ')
      return i;
  }
  return text.size();
}

}  // namespace

std::string verbose_arguments(const CallSpec& spec) {
  std::string to;
  for (const SpecArg& a : spec.args) {
    if (!to.empty()) to += ' ';
    if (!a.name.empty()) to += a.name + '=';
    to += to_string(a.value);
  }
  CallSpec rest = spec;
  rest.args.clear();
  const std::string after = to_string(rest).substr(spec.op.size() + 2);  // its name and "()"
  if (after != "@cpu") to += (to.empty() ? "" : " ") + after;
  return to;
}

bool is_verbose_line(std::string_view text) noexcept { return text.starts_with(kStart); }

Result<std::string> call_of_verbose_line(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r' || line.back() == ' '))
    line.remove_suffix(1);
  const auto invalid = [&] {
    return Status(Code::kParse,
                  fmt::format("call: expected 'yard,exec,OP,KERNEL,ARGUMENTS,hit,TIME', as a "
                              "verbose runtime prints it\n  {}\n  ^",
                              base::printable(line, 200)));
  };
  const size_t what = line.find(','), op = line.find(',', what + 1);
  if (op == line.npos) return invalid();
  const size_t kernel = line.find(',', op + 1);
  const size_t first = kernel == line.npos ? kernel : line.find(',', kernel + 1);
  const size_t time = line.rfind(',');
  const size_t last = time == line.npos || time == 0 ? line.npos : line.rfind(',', time - 1);
  if (first == line.npos || last == line.npos || last <= first) return invalid();
  const std::string_view name = line.substr(op + 1, kernel - op - 1);
  const std::string_view args = line.substr(first + 1, last - first - 1);
  if (name.empty()) return invalid();
  std::string to(name);
  to += '(';
  std::string_view after;
  for (size_t at = 0, n = 0; at < args.size(); ++n) {
    if (args[at] == '@') {
      after = args.substr(at);
      break;
    }
    const size_t end = end_of_argument(args, at);
    if (n > 0) to += ", ";
    to += args.substr(at, end - at);
    at = end + 1;
  }
  to += ')';
  to += after;
  return to;
}

}  // namespace yard::op
