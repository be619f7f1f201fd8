// SPDX-License-Identifier: Apache-2.0
// From a Config to a YAML tree, which is printed or compared with another; JSON Schema of a rule file.
#include <fmt/format.h>
#include <yard/config.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "base/yaml.h"
#include "policy/config_keys.h"
#include "policy/fields.h"

namespace yard {
namespace {

using base::YamlNode;
using policy::Form;
using policy::Shape;

YamlNode scalar(std::string text, bool quoted = false) {
  YamlNode n;
  n.kind = YamlNode::Kind::kScalar;
  n.text = std::move(text);
  n.quoted = quoted;
  return n;
}

YamlNode empty(YamlNode::Kind kind) {
  YamlNode n;
  n.kind = kind;
  return n;
}

void put(YamlNode& to, std::string key, YamlNode value) {
  to.entries.push_back({std::move(key), {}, std::move(value)});
}

// A struct that has its defaults is left out.
void put_row(YamlNode& to, const policy::Key& key, YamlNode value) {
  if (key.form.shape != Shape::kMap || !value.entries.empty()) put(to, key.name, std::move(value));
}

// Trees of values, by type. A class, because the functions call each other in any order.
class Trees {
 public:
  // ---- Values ----

  static YamlNode tree(bool v, const Form&) { return scalar(v ? "true" : "false"); }
  static YamlNode tree(int v, const Form&) { return scalar(std::to_string(v)); }
  static YamlNode tree(int64_t v, const Form&) { return scalar(std::to_string(v)); }
  static YamlNode tree(double v, const Form&) { return scalar(base::format_double(v)); }
  static YamlNode tree(std::chrono::nanoseconds v, const Form&) {
    return scalar(policy::print_duration(v));
  }
  static YamlNode tree(const std::string& v, const Form& form) {
    return scalar(v, form.shape == Shape::kLabels);
  }
  template <policy::IsEnum Enum>
  static YamlNode tree(Enum v, const Form& form) {
    return scalar(form.word_of(v));
  }
  static YamlNode tree(const ConfigValue& v, const Form&) { return scalar(v.text, v.quoted); }
  static YamlNode tree(const KernelRef& ref, const Form&) {
    if (!ref.optional) return scalar(ref.id);
    YamlNode n = empty(YamlNode::Kind::kMap);
    put(n, "kernel", scalar(ref.id));
    put(n, "optional", scalar("true"));
    return n;
  }

  template <policy::IsOptional M>
  static YamlNode tree(const M& from, const Form& form) {
    return tree(*from, form);
  }
  template <policy::IsList M>
  static YamlNode tree(const M& from, const Form& form) {
    YamlNode n = empty(YamlNode::Kind::kList);
    for (const auto& item : from) n.items.push_back(tree(item, form));
    return n;
  }
  template <policy::IsMap M>
  static YamlNode tree(const M& from, const Form& form) {
    YamlNode n = empty(YamlNode::Kind::kMap);
    for (const auto& [key, value] : from) put(n, key, tree(value, form));
    return n;
  }
  static YamlNode tree(const std::vector<Condition>& from, const Form& form) {
    YamlNode n = empty(YamlNode::Kind::kMap);
    for (const Condition& c : from)
      put(n, c.key,
          c.list || c.values.size() != 1 ? tree(c.values, form) : tree(c.values[0], form));
    return n;
  }

  // ---- Structs ----

  template <class T, class Rows>
  static YamlNode tree_of_rows(const T& from, const Rows& rows) {
    const T usual{};
    YamlNode n = empty(YamlNode::Kind::kMap);
    policy::visit_rows(rows, [&](const auto& row) {
      if constexpr (requires { row.member; }) {
        const auto& value = from.*row.member;
        const bool printed = row.required || row.always || value != usual.*row.member;
        if (!printed || row.section != nullptr) return;
        put_row(n, row, tree(value, row.form));
      } else if constexpr (requires { row.fields; }) {
        put_row(n, row, tree_of_rows(from, row.fields));
      } else if (row.form.shape == Shape::kVersion) {
        put(n, row.name, scalar(policy::kConfigVersion, true));
      }
    });
    return n;
  }

  template <policy::HasFields T>
  static YamlNode tree(const T& from, const Form&) {
    YamlNode n = tree_of_rows(from, policy::kFields<T>);
    // A file must have one of the two.
    if constexpr (std::is_same_v<T, ScoreRule>)
      if (from.add == 0 && from.multiply == 1) put(n, "add", tree(from.add, {}));
    return n;
  }
};

YamlNode tree_of(Config c) {
  // Files have sections for these fields of the policy; only code can have set them there.
  Policy& p = c.policy;
  for (const auto& [op, kernel] : p.locks)
    c.kernel_locks.try_emplace(op, KernelRef{kernel, false, {}});
  std::vector<KernelRef> denies;
  for (const std::string& id : p.deny_kernels) denies.push_back({id, false, {}});
  policy::merge_value(denies, c.kernel_denies, policy::Merge::kAdd);
  c.kernel_denies = std::move(denies);
  if (p.allow_kernels && !c.kernel_allows) {
    c.kernel_allows.emplace();
    for (const std::string& id : *p.allow_kernels) c.kernel_allows->push_back({id, false, {}});
  }
  return Trees::tree(c, {});
}

// A section that is a list of maps.
bool is_rules(std::string_view section) {
  const policy::KeyRows rows = policy::keys_of(policy::kFields<Config>);
  return std::any_of(rows.begin(), rows.end(), [&](const policy::KeyRow& row) {
    const Shape shape = row.key->form.shape;
    return section == row.key->name && (shape == Shape::kMaps || shape == Shape::kOneOrMaps);
  });
}

// On one line.
std::string flow(const YamlNode& n) {
  std::string text;
  switch (n.kind) {
    case YamlNode::Kind::kNull: return "~";
    case YamlNode::Kind::kScalar: return base::yaml_scalar(n.text, n.quoted);
    case YamlNode::Kind::kList:
      for (const YamlNode& item : n.items) text += (text.empty() ? "" : ", ") + flow(item);
      return "[" + text + "]";
    case YamlNode::Kind::kMap:
      for (const base::YamlEntry& e : n.entries)
        text += (text.empty() ? "" : ", ") + base::yaml_scalar(e.key) + ": " + flow(e.value);
      return "{" + text + "}";
  }
  return text;
}

// {kernel: ID, optional: true}
bool is_optional_kernel(const YamlNode& n) {
  return n.entries.size() == 2 && n.entries[0].key == "kernel" && n.entries[1].key == "optional";
}

void print(const YamlNode& n, const std::string& indent, std::string& to) {
  std::string lead = indent;
  for (const base::YamlEntry& e : n.entries) {
    (to += lead) += base::yaml_scalar(e.key) + ":";
    const bool maps = e.value.kind == YamlNode::Kind::kList && is_rules(e.key) && indent.empty();
    if (e.value.kind == YamlNode::Kind::kMap && !e.value.entries.empty() &&
        !is_optional_kernel(e.value)) {
      to += '\n';
      print(e.value, indent + "  ", to);
    } else if (maps) {
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
      if (a->kind == YamlNode::Kind::kMap && !is_optional_kernel(*a) && !is_optional_kernel(*b))
        return compare_maps(path, *a, *b);
      if (is_rules(path)) return compare_rules(path, *a, *b);
      if (flow(*a) == flow(*b)) return;
    }
    // A map that was added or removed is reported entry by entry.
    const YamlNode* only = a == nullptr ? b : b == nullptr ? a : nullptr;
    if (only != nullptr && !is_optional_kernel(*only) && path.find('[') == std::string::npos) {
      const YamlNode no_map = empty(YamlNode::Kind::kMap), no_list = empty(YamlNode::Kind::kList);
      const YamlNode* none = only->kind == YamlNode::Kind::kMap ? &no_map
                             : is_rules(path)                   ? &no_list
                                                                : nullptr;
      if (none != nullptr) return compare(path, a ? a : none, b ? b : none);
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

  // Lists of equal length are compared item by item. Otherwise an item is either in both lists, in the
  // same order, or it was added or removed.
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

// ---- JSON Schema, from the rows that the reader uses ----

namespace {

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

// What a value must be, without the braces; `object`: the maps that it consists of.
std::string body(const Form& form, const std::string& object, const std::string& indent) {
  const policy::ShapeRow& row = policy::row_of(form.shape);
  const std::string bounds = fmt::format("\"minimum\": {}, \"maximum\": {}", form.least, form.most);
  std::string one = row.json != nullptr ? row.json : object;
  switch (form.shape) {
    case Shape::kWhole: one = "\"type\": \"integer\", " + bounds; break;
    case Shape::kNumber: one = "\"type\": \"number\", " + bounds; break;
    case Shape::kDuration:
      one = fmt::format(
          R"("anyOf": [{{"type": "number", {}}}, {{"type": "string", "pattern": "^[0-9.]+ ?(h|m|s|ms|us|ns)$"}}])",
          bounds);
      break;
    case Shape::kWord:
    case Shape::kModes:
      one = "\"enum\": " + base::json_strings({form.words.begin(), form.words.end()});
      break;
    case Shape::kMaps:
      one = fmt::format("\"type\": \"array\", \"items\": {{\n{}  {}}}", indent, object);
      break;
    default: break;
  }
  if (row.many) one = one_or_many(one);
  return row.key != nullptr ? schema_of_map(row.key->pattern, one) : one;
}

std::string object_of(policy::KeyRows rows, const std::string& indent) {
  if (rows.empty()) return {};
  std::string properties, required;
  for (const policy::KeyRow& row : rows) {
    const policy::Key& k = *row.key;
    if (k.section != nullptr) continue;
    std::string meaning = k.meaning;
    if (k.fallback[0] != '\0') meaning += fmt::format(" (default {})", k.fallback);
    const std::string deeper = indent + "    ";
    const bool list = k.form.shape == Shape::kMaps || k.form.shape == Shape::kOneOrMaps;
    const std::string object = object_of(row.inner, list ? deeper + "  " : deeper);
    properties += fmt::format("{}\n{}{}: {{\"description\": {}, {}}}",
                              properties.empty() ? "" : ",", deeper, base::json_string(k.name),
                              base::json_string(meaning), body(k.form, object, deeper));
    if (k.required) required += (required.empty() ? "" : ", ") + base::json_string(k.name);
  }
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
      object_of(policy::keys_of(policy::kFields<Config>), ""), kScalar, kScalar,
      schema_of_conditions());
}

}  // namespace yard
