// SPDX-License-Identifier: Apache-2.0
// Turns the YAML tree of one rule file into a Config.
#include <fmt/format.h>

#include "policy/config_files.h"
#include "policy/config_rows.h"

namespace yard::policy {
namespace {

using base::YamlEntry;
using base::YamlMark;
using base::YamlNode;

constexpr size_t kMostText = 1000;

struct At {
  const YamlNode& node;
  const Path& path;
};

std::string shown_node(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar ? shown(node.text, node.quoted)
                                              : to_string(node.kind);
}

// Returns `path` relative to the folder of `file`.
std::string beside(const std::string& file, const std::string& path) {
  const size_t slash = file.rfind('/');
  if (path.starts_with('/') || slash == std::string::npos) return path;
  return file.substr(0, slash + 1) + path;
}

class TreeReader {
 public:
  TreeReader(bool main, FileProblems& problems, std::vector<Include>& includes)
      : main_(main), problems_(problems), includes_(includes) {}

  Config read(const YamlNode& root) {
    const Path top;
    read_rows(to_, At{root, top}, shape::kMap);
    return std::move(to_);
  }

 private:
  ConfigPlace place(YamlMark mark) const { return {problems_.file, mark.line, mark.column}; }
  std::string shown(const Path& path) const { return to_string(path, !problems_.included); }

  // ---- Problems ----

  void wrong(At at, const std::string& expected, const std::string& found) {
    problems_.add(at.node.at, shown(at.path), "found " + found, "expected " + expected);
  }
  bool wrong(At at, const ValueForm& form, const Names& keys = {}) {
    wrong(at, wanted(form, keys), shown_node(at.node));
    return false;
  }
  void wrong_key(At at, const YamlEntry& e, const char* expected) {
    problems_.add(e.key_at, shown(at.path), "found " + policy::shown(e.key, false),
                  std::string("expected ") + expected);
  }

  void unknown_key(At at, const YamlEntry& e, Keys keys) {
    const Names names = names_of(keys);
    std::string right = suggestion(base::lower(e.key), names, "expected " + base::one_of(names));
    for (const Key* key : keys)
      if (key->section != nullptr && e.key == key->name)
        right = std::string("expected ") + key->section;
    problems_.add(e.key_at, shown(at.path), "unknown key", std::move(right));
  }

  // ---- Maps and lists ----

  template <class F>
  void each_entry(At at, const ValueForm& form, F f) {
    if (at.node.kind != YamlNode::Kind::kMap) return (void)wrong(at, form);
    for (const YamlEntry& e : at.node.entries) {
      const Path path{&at.path, e.key, 0, false};
      f(At{e.value, path}, e);
    }
  }
  // Calls f(At) for each item of a list, or for a value that is not a list.
  template <class F>
  void each_item(At at, const ValueForm& form, F f, const Names& keys = {}) {
    if (at.node.kind != YamlNode::Kind::kList) return f(at);
    if (at.node.items.empty()) return wrong(at, wanted(form, keys), "an empty list");
    for (size_t i = 0; i < at.node.items.size(); ++i) {
      const Path path{&at.path, {}, i, at.path.known};
      f(At{at.node.items[i], path});
    }
  }

  template <class T>
  void read_rows(T& to, At at, const ValueForm& form) {
    read_keys(kKeys<T>, at, form, [&](const Key& key, At value) {
      visit_rows(kFields<T>, [&](const auto& row) {
        if (&row == &key) read_row(to, row, value);
      });
    });
  }
  // Calls read_value(key, value) for each entry with a known key and a value.
  void read_keys(Keys keys, At at, const ValueForm& form,
                 const std::function<void(const Key&, At)>& read_value) {
    if (at.node.kind != YamlNode::Kind::kMap) return (void)wrong(at, form, names_of(keys));
    for (const YamlEntry& e : at.node.entries) {
      const auto it = std::find_if(keys.begin(), keys.end(), [&](const Key* key) {
        return key->section == nullptr && e.key == key->name;
      });
      const Path path{&at.path, e.key, 0, at.path.known && it != keys.end()};
      const At value{e.value, path};
      if (it == keys.end())
        unknown_key(value, e, keys);
      else if (value.node.kind == YamlNode::Kind::kNull)
        wrong(value, (*it)->form, names_of((*it)->inner));
      else
        read_value(**it, value);
    }
    for (const Key* key : keys) {
      if (!key->required || at.node.find(key->name) != nullptr) continue;
      if (key->form.is(shape::kVersion) && !main_) continue;
      const Path path{&at.path, key->name, 0, at.path.known};
      problems_.add(at.node.at, shown(path), "missing", "expected " + wanted(key->form));
    }
  }

  template <class T, class M>
  void read_row(T& to, const Field<T, M>& row, At at) {
    if (row.place != nullptr) to.*row.place = place(at.node.at);
    if constexpr (!requires { to.at; }) remember_places(at, row.form);
    read(to.*row.member, row.form, at);
  }
  // Reads the version and the included files, which have no member.
  void read_row(Config&, const Key& row, At at) {
    if (row.form.is(shape::kVersion)) {
      std::string text;
      if (read(text, row.form, at) && text != "1.0" && text != "1") wrong(at, row.form);
      return;
    }
    each_item(at, row.form, [&](At item) {
      std::string path;
      if (read(path, row.form, item))
        includes_.push_back({std::move(path), item.node.at, shown(item.path)});
    });
  }

  // Keeps the places of list items, map entries and values that have no member for their place.
  void remember_places(At at, const ValueForm& form) {
    const auto add = [&](const std::string& name, YamlMark mark) {
      to_.sources.places.emplace(to_string(at.path, true) + "/" + name, place(mark));
    };
    for (const YamlEntry& e : at.node.entries)
      add(e.key, form.is(shape::kOpModes) ? e.value.at : e.key_at);
    for (const YamlNode& item : at.node.items)
      if (item.kind == YamlNode::Kind::kScalar) add(item.text, item.at);
    if (at.node.kind != YamlNode::Kind::kScalar) return;
    add("", at.node.at);
    if (form.shape->many) add(at.node.text, at.node.at);  // it stands for a list
  }

  // ---- Values. These functions return false if they have added a problem instead of a value ----

  bool is_scalar(At at, const ValueForm& form) {
    const std::string& text = at.node.text;
    return (at.node.kind == YamlNode::Kind::kScalar && !text.empty() && text.size() <= kMostText &&
            !base::contains(text, '\0')) ||
           wrong(at, form);
  }

  template <class V>
  bool read(std::optional<V>& to, const ValueForm& form, At at) {
    V value{};
    if (!read(value, form, at)) return false;
    to = std::move(value);
    return true;
  }

  // Scalars in quotes are neither numbers nor switches.
  template <class V>
  requires std::is_arithmetic_v<V> || IsEnum<V> || std::is_same_v<V, std::string> ||
      std::is_same_v<V, std::chrono::nanoseconds>
  bool read(V& to, const ValueForm& form, At at) {
    if (!is_scalar(at, form)) return false;
    if (std::is_arithmetic_v<V> && at.node.quoted) return wrong(at, form);
    const Status s = read_one(at.node.text, form, to);
    if (!s.ok())
      problems_.add(at.node.at, shown(at.path), "found " + shown_node(at.node),
                    std::string(s.message()));
    if constexpr (std::is_same_v<V, std::string>)
      if (form.is(shape::kPath) || form.is(shape::kFolder) || form.is(shape::kPaths))
        to = beside(problems_.name, to);
    return s.ok();
  }

  // Reads a list of names or kernels.
  template <class V>
  requires(!HasFields<V>) bool read(std::vector<V>& to, const ValueForm& form, At at) {
    const auto name = [](const auto& value) -> const std::string& {
      if constexpr (std::is_same_v<V, KernelRef>)
        return value.id;
      else
        return value;
    };
    each_item(at, form, [&](At item) {
      V value;
      if (!read(value, form, item)) return;
      for (const V& other : to)
        if (name(other) == name(value))
          return problems_.add(item.node.at, shown(item.path), "duplicate " + name(value),
                               "expected each once");
      to.push_back(std::move(value));
    });
    return true;
  }

  // Reads an id, a glob if the form allows it, or {kernel: ID, optional: true}.
  bool read(KernelRef& to, const ValueForm& form, At at) {
    if (at.node.kind != YamlNode::Kind::kMap) {
      to.at = place(at.node.at);
      return read(to.id, form, at);
    }
    read_rows(to, at, form);
    const Path path{&at.path, "kernel", 0, at.path.known};
    return !to.id.empty() &&
           (fits(to.id, *form.shape) || wrong(At{*at.node.find("kernel"), path}, form));
  }

  template <IsMap M>
  bool read(M& to, const ValueForm& form, At at) {
    each_entry(at, form, [&](At value, const YamlEntry& e) {
      Part<M> part{};
      const bool good = read(part, *form.shape->value, value);
      if constexpr (HasFields<Part<M>>) part.at = place(e.key_at);
      if (!fits(e.key, *form.shape->key))
        wrong_key(value, e, form.shape->key->expected);
      else if (good)
        to.emplace(e.key, std::move(part));
    });
    return true;
  }

  bool read(std::vector<Condition>& to, const ValueForm& form, At at) {
    each_entry(at, form, [&](At value, const YamlEntry& e) {
      if (e.key.empty() || e.key.size() > kMostText)
        return wrong_key(value, e, "the name of a field");
      Condition c{e.key, {}, value.node.kind == YamlNode::Kind::kList, place(e.key_at)};
      constexpr const char* kExpected = "a value or a list of values";
      if (c.list && value.node.items.empty()) return wrong(value, kExpected, "an empty list");
      bool good = true;
      each_item(value, form, [&](At item) {
        // A label may be compared with an empty text.
        if (item.node.kind != YamlNode::Kind::kScalar || item.node.text.size() > kMostText) {
          good = false;
          return wrong(item, kExpected, shown_node(item.node));
        }
        // Quotes matter only where the text could be a number or a switch.
        const std::string& text = item.node.text;
        const bool other = base::yaml_number(text).has_value() || read_switch(text).ok();
        c.values.push_back({text, item.node.quoted && other});
      });
      if (good) to.push_back(std::move(c));
    });
    return true;
  }

  template <HasFields T>
  bool read(T& to, const ValueForm& form, At at) {
    if constexpr (requires { to.at; }) to.at = place(at.node.at);
    read_rows(to, at, form);
    if (at.node.kind != YamlNode::Kind::kMap) return true;
    const auto lacks = [&](const char* key) { return at.node.find(key) == nullptr; };
    if constexpr (std::is_same_v<T, CanaryRule::Tolerance>)
      if (at.node.entries.empty()) wrong(at, wanted(form, names_of(kKeys<T>)), "an empty map");
    if constexpr (std::is_same_v<T, ScoreRule>)
      if (lacks("add") && lacks("multiply")) wrong(at, "add or multiply", "neither");
    if constexpr (std::is_same_v<T, DispatchRule>)
      if (lacks("kernel") && lacks("deny") && lacks("allow"))
        wrong(at, "kernel, deny or allow", "none of them");
    return true;
  }

  template <HasFields T>
  bool read(std::vector<T>& to, const ValueForm& form, At at) {
    const bool list = at.node.kind == YamlNode::Kind::kList, one = form.is(shape::kOneOrMaps);
    if (!list && !one) return wrong(at, form);
    if (list && !one && at.node.items.empty()) return true;
    const ValueForm item_form = one ? form : shape::kMap;
    each_item(
        at, form, [&](At item) { read(to.emplace_back(), item_form, item); }, names_of(kKeys<T>));
    return true;
  }

  const bool main_;
  FileProblems& problems_;
  std::vector<Include>& includes_;
  Config to_;
};

}  // namespace

Config read_tree(const YamlNode& root, bool main, FileProblems& problems,
                 std::vector<Include>& includes) {
  return TreeReader(main, problems, includes).read(root);
}

}  // namespace yard::policy
