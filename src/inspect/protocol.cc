// SPDX-License-Identifier: Apache-2.0
#include "inspect/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/json.h"
#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::inspect {
namespace {

using enum Member::Kind;

constexpr Member kRequest[] = {{"v", kNeededNumber, kInspectVersion, kInspectVersion},
                               {"id", kAny},
                               {"command", kNeededText},
                               {"args", kObject},
                               {"runtime", kNumber}};

bool is_number(const Member& m) { return m.kind == kNumber || m.kind == kNeededNumber; }

bool fits(const Json& value, const Member& m) {
  if (m.kind == kAny) return true;
  if (m.kind == kObject) return value.is_object();
  if (is_number(m)) return value.is_number_integer() && value >= m.least && value <= m.most;
  if (!value.is_string()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  if (m.kind == kPath) return text.starts_with('/') && text.find('\0') == text.npos;
  return m.kind == kText || !text.empty();
}

std::string expected(const Member& m) {
  if (m.kind == kObject) return "an object";
  if (m.kind == kPath) return "a path that begins with /";
  if (!is_number(m)) return "a string";
  if (m.most == INT64_MAX) return fmt::format("a whole number of at least {}", m.least);
  if (m.least == m.most) return std::to_string(m.least);
  return fmt::format("a whole number from {} to {}", m.least, m.most);
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
    const bool needed = m.kind == kNeededText || m.kind == kPath || m.kind == kNeededNumber;
    if (value == nullptr ? needed : !fits(*value, m)) return invalid(m.name, expected(m), value);
  }
  return {};
}

Status parse_request(std::string_view line, Request& to) {
  YARD_ASSIGN_OR_RETURN(const Json parsed, parse(line));
  if (!parsed.is_object()) return invalid("request", "an object", &parsed);
  if (const Json* const id = find(parsed, "id")) {
    if (!id->is_number() && !id->is_string()) return invalid("id", "a number or a string", id);
    to.id = *id;
  }
  YARD_RETURN_IF_ERROR(check_members(parsed, kRequest, "request"));
  to.command = text(parsed, "command");
  if (const Json* const runtime = find(parsed, "runtime")) to.runtime = runtime->get<int64_t>();
  if (const Json* const args = find(parsed, "args")) to.args = *args;
  return {};
}

std::string answer(const Request& request, const Result<std::string>& result) {
  base::JsonObject to;
  to.add("v", kInspectVersion).add_json("id", to_text(request.id)).add("ok", result.ok());
  if (result.ok()) {
    to.add_json("result", *result);
  } else {
    const Status& error = result.status();
    base::JsonObject e;
    e.add("code", yard::to_string(error.code())).add("message", error.message());
    e.add_json("notes", base::json_strings({error.notes().begin(), error.notes().end()}));
    to.add_json("error", e.text());
  }
  std::string line = to.text();
  std::ranges::replace(line, '\n', ' ');  // strings have none: there it is escaped
  return line;
}

}  // namespace yard::inspect
