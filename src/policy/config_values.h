// SPDX-License-Identifier: Apache-2.0
// Typed values out of a YAML tree. Whatever is wrong becomes a problem with its place and its path, and
// reading goes on, so that all problems of a file are found at once.
#pragma once

#include <yard/config.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/yaml.h"
#include "policy/config_keys.h"

namespace yard::policy {

// The way to a value; made text only when something is wrong. Borrows all it names.
struct Path {
  const Path* up = nullptr;
  std::string_view key;  // empty: an index
  size_t index = 0;
};
// "dispatch_rules[2].conditions.batch_size_gte"; keys that are no plain words are quoted: a["b c"].
std::string to_string(const Path& path);

// A value and the way to it.
struct At {
  const base::YamlNode& node;
  const Path& path;
};

// A file with more problems than these is told so instead of all of them.
inline constexpr size_t kMostProblems = 200;
ConfigProblem more_problems(std::string file, Severity severity);
bool is_more(const ConfigProblem& problem) noexcept;

class ConfigValues {
 public:
  // Problems and places name the file `names[file]`.
  ConfigValues(std::string name, uint32_t file, std::vector<ConfigProblem>& problems)
      : name_(std::move(name)), file_(file), problems_(problems) {}

  // Each reads one value; nothing, after a problem was noted, when it is not that.
  std::optional<bool> read_switch(At at, const Key& key);
  std::optional<int64_t> read_whole(At at, const Key& key);
  std::optional<double> read_number(At at, const Key& key);
  std::optional<std::chrono::nanoseconds> read_duration(At at, const Key& key);
  // Index into key.words.
  std::optional<int> read_word(At at, const Key& key);
  // Any scalar, not empty.
  std::optional<std::string> read_text(At at, const Key& key);
  // A scalar of which `good` holds.
  std::optional<std::string> read_name(At at, const Key& key, bool (*good)(std::string_view));
  // A path, absolute or made so from the folder of this file.
  std::optional<std::string> read_path(At at, const Key& key);
  std::vector<std::string> read_paths(At at, const Key& key);
  std::vector<std::string> read_names(At at, const Key& key, bool (*good)(std::string_view));
  // An id, or {kernel: ID, optional: true}. `globs`: or a glob.
  std::optional<KernelRef> read_kernel(At at, const Key& key, bool globs);
  std::vector<KernelRef> read_kernels(At at, const Key& key, bool globs);
  std::vector<Condition> read_conditions(At at, const Key& key);

  // Calls f(At, key text, place of the key) for the entries of a map, f(At) for items of a list or for the
  // scalar alone. False if it is no map.
  template <class F>
  bool each_entry(At at, const Key& key, F f) {
    if (at.node.kind != base::YamlNode::Kind::kMap) return wrong(at, key), false;
    for (const base::YamlEntry& e : at.node.entries) {
      const Path path{&at.path, e.key, 0};
      f(At{e.value, path}, e.key, e.key_at);
    }
    return true;
  }
  template <class F>
  void each_item(At at, const Key& key, F f) {
    if (at.node.kind != base::YamlNode::Kind::kList) return f(at);
    if (at.node.items.empty()) return wrong(at, "found an empty list", wanted(key));
    for (size_t i = 0; i < at.node.items.size(); ++i) {
      const Path path{&at.path, {}, i};
      f(At{at.node.items[i], path});
    }
  }
  // Calls f(Key, At) for each known key of a map; unknown ones are problems, and required ones that are
  // missing.
  template <class F>
  void each_key(At at, std::span<const Key> keys, const Key& whole, F f) {
    const bool map = each_entry(at, whole, [&](At value, const std::string& k, base::YamlMark m) {
      const Key* found = find_key(keys, k);
      if (found == nullptr)
        unknown_key(m, value.path, keys);
      else if (value.node.kind == base::YamlNode::Kind::kNull)
        wrong(value, *found);
      else
        f(*found, value);
    });
    if (map) check_required(at, keys);
  }

  // "found ...; expected WANTED".
  void wrong(At at, const Key& key, std::string_view hint = {});
  void wrong(At at, std::string found, std::string right);
  void problem(Severity severity, base::YamlMark mark, std::string path, std::string found,
               std::string right);

  ConfigPlace place(base::YamlMark mark) const { return {file_, mark.line, mark.column}; }
  const std::string& name() const noexcept { return name_; }

 private:
  void unknown_key(base::YamlMark mark, const Path& path, std::span<const Key> keys);
  void check_required(At at, std::span<const Key> keys);
  bool is_scalar(At at, const Key& key);

  std::string name_;
  uint32_t file_;
  std::vector<ConfigProblem>& problems_;
};

// How a message shows a value: 8, high, "in quotes", a list.
std::string shown(const base::YamlNode& node);
std::string shown(std::string_view text, bool quoted);
// `path` seen from the folder of `file`.
std::string beside(const std::string& file, const std::string& path);

// Another file that one names.
struct Include {
  std::string file;
  base::YamlMark at;
  std::string path;  // "include[1]"
};

// Reads a tree into a Config; includes are only named. `main`: a version must be there.
Config read_tree(const base::YamlNode& root, bool main, ConfigValues& values,
                 std::vector<Include>& includes);

}  // namespace yard::policy
