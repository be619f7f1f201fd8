// SPDX-License-Identifier: Apache-2.0
// Requests and answers of live control, each one line of JSON. A request is
//
//   {"v": 1, "id": 7, "command": "stats", "args": {...}, "runtime": 0}
#pragma once

#include <yard/inspect.h>
#include <yard/status.h>

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace yard::inspect {

using Json = nlohmann::ordered_json;

struct Request {
  Json id;  // a number, a string or null
  std::string command;
  Json args = Json::object();
  std::optional<int64_t> runtime;  // if unset, the first runtime
};

// A member of a request or of its arguments.
struct Member {
  // From kNeededText on the member must be there. A kPath begins with '/', because the folders of client and process may
  // differ.
  enum class Kind : uint8_t {
    kText,
    kNumber,
    kObject,
    kId,
    kSwitch,
    kNeededText,
    kNeededNumber,
    kPath
  };
  const char* name = nullptr;
  Kind kind = Kind::kText;
  int64_t least = 0, most = INT64_MAX;  // of a number
};
// Checks that the object has only these members, and those that it needs. Null counts as missing. `what` is for messages.
Status check_members(const Json& object, std::span<const Member> members, std::string_view what);

// Fills `to` as far as the line is valid, so that the answer to a refused request has the id of its line.
Status parse_request(std::string_view line, Request& to);

// The answer as one line without its newline. The result is JSON.
std::string answer(const Request& request, const Result<std::string>& result);

// The text of a JSON value on one line, without spaces. Invalid UTF-8 is replaced.
std::string to_text(const Json& value);
// The same with a space after each comma and colon, as answers have it.
std::string to_line(const Json& value);

Json pair_up(std::initializer_list<Json> keys_and_values);
// Makes an object of keys and values: object("op", name, "count", 3).
Json object(const auto&... all) { return pair_up({Json(all)...}); }
// Makes an array of json_of(item) for each item.
template <class List, class F>
Json each(const List& list, const F& json_of) {
  Json to = Json::array();
  for (const auto& item : list) to.push_back(json_of(item));
  return to;
}
// Returns null if the text is empty.
inline Json or_null(std::string text) { return text.empty() ? Json() : Json(std::move(text)); }

// Returns null if the object has no such member, or if its value is null.
const Json* find(const Json& object, std::string_view name) noexcept;
// Returns the text of a member that is a string, or an empty text if there is none.
std::string text(const Json& object, std::string_view name);

// The error "invalid WHAT: expected EXPECTED, got GOT". A null pointer prints as "none".
Status invalid(std::string_view what, std::string_view expected, std::string_view got);
Status invalid(std::string_view what, std::string_view expected, const Json* got);

}  // namespace yard::inspect
