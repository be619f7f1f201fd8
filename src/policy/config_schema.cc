// SPDX-License-Identifier: Apache-2.0
// JSON Schema of a rule file, from the reader's tables.
#include <fmt/format.h>
#include <yard/config.h>

#include "base/text.h"
#include "policy/config_keys.h"
#include "policy/fields.h"

namespace yard {
namespace {

using policy::Key;
using policy::Shape;

std::string object_of(std::span<const Key> keys, const std::string& indent);

std::string one_or_many(const std::string& item) {
  return fmt::format(
      "\"anyOf\": [{{{}}}, {{\"type\": \"array\", \"minItems\": 1, \"items\": {{{}}}}}]", item,
      item);
}

std::string schema_of_map(const std::string& names, const std::string& value) {
  return fmt::format(
      "\"type\": \"object\", \"propertyNames\": {{\"pattern\": {}}}, "
      "\"additionalProperties\": {{{}}}",
      base::json_string(names), value);
}

constexpr const char* kOp = "^[a-z0-9_.]+$";
constexpr const char* kOpGlob = "^[a-z0-9_.*?]+$";
constexpr const char* kFunctionGlob = "^[A-Za-z0-9_.*?-]+(/[A-Za-z0-9_.*?-]+)?$";
constexpr const char* kText = "\"type\": \"string\", \"minLength\": 1";
constexpr const char* kId =
    R"("anyOf": [{"type": "string", "pattern": "^[A-Za-z0-9_.-]+$"}, {"$ref": "#/$defs/optional_kernel"}])";
constexpr const char* kGlob =
    R"("anyOf": [{"type": "string", "pattern": "^[A-Za-z0-9_.*?-]+$"}, {"$ref": "#/$defs/optional_kernel"}])";
constexpr const char* kMode = R"("type": "string", "pattern": "^[A-Za-z0-9_.-]+$")";

// What the value of a key must be, without the braces.
std::string body(const Key& key, const std::string& indent) {
  const auto bounds = [&] {
    return fmt::format("\"minimum\": {}, \"maximum\": {}", key.least, key.most);
  };
  switch (key.shape) {
    case Shape::kVersion: return R"("enum": ["1.0", "1", 1.0, 1])";
    case Shape::kSwitch: return "\"type\": \"boolean\"";
    case Shape::kWhole: return "\"type\": \"integer\", " + bounds();
    case Shape::kNumber: return "\"type\": \"number\", " + bounds();
    case Shape::kDuration:
      return fmt::format(
          R"("anyOf": [{{"type": "number", {}}}, {{"type": "string", "pattern": "^[0-9.]+ ?(h|m|s|ms|us|ns)$"}}])",
          bounds());
    case Shape::kWord: {
      std::string words;
      for (const char* w : key.words) words += (words.empty() ? "" : ", ") + base::json_string(w);
      return "\"enum\": [" + words + "]";
    }
    case Shape::kMode: return kMode;
    case Shape::kText:
    case Shape::kPath:
    case Shape::kFolder: return kText;
    case Shape::kPaths:
    case Shape::kVendors: return one_or_many(kText);
    case Shape::kOpGlob: return fmt::format("\"type\": \"string\", \"pattern\": \"{}\"", kOpGlob);
    case Shape::kKernel: return R"("type": "string", "pattern": "^[A-Za-z0-9_.*?-]+$")";
    case Shape::kKernels: return one_or_many(kId);
    case Shape::kGlobs: return one_or_many(kGlob);
    case Shape::kOpKernel: return schema_of_map(kOpGlob, kId);
    case Shape::kOpKernels: return schema_of_map(kOpGlob, one_or_many(kId));
    case Shape::kOpOrders: return schema_of_map(kOp, one_or_many(kText));
    case Shape::kOpModes: return schema_of_map(kOpGlob, kMode);
    case Shape::kSwitches: return schema_of_map("", "\"type\": \"boolean\"");
    case Shape::kConditions: return "\"$ref\": \"#/$defs/conditions\"";
    case Shape::kFunctions: return schema_of_map(kFunctionGlob, object_of(key.inner, indent));
    case Shape::kNames: return one_or_many(kMode);
    case Shape::kLabels: return schema_of_map("", kText);
    case Shape::kMap: return object_of(key.inner, indent);
    case Shape::kMaps:
      return fmt::format("\"type\": \"array\", \"items\": {{\n{}  {}}}", indent,
                         object_of(key.inner, indent + "  "));
    case Shape::kOneOrMaps: return one_or_many(object_of(key.inner, indent + "  "));
  }
  return {};
}

std::string object_of(std::span<const Key> keys, const std::string& indent) {
  std::string properties, required;
  for (const Key& k : keys) {
    std::string meaning = k.meaning;
    if (k.fallback[0] != '\0') meaning += fmt::format(" (default {})", k.fallback);
    properties += fmt::format("{}\n{}    {}: {{\"description\": {}, {}}}",
                              properties.empty() ? "" : ",", indent, base::json_string(k.name),
                              base::json_string(meaning), body(k, indent + "    "));
    if (k.required) required += (required.empty() ? "" : ", ") + base::json_string(k.name);
  }
  std::string text = "\"type\": \"object\", \"additionalProperties\": false";
  if (!required.empty()) text += ", \"required\": [" + required + "]";
  return text + fmt::format(", \"properties\": {{{}\n{}}}", properties, indent + "  ");
}

// Any field of any op with any operator; the known ones are offered as names.
std::string schema_of_conditions() {
  std::string offered;
  const auto offer = [&](const char* name) {
    offered += fmt::format("{}{}: {{\"$ref\": \"#/$defs/values\"}}", offered.empty() ? "" : ", ",
                           base::json_string(name));
  };
  for (const char* name : policy::call_fields()) offer(name);
  for (const policy::FieldAlias& a : policy::field_aliases()) offer(a.name);
  for (const char* name : policy::plain_labels()) offer(name);
  std::string suffixes;
  for (const policy::OperatorRow& row : policy::operators())
    suffixes += fmt::format("{}{}: {}", suffixes.empty() ? "" : ", ", row.suffix, row.meaning);
  return fmt::format(
      "{{\"type\": \"object\", \"description\": {}, \"properties\": {{{}}}, "
      "\"additionalProperties\": {{\"$ref\": \"#/$defs/values\"}}}}",
      base::json_string("a field of the call with an operator behind it. " + suffixes), offered);
}

}  // namespace

std::string config_json_schema() {
  constexpr const char* kScalar = R"({"type": ["string", "number", "boolean"]})";
  return fmt::format(
      "{{\n"
      "  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
      "  \"title\": \"Switchyard rules\",\n"
      "  {},\n"
      "  \"$defs\": {{\n"
      "    \"values\": {{\"anyOf\": [{}, {{\"type\": \"array\", \"minItems\": 1, \"items\": "
      "{}}}]}},\n"
      "    \"optional_kernel\": {{\"type\": \"object\", \"additionalProperties\": false, "
      "\"required\": [\"kernel\"], \"properties\": {{\"kernel\": {{\"type\": \"string\"}}, "
      "\"optional\": {{\"type\": \"boolean\"}}}}}},\n"
      "    \"conditions\": {}\n"
      "  }}\n"
      "}}\n",
      object_of(policy::root_keys(), ""), kScalar, kScalar, schema_of_conditions());
}

}  // namespace yard
