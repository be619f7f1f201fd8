// SPDX-License-Identifier: Apache-2.0
#include "inspect/request.h"

#include <fmt/format.h>
#include <yard/inspect.h>

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::inspect {
namespace {

using base::YamlNode;

constexpr size_t kLongestId = 128, kDeepest = 32, kMostValues = 10'000;

Status invalid(std::string_view what, std::string_view expected, std::string_view got) {
  return Status(Code::kInvalidArgument,
                fmt::format("invalid {}: expected {}, got {}", what, expected, got));
}
Status invalid(std::string_view what, std::string_view expected, const YamlNode* got) {
  return invalid(what, expected, base::json_excerpt(got));
}

bool is_id(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kNull ||
         (node.kind == YamlNode::Kind::kScalar && node.text.size() <= kLongestId);
}

std::string start_of(const Request& request, bool ok) {
  return fmt::format("{{\"v\": {}, \"id\": {}, \"ok\": {}, ", kInspectVersion, request.id, ok);
}

}  // namespace

Status parse_request(std::string_view line, Request& to) {
  YARD_ASSIGN_OR_RETURN(auto parsed, base::parse_json(line, {.bytes = kInspectMostRequest,
                                                             .depth = kDeepest,
                                                             .nodes = kMostValues}));
  if (parsed.kind != YamlNode::Kind::kMap)
    return invalid("request", "an object", base::json_kind(parsed));
  const YamlNode* const id = parsed.find("id");
  if (id != nullptr) {
    if (!is_id(*id)) return invalid("id", "a number or a string", base::json_kind(*id));
    to.id = base::to_json(*id);
  }
  const std::vector<std::string> known = {"v", "id", "command", "args", "runtime"};
  for (const base::YamlEntry& e : parsed.entries)
    if (!base::contains(known, e.key))
      return Status(Code::kInvalidArgument,
                    fmt::format("invalid request: expected {}, got {}{}", base::one_of(known),
                                base::excerpt(e.key), base::did_you_mean(e.key, known)));
  const YamlNode* const version = parsed.find("v");
  if (version == nullptr || base::json_whole_number(*version) != kInspectVersion)
    return invalid("v", std::to_string(kInspectVersion), version);
  const YamlNode* const command = parsed.find("command");
  if (command == nullptr || base::json_text(*command) == nullptr)
    return invalid("command", "a string", command);
  to.command = command->text;
  if (const YamlNode* runtime = parsed.find("runtime")) {
    to.runtime = base::json_whole_number(*runtime);
    if (!to.runtime) return invalid("runtime", "a whole number", runtime);
  }
  if (const YamlNode* args = parsed.find("args")) {
    if (args->kind != YamlNode::Kind::kMap && args->kind != YamlNode::Kind::kNull)
      return invalid("args", "an object", args);
    to.args = *args;
  }
  return {};
}

std::string answer(const Request& request, std::string_view result) {
  std::string line = start_of(request, true) + "\"result\": ";
  line.reserve(line.size() + result.size() + 2);
  line += result;
  // Inside of strings they are escaped.
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '}';
  return line;
}

std::string answer(const Request& request, const Status& error) {
  base::JsonObject e;
  e.add("code", yard::to_string(error.code())).add("message", error.message());
  e.add_json("notes", base::json_strings({error.notes().begin(), error.notes().end()}));
  return fmt::format("{}\"error\": {}}}", start_of(request, false), std::move(e).text());
}

}  // namespace yard::inspect
