// SPDX-License-Identifier: Apache-2.0
// Turns a Config into a YAML tree to print or compare, and makes the JSON Schema of rule files.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yard/config.h>

#include "base/json.h"
#include "policy/config_files.h"
#include "policy/config_rows.h"
#include "policy/fields.h"

namespace yard {
namespace {

using base::YamlNode;
using policy::ValueForm;
namespace shape = policy::shape;

using NodeKind = YamlNode::Kind;

YamlNode node(NodeKind kind, std::string text = {}, bool quoted = false) {
  return {kind, quoted, {}, std::move(text), {}, {}};
}
YamlNode scalar(std::string text, bool quoted = false) {
  return node(NodeKind::kScalar, std::move(text), quoted);
}

void put(YamlNode& to, std::string key, YamlNode value) {
  to.entries.push_back({std::move(key), {}, std::move(value)});
}

template <class T>
YamlNode tree_of_rows(const T& from);

template <class M>
YamlNode tree(const M& from, const ValueForm& form) {
  if constexpr (policy::IsOptional<M>) {
    return tree(*from, form);
  } else if constexpr (policy::HasFields<M>) {
    return tree_of_rows(from);
  } else if constexpr (std::is_same_v<M, std::vector<Condition>>) {
    YamlNode n = node(NodeKind::kMap);
    for (const Condition& c : from)
      put(n, c.key,
          c.list || c.values.size() != 1 ? tree(c.values, form) : tree(c.values[0], form));
    return n;
  } else if constexpr (policy::IsList<M>) {
    YamlNode n = node(NodeKind::kList);
    for (const auto& item : from) n.items.push_back(tree(item, form));
    return n;
  } else if constexpr (policy::IsMap<M>) {
    YamlNode n = node(NodeKind::kMap);
    for (const auto& [key, value] : from) put(n, key, tree(value, form));
    return n;
  } else if constexpr (std::is_same_v<M, KernelRef>) {
    return from.optional ? tree_of_rows(from) : scalar(from.id);
  } else if constexpr (std::is_same_v<M, ConfigValue>) {
    return scalar(from.text, from.quoted);
  } else if constexpr (std::is_same_v<M, std::string>) {
    return scalar(from, form.is(shape::kLabels));
  } else if constexpr (std::is_same_v<M, bool>) {
    return scalar(from ? "true" : "false");
  } else if constexpr (std::is_same_v<M, double>) {
    return scalar(base::format_double(from));
  } else if constexpr (std::is_same_v<M, std::chrono::nanoseconds>) {
    return scalar(policy::print_duration(from));
  } else if constexpr (policy::IsEnum<M>) {
    return scalar(form.word_of(from));
  } else {
    return scalar(std::to_string(from));
  }
}

template <class T>
YamlNode tree_of_rows(const T& from) {
  const T usual{};
  YamlNode n = node(NodeKind::kMap);
  policy::visit_rows(policy::kFields<T>, [&](const auto& row) {
    if constexpr (requires { row.member; }) {
      const auto& value = from.*row.member;
      const bool printed = row.required || row.always || value != usual.*row.member;
      if (!printed || row.section != nullptr) return;
      YamlNode of_value = tree(value, row.form);
      // A struct may differ only in fields that are printed elsewhere.
      if (!row.form.is(shape::kMap) || !of_value.entries.empty())
        put(n, row.name, std::move(of_value));
    } else if (row.form.is(shape::kVersion)) {
      put(n, row.name, scalar(policy::kConfigVersion, true));
    }
  });
  // The reader expects one of the two.
  if constexpr (std::is_same_v<T, ScoreRule>)
    if (from.add == 0 && from.multiply == 1) put(n, "add", tree(from.add, {}));
  return n;
}

YamlNode tree_of(const Config& config) { return tree(policy::with_sections(config), {}); }

std::string flow(const YamlNode& n) {
  std::string text;
  switch (n.kind) {
    case NodeKind::kNull: return "~";
    case NodeKind::kScalar: return base::yaml_scalar(n.text, n.quoted);
    case NodeKind::kList:
      for (const YamlNode& item : n.items) text += (text.empty() ? "" : ", ") + flow(item);
      return "[" + text + "]";
    case NodeKind::kMap:
      for (const base::YamlEntry& e : n.entries)
        text += (text.empty() ? "" : ", ") + base::yaml_scalar(e.key) + ": " + flow(e.value);
      return "{" + text + "}";
  }
  return text;
}

// Whether the node is a map other than {kernel: ID, optional: true}.
bool is_struct(const YamlNode& n) {
  return n.kind == NodeKind::kMap &&
         !(n.entries.size() == 2 && n.entries[0].key == "kernel" && n.entries[1].key == "optional");
}

bool is_rules(const YamlNode& n) { return !n.items.empty() && is_struct(n.items[0]); }

void print(const YamlNode& n, const std::string& indent, std::string& to) {
  for (const base::YamlEntry& e : n.entries) {
    to += indent + base::yaml_scalar(e.key) + ":";
    if (is_struct(e.value) && !e.value.entries.empty()) {
      to += '\n';
      print(e.value, indent + "  ", to);
    } else if (is_rules(e.value)) {
      to += '\n';
      for (const YamlNode& item : e.value.items) {
        std::string text;
        print(item, "    ", text);
        to += "  - " + text.substr(4);
      }
    } else {
      (to += ' ') += flow(e.value) + '\n';
    }
  }
}

class Differ {
 public:
  std::vector<ConfigChange> changes;

  void compare(const std::string& path, const YamlNode* a, const YamlNode* b) {
    if (a != nullptr && b != nullptr && a->kind == b->kind) {
      if (is_struct(*a) && is_struct(*b)) return compare_maps(path, *a, *b);
      if (is_rules(*a) || is_rules(*b)) return compare_rules(path, *a, *b);
      if (flow(*a) == flow(*b)) return;
    }
    // A whole section that was added or removed is reported entry by entry.
    const YamlNode* only = a == nullptr ? b : b == nullptr ? a : nullptr;
    if (only != nullptr && path.find('[') == std::string::npos &&
        (is_struct(*only) || is_rules(*only))) {
      const YamlNode none = node(only->kind);
      return compare(path, a ? a : &none, b ? b : &none);
    }
    changes.push_back({path, a ? flow(*a) : "", b ? flow(*b) : ""});
  }

 private:
  void compare_maps(const std::string& path, const YamlNode& a, const YamlNode& b) {
    for (const base::YamlEntry& e : a.entries)
      compare(policy::child_path(path, e.key), &e.value, b.find(e.key));
    for (const base::YamlEntry& e : b.entries)
      if (a.find(e.key) == nullptr) compare(policy::child_path(path, e.key), nullptr, &e.value);
  }

  // Lists of equal length are compared item by item. In other lists, items that are missing from
  // one of them, or in another order, were added or removed.
  void compare_rules(const std::string& path, const YamlNode& a, const YamlNode& b) {
    const auto at = [&](size_t i) { return fmt::format("{}[{}]", path, i); };
    if (a.items.size() == b.items.size()) {
      for (size_t i = 0; i < a.items.size(); ++i) compare(at(i), &a.items[i], &b.items[i]);
      return;
    }
    std::vector<std::string> after;
    for (const YamlNode& item : b.items) after.push_back(flow(item));
    size_t next = 0;
    const auto add_until = [&](size_t end) {
      for (; next < end; ++next) changes.push_back({at(next), "", after[next]});
    };
    for (size_t i = 0; i < a.items.size(); ++i) {
      std::string item = flow(a.items[i]);
      const auto same = std::find(after.begin() + static_cast<ptrdiff_t>(next), after.end(), item);
      if (same == after.end()) {
        changes.push_back({at(i), std::move(item), ""});
      } else {
        add_until(static_cast<size_t>(same - after.begin()));
        ++next;
      }
    }
    add_until(after.size());
  }
};

// ---- JSON Schema, from the rows that the reader uses ----

std::string object_of(policy::Keys keys);

// Returns the schema of a value, without the braces. `inner` has the keys of maps in it.
std::string body(const ValueForm& form, policy::Keys inner) {
  const policy::Shape& shape = *form.shape;
  if (shape.key != nullptr)
    return fmt::format(
        R"("type": "object", "propertyNames": {{{}}}, "additionalProperties": {{{}}})",
        body(*shape.key, {}), body(*shape.value, inner));
  const std::string bounds = fmt::format("\"minimum\": {}, \"maximum\": {}", form.least, form.most);
  std::string one = R"("type": "string", "minLength": 1)";
  if (form.is(shape::kVersion))
    one = R"("enum": ["1.0", "1", 1.0, 1])";
  else if (form.is(shape::kSwitch))
    one = R"("type": "boolean")";
  else if (form.is(shape::kConditions))
    one = R"("$ref": "#/$defs/conditions")";
  else if (form.is(shape::kWhole) || form.is(shape::kNumber))
    one = fmt::format(R"("type": "{}", {})", form.is(shape::kWhole) ? "integer" : "number", bounds);
  else if (form.is(shape::kDuration))
    one = fmt::format(R"("anyOf": [{{"type": "number", {}}}, )"
                      R"({{"type": "string", "pattern": "^[0-9.]+ ?(h|m|s|ms|us|ns)$"}}])",
                      bounds);
  else if (!form.words.empty())
    one = "\"enum\": " + base::json_strings({form.words.begin(), form.words.end()});
  else if (!inner.empty())
    one = object_of(inner);
  else if (shape.chars != nullptr)
    one = fmt::format(R"("type": "string", "pattern": "^[{}]+$")", shape.chars);
  if (shape.ref)
    one = fmt::format(R"("anyOf": [{{{}}}, {{"$ref": "#/$defs/optional_kernel"}}])", one);
  if (form.is(shape::kMaps)) return fmt::format(R"("type": "array", "items": {{{}}})", one);
  if (!shape.many) return one;
  return fmt::format(R"("anyOf": [{{{0}}}, {{"type": "array", "minItems": 1, "items": {{{0}}}}}])",
                     one);
}

std::string object_of(policy::Keys keys) {
  std::vector<std::string> properties, required;
  for (const policy::Key* k : keys) {
    if (k->section != nullptr) continue;
    std::string meaning = k->meaning;
    if (k->fallback[0] != '\0') meaning += fmt::format(" (default {})", k->fallback);
    properties.push_back(fmt::format("{}: {{\"description\": {}, {}}}", base::json_string(k->name),
                                     base::json_string(meaning), body(k->form, k->inner)));
    if (k->required) required.emplace_back(k->name);
  }
  return fmt::format(
      R"("type": "object", "additionalProperties": false, "required": {}, "properties": {{
{}}})",
      base::json_strings(required), fmt::join(properties, ",\n"));
}

// Allows any field with any operator. Editors offer the fields that many ops have.
std::string schema_of_conditions() {
  std::vector<std::string> offered, suffixes;
  const auto offer = [&](const char* name) {
    offered.push_back(base::json_string(name) + ": {\"$ref\": \"#/$defs/values\"}");
  };
  for (const char* name : policy::kCallFields) offer(name);
  for (const policy::FieldAlias& a : policy::kFieldAliases) offer(a.name);
  for (const char* name : policy::kPlainLabels) offer(name);
  for (const policy::OperatorRow& row : policy::kOperators)
    suffixes.push_back(fmt::format("{}: {}", row.suffix, row.meaning));
  return fmt::format(
      "{{\"type\": \"object\", \"description\": {}, \"properties\": {{{}}}, "
      "\"additionalProperties\": {{\"$ref\": \"#/$defs/values\"}}}}",
      base::json_string(fmt::format("a field of the call followed by an operator. {}",
                                    fmt::join(suffixes, ", "))),
      fmt::join(offered, ", "));
}

}  // namespace

std::string to_yaml(const Config& config) {
  std::string text;
  print(tree_of(config), "", text);
  return text;
}

std::vector<ConfigChange> diff(const Config& before, const Config& after) {
  const YamlNode a = tree_of(before), b = tree_of(after);
  Differ d;
  d.compare("", &a, &b);
  return std::move(d.changes);
}

std::string config_json_schema() {
  constexpr const char* kScalar = R"({"type": ["string", "number", "boolean"]})";
  return fmt::format(R"({{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "title": "Switchyard rules",
  {},
  "$defs": {{
    "values": {{"anyOf": [{}, {{"type": "array", "minItems": 1, "items": {}}}]}},
    "optional_kernel": {{{}}},
    "conditions": {}
  }}
}}
)",
                     object_of(policy::kKeys<Config>), kScalar, kScalar,
                     object_of(policy::kKeys<KernelRef>), schema_of_conditions());
}

}  // namespace yard
