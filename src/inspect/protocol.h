// SPDX-License-Identifier: Apache-2.0
// Requests and answers of live control, each one line of JSON. A request is
//
//   {"v": 1, "id": 7, "command": "stats", "args": {...}, "runtime": 0}
//
// Nothing here keeps values of the JSON library, because their destructor allocates and would end a
// process that is out of memory.
#pragma once

#include <yard/inspect.h>
#include <yard/status.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/json.h"

namespace yard::inspect {

// A JSON value that was read.
struct Value {
  enum class Kind : uint8_t { kNull, kSwitch, kNumber, kText, kList, kObject };
  Kind kind = Kind::kNull;
  std::string json = "null";  // the value on one line
  std::string name = {};      // if the value is a member of an object
  std::string text = {};      // if the value is a string
  std::vector<Value> members = {};
};
// These four functions treat null as missing.
const Value* find(const Value& object, std::string_view name) noexcept;
std::string text(const Value& object, std::string_view name);
bool is_set(const Value& object, std::string_view name) noexcept;
int64_t number(const Value& object, std::string_view name, int64_t otherwise = 0) noexcept;

// JSON text to be written.
struct Json {
  std::string text = "null";
};
template <class V, class... More>
void add_members(base::JsonObject& to, std::string_view key, const V& value, const More&... more) {
  if constexpr (std::is_same_v<V, Json>)
    to.add_json(key, value.text);
  else
    to.add(key, value);
  if constexpr (sizeof...(more) > 0) add_members(to, more...);
}
// Makes an object of keys and values: object("op", name, "count", 3).
Json object(const auto&... keys_and_values) {
  base::JsonObject to;
  if constexpr (sizeof...(keys_and_values) > 0) add_members(to, keys_and_values...);
  return {to.text()};
}
template <class List, class F>
Json each(const List& list, const F& json_of) {
  std::vector<std::string> to;
  for (const auto& item : list) to.push_back(json_of(item).text);
  return {base::json_list(to)};
}
inline Json list_of(const std::vector<Json>& items) { return each(items, std::identity()); }
inline Json or_null(std::string_view text) {
  return text.empty() ? Json() : Json{base::json_string(text)};
}

struct Request {
  Value id;  // a number, a string or null
  std::string command;
  Value args;
  std::optional<int64_t> runtime;  // if unset, the first runtime
};

struct Member {
  // Members from kNeededText on are required. A kPath must begin with '/', because the folders of
  // client and process may differ.
  enum class Kind { kText, kNumber, kObject, kId, kSwitch, kNeededText, kNeededNumber, kPath };
  const char* name = nullptr;
  Kind kind = Kind::kText;
  int64_t least = 0, most = INT64_MAX;  // for numbers
};
// Checks that the object has the required members and no unknown ones. Messages call a member
// `what`.
Status check_members(const Value& object, std::span<const Member> members, std::string_view what);

// Fills `to` as far as the line is valid, so that the answer to a refused request can name its id.
Status parse_request(std::string_view line, Request& to);

// Returns the answer as one line without its newline. The result must be JSON.
std::string answer(const Request& request, const Result<std::string>& result);

// Returns the error "invalid WHAT: expected EXPECTED, got GOT". A null pointer prints as "none".
Status invalid(std::string_view what, std::string_view expected, std::string_view got);
Status invalid(std::string_view what, std::string_view expected, const Value* got);

}  // namespace yard::inspect
