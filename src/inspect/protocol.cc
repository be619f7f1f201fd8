// SPDX-License-Identifier: Apache-2.0
#include "inspect/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::inspect {
namespace {

using enum Member::Kind;

constexpr Member kRequest[] = {{"v", kNeededNumber, kInspectVersion, kInspectVersion},
                               {"id", kId},
                               {"command", kNeededText},
                               {"args", kObject},
                               {"runtime", kNumber}};

// Returns what was expected if the value does not fit, else an empty text.
std::string misfit(const Json& value, const Member& m) {
  const auto unless = [](bool fits, std::string what) { return fits ? "" : std::move(what); };
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  const bool in_range = value.is_number_integer() && value >= m.least && value <= m.most;
  switch (m.kind) {
    case kText: return unless(value.is_string(), "a string");
    case kNeededText: return unless(!text.empty(), "a string");
    case kPath:
      return unless(text.starts_with('/') && text.find('\0') == text.npos,
                    "a path that begins with /");
    case kSwitch: return unless(value.is_boolean(), "true or false");
    case kObject: return unless(value.is_object(), "an object");
    case kId: return unless(value.is_number() || value.is_string(), "a number or a string");
    default:
      if (m.most == INT64_MAX)
        return unless(in_range, fmt::format("a whole number of at least {}", m.least));
      if (m.least == m.most) return unless(in_range, std::to_string(m.least));
      return unless(in_range, fmt::format("a whole number from {} to {}", m.least, m.most));
  }
}

Result<Json> parse(std::string_view line) {
  constexpr int kDeepest = 32;
  using Event = Json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of each object that is being read
  const auto refuse = [](std::string why) { throw Status(Code::kParse, "invalid JSON: " + why); };
  const auto check = [&](int depth, Event event, const Json& read) {
    if ((event == Event::object_start || event == Event::array_start) && depth >= kDeepest)
      refuse(fmt::format("expected at most {} levels", kDeepest));
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(read.get<std::string>()).second)
      refuse(fmt::format("the key {} occurs twice", base::excerpt(read.get<std::string>())));
    return true;
  };
  try {
    return Json::parse(line, check);
  } catch (Status& why) {
    return std::move(why);
  } catch (const Json::parse_error& e) {
    // The library's text begins with "[json.exception...] parse error at line 1, column 2: ".
    const std::string_view text = e.what();
    const size_t colon = text.find(": ");
    return Status(
        Code::kParse,
        fmt::format("invalid JSON at column {}: {}", e.byte,
                    base::printable(text.substr(colon == text.npos ? 0 : colon + 2), 200)));
  }
}

}  // namespace

std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_line(const Json& value) {
  const std::string lines = value.dump(0, ' ', false, Json::error_handler_t::replace);
  std::string to;
  for (size_t i = 0; i < lines.size(); ++i)
    if (lines[i] != '\n')
      to += lines[i];
    else if (lines[i - 1] == ',')
      to += ' ';
  return to;
}

Json pair_up(std::initializer_list<Json> keys_and_values) {
  Json to = Json::object();
  for (auto i = keys_and_values.begin(); i != keys_and_values.end(); i += 2)
    to[i[0].get<std::string>()] = i[1];
  return to;
}

const Json* find(const Json& object, std::string_view name) noexcept {
  const auto it = object.find(name);
  return it != object.end() && !it->is_null() ? &*it : nullptr;
}

std::string text(const Json& object, std::string_view name) {
  const Json* const value = find(object, name);
  return value != nullptr ? value->get<std::string>() : std::string();
}

Status invalid(std::string_view what, std::string_view expected, std::string_view got) {
  return Status(Code::kInvalidArgument,
                fmt::format("invalid {}: expected {}, got {}", what, expected, got));
}

Status invalid(std::string_view what, std::string_view expected, const Json* got) {
  if (got == nullptr) return invalid(what, expected, "none");
  return invalid(what, expected,
                 got->is_string() ? base::excerpt(got->get_ref<const std::string&>())
                                  : base::printable(to_text(*got), 80));
}

Status check_members(const Json& object, std::span<const Member> members, std::string_view what) {
  std::vector<std::string> known;
  for (const Member& m : members) known.emplace_back(m.name);
  for (const auto& [key, value] : object.items())
    if (!base::contains(known, key))
      return invalid(what, known.empty() ? "none" : base::one_of(known),
                     base::excerpt(key) + base::did_you_mean(key, known));
  for (const Member& m : members) {
    const Json* const value = find(object, m.name);
    if (value == nullptr && m.kind < kNeededText) continue;
    if (const auto expected = misfit(value != nullptr ? *value : Json(), m); !expected.empty())
      return invalid(m.name, expected, value);
  }
  return {};
}

Status parse_request(std::string_view line, Request& to) {
  YARD_ASSIGN_OR_RETURN(const Json parsed, parse(line));
  if (!parsed.is_object()) return invalid("request", "an object", &parsed);
  if (const Json* const id = find(parsed, "id"); id != nullptr && id->is_primitive()) to.id = *id;
  YARD_RETURN_IF_ERROR(check_members(parsed, kRequest, "request"));
  to.command = text(parsed, "command");
  if (const Json* const runtime = find(parsed, "runtime")) to.runtime = runtime->get<int64_t>();
  if (const Json* const args = find(parsed, "args")) to.args = *args;
  return {};
}

std::string answer(const Request& request, const Result<std::string>& result) {
  std::string line = fmt::format(R"({{"v": {}, "id": {}, "ok": {}, )", kInspectVersion,
                                 to_text(request.id), result.ok());
  if (result.ok()) {
    line += "\"result\": " + *result;
    std::ranges::replace(line, '\n', ' ');  // strings have none: there it is escaped
  } else {
    const Status& e = result.status();
    line += "\"error\": " + to_line(object("code", yard::to_string(e.code()), "message",
                                           e.message(), "notes", e.notes()));
  }
  return line + '}';
}

}  // namespace yard::inspect
