// SPDX-License-Identifier: Apache-2.0
// JSON Schema of a rule file, from the rows that the reader uses.
#include <fmt/format.h>
#include <yard/config.h>

#include "base/text.h"
#include "policy/config_keys.h"
#include "policy/fields.h"

namespace yard {
namespace {

using policy::Form;
using policy::Key;
using policy::Shape;

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
constexpr const char* kName = R"("type": "string", "pattern": "^[A-Za-z0-9_.-]+$")";

// What a value must be, without the braces; `object`: the maps that it consists of.
std::string body(const Form& form, const std::string& object, const std::string& indent) {
  const auto bounds = [&] {
    return fmt::format("\"minimum\": {}, \"maximum\": {}", form.least, form.most);
  };
  switch (form.shape) {
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
      for (const char* w : form.words) words += (words.empty() ? "" : ", ") + base::json_string(w);
      return "\"enum\": [" + words + "]";
    }
    case Shape::kMode: return kName;
    case Shape::kText:
    case Shape::kLevels:
    case Shape::kPath:
    case Shape::kFolder: return kText;
    case Shape::kPaths:
    case Shape::kVendors: return one_or_many(kText);
    case Shape::kOpGlob: return fmt::format("\"type\": \"string\", \"pattern\": \"{}\"", kOpGlob);
    case Shape::kKernel: return R"("type": "string", "pattern": "^[A-Za-z0-9_.*?-]+$")";
    case Shape::kOneKernel: return kName;
    case Shape::kKernels: return one_or_many(kId);
    case Shape::kGlobs: return one_or_many(kGlob);
    case Shape::kNames: return one_or_many(kName);
    case Shape::kOpKernel: return schema_of_map(kOpGlob, kId);
    case Shape::kOneOpKernel: return schema_of_map(kOp, kId);
    case Shape::kOpKernels: return schema_of_map(kOpGlob, one_or_many(kId));
    case Shape::kOpOrders: return schema_of_map(kOp, one_or_many(kText));
    case Shape::kOpModes: return schema_of_map(kOpGlob, kName);
    case Shape::kSwitches: return schema_of_map("", "\"type\": \"boolean\"");
    case Shape::kLabels: return schema_of_map("", kText);
    case Shape::kConditions: return "\"$ref\": \"#/$defs/conditions\"";
    case Shape::kFunctions: return schema_of_map(kFunctionGlob, object);
    case Shape::kMap: return object;
    case Shape::kMaps:
      return fmt::format("\"type\": \"array\", \"items\": {{\n{}  {}}}", indent, object);
    case Shape::kOneOrMaps: return one_or_many(object);
  }
  return {};
}

template <class Rows>
std::string object_of(const Rows& rows, const std::string& indent) {
  if constexpr (std::tuple_size_v<Rows> == 0) return {};
  std::string properties, required;
  policy::visit_rows(rows, [&](const auto& row) {
    const Key& k = row;
    if (k.section != nullptr) return;
    std::string meaning = k.meaning;
    if (k.fallback[0] != '\0') meaning += fmt::format(" (default {})", k.fallback);
    const std::string deeper = indent + "    ";
    const bool list = k.form.shape == Shape::kMaps || k.form.shape == Shape::kOneOrMaps;
    const std::string object = object_of(policy::inner_rows(row), list ? deeper + "  " : deeper);
    properties += fmt::format("{}\n{}{}: {{\"description\": {}, {}}}",
                              properties.empty() ? "" : ",", deeper, base::json_string(k.name),
                              base::json_string(meaning), body(k.form, object, deeper));
    if (k.required) required += (required.empty() ? "" : ", ") + base::json_string(k.name);
  });
  std::string text = "\"type\": \"object\", \"additionalProperties\": false";
  if (!required.empty()) text += ", \"required\": [" + required + "]";
  return text + fmt::format(", \"properties\": {{{}\n{}}}", properties, indent + "  ");
}

// Any field of any op with any operator; editors are offered those of all ops.
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
      base::json_string("a field of the call followed by an operator. " + suffixes), offered);
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
      object_of(policy::kFields<Config>, ""), kScalar, kScalar, schema_of_conditions());
}

}  // namespace yard
