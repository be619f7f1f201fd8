// SPDX-License-Identifier: Apache-2.0
#include "inspect/protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::inspect {
namespace {

using enum Member::Kind;

constexpr size_t kDeepest = 32;
constexpr Member kRequest[] = {{"v", kNeededNumber, kInspectVersion, kInspectVersion},
                               {"id", kId},
                               {"command", kNeededText},
                               {"args", kObject},
                               {"runtime", kNumber}};

// Builds a Value from the events of the JSON library, which requires these function names. A
// function that returns false stops the reading.
class Reader {
 public:
  using Kind = Value::Kind;

  Result<Value> read(std::string_view line) {
    if (nlohmann::json::sax_parse(line, this)) return std::move(open_.front().members.front());
    return std::move(problem_);
  }

  bool null() { return add({}); }
  bool boolean(bool on) { return add({Kind::kSwitch, on ? "true" : "false"}); }
  bool number_integer(int64_t n) { return add({Kind::kNumber, std::to_string(n)}); }
  bool number_unsigned(uint64_t n) { return add({Kind::kNumber, std::to_string(n)}); }
  bool number_float(double, std::string as) {
    // The library has replaced the point by that of the process's locale.
    const size_t point = as.find_first_not_of("+-0123456789eE");
    if (point != as.npos) as[point] = '.';
    return add({Kind::kNumber, std::move(as)});
  }
  bool string(const std::string& s) { return add({Kind::kText, base::json_string(s), {}, s}); }
  bool binary(const nlohmann::json::binary_t&) { return false; }  // JSON text cannot contain this
  bool start_object(size_t) { return begin(Kind::kObject); }
  bool start_array(size_t) { return begin(Kind::kList); }
  bool key(const std::string& name) {
    const auto& others = open_.back().members;
    if (std::ranges::find(others, name, &Value::name) != others.end())
      return refuse(fmt::format("the key {} occurs twice", base::excerpt(name)));
    name_ = name;
    return true;
  }
  bool end_object() { return end('{', '}'); }
  bool end_array() { return end('[', ']'); }
  bool parse_error(size_t at, const std::string&, const std::exception& e) {
    // The library's text begins with "[json.exception...] parse error at line 1, column 2: ".
    const std::string_view text = e.what();
    const size_t colon = text.find(": ");
    problem_ = base::failure(Code::kParse, "invalid JSON at column {}: {}", at,
                             base::printable(text.substr(colon == text.npos ? 0 : colon + 2), 200));
    return false;
  }

 private:
  bool refuse(const std::string& why) {
    problem_ = Status(Code::kParse, "invalid JSON: " + why);
    return false;
  }
  bool add(Value v) {
    v.name = std::exchange(name_, {});
    open_.back().members.push_back(std::move(v));
    return true;
  }
  bool begin(Kind kind) {
    if (open_.size() > kDeepest) return refuse(fmt::format("expected at most {} levels", kDeepest));
    open_.push_back({kind, {}, std::exchange(name_, {})});
    return true;
  }
  bool end(char first, char last) {
    Value v = std::move(open_.back());
    open_.pop_back();
    v.json = first;
    for (const Value& m : v.members) {
      if (v.json.size() > 1) v.json += ',';
      if (v.kind == Kind::kObject) v.json += base::json_string(m.name) + ':';
      v.json += m.json;
    }
    v.json += last;
    name_ = std::move(v.name);
    return add(std::move(v));
  }

  std::vector<Value> open_ = {{}};  // the last one is being read; the first one receives the result
  std::string name_;                // the name of the next member
  Status problem_;
};

// Returns what was expected if the value does not fit, or an empty string.
std::string misfit(const Value& value, const Member& m) {
  const auto unless = [](bool fits, std::string what) { return fits ? "" : std::move(what); };
  const auto is = [&](Value::Kind kind) { return value.kind == kind; };
  const auto n = base::number<int64_t>(value.json);
  const bool in_range = n && *n >= m.least && *n <= m.most;
  switch (m.kind) {
    case kText: return unless(is(Value::Kind::kText), "a string");
    case kNeededText: return unless(!value.text.empty(), "a string");
    case kPath:
      return unless(value.text.starts_with('/') && value.text.find('\0') == value.text.npos,
                    "a path that begins with /");
    case kSwitch: return unless(is(Value::Kind::kSwitch), "true or false");
    case kObject: return unless(is(Value::Kind::kObject), "an object");
    case kId:
      return unless(is(Value::Kind::kNumber) || is(Value::Kind::kText), "a number or a string");
    default:
      if (m.most == INT64_MAX)
        return unless(in_range, fmt::format("a whole number of at least {}", m.least));
      if (m.least == m.most) return unless(in_range, std::to_string(m.least));
      return unless(in_range, fmt::format("a whole number from {} to {}", m.least, m.most));
  }
}

}  // namespace

const Value* find(const Value& object, std::string_view name) noexcept {
  const auto it = std::ranges::find(object.members, name, &Value::name);
  return it != object.members.end() && it->kind != Value::Kind::kNull ? &*it : nullptr;
}

std::string text(const Value& object, std::string_view name) {
  const Value* const value = find(object, name);
  return value != nullptr ? value->text : std::string();
}

bool is_set(const Value& object, std::string_view name) noexcept {
  const Value* const value = find(object, name);
  return value != nullptr && value->json == "true";
}

int64_t number(const Value& object, std::string_view name, int64_t otherwise) noexcept {
  const Value* const value = find(object, name);
  return value != nullptr ? base::number<int64_t>(value->json).value_or(otherwise) : otherwise;
}

Status invalid(std::string_view what, std::string_view expected, std::string_view got) {
  return base::invalid("invalid {}: expected {}, got {}", what, expected, got);
}

Status invalid(std::string_view what, std::string_view expected, const Value* got) {
  if (got == nullptr) return invalid(what, expected, "none");
  return invalid(
      what, expected,
      got->kind == Value::Kind::kText ? base::excerpt(got->text) : base::printable(got->json, 80));
}

Status check_members(const Value& object, std::span<const Member> members, std::string_view what) {
  std::vector<std::string> known;
  for (const Member& m : members) known.emplace_back(m.name);
  for (const Value& v : object.members)
    if (!base::contains(known, v.name))
      return invalid(what, known.empty() ? "none" : base::one_of(known),
                     base::excerpt(v.name) + base::did_you_mean(v.name, known));
  for (const Member& m : members) {
    const Value* const value = find(object, m.name);
    if (value == nullptr && m.kind < kNeededText) continue;
    if (const auto expected = misfit(value != nullptr ? *value : Value(), m); !expected.empty())
      return invalid(m.name, expected, value);
  }
  return {};
}

Status parse_request(std::string_view line, Request& to) {
  YARD_ASSIGN_OR_RETURN(const Value parsed, Reader().read(line));
  if (parsed.kind != Value::Kind::kObject) return invalid("request", "an object", &parsed);
  if (const Value* const id = find(parsed, "id"); id != nullptr && id->kind < Value::Kind::kList)
    to.id = *id;
  YARD_RETURN_IF_ERROR(check_members(parsed, kRequest, "request"));
  to.command = text(parsed, "command");
  if (find(parsed, "runtime") != nullptr) to.runtime = number(parsed, "runtime");
  if (const Value* const args = find(parsed, "args")) to.args = *args;
  return {};
}

std::string answer(const Request& request, const Result<std::string>& result) {
  std::string line = fmt::format(R"({{"v": {}, "id": {}, "ok": {}, )", kInspectVersion,
                                 request.id.json, result.ok());
  if (result.ok()) {
    line += "\"result\": " + *result;
    std::ranges::replace(line, '\n', ' ');  // a newline in a JSON string is escaped
  } else {
    const Status& e = result.status();
    const auto note_json = [](const std::string& note) { return Json{base::json_string(note)}; };
    line += "\"error\": " + object("code", yard::to_string(e.code()), "message", e.message(),
                                   "notes", each(e.notes(), note_json))
                                .text;
  }
  return line + '}';
}

}  // namespace yard::inspect
