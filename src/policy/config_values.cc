// SPDX-License-Identifier: Apache-2.0
// Scalars, names and lists of a rule file.
#include "policy/config_values.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "policy/words.h"

namespace yard::policy {
namespace {

using NodeKind = base::YamlNode::Kind;
// One file has at most so many; who has more reads the first ones first.
constexpr size_t kMostText = 1000;

}  // namespace

std::string to_string(const Path& path) {
  std::string text = path.up == nullptr ? std::string() : to_string(*path.up);
  if (path.up != nullptr && path.key.data() == nullptr)
    return text + fmt::format("[{}]", path.index);
  if (path.up == nullptr && path.key.empty()) return text;
  const bool glob = !path.key.empty() && std::all_of(path.key.begin(), path.key.end(), [](char c) {
    return base::is_bare_word({&c, 1}) || c == '*' || c == '?';
  });
  if (!glob || path.key.size() > 120) return text + fmt::format("[{}]", base::excerpt(path.key));
  if (!text.empty()) text += '.';
  return text += path.key;
}

std::string shown(std::string_view text, bool quoted) {
  return !quoted && base::is_bare_word(text) && text.size() <= 80 ? std::string(text)
                                                                  : base::excerpt(text);
}

std::string shown(const base::YamlNode& node) {
  return node.kind == NodeKind::kScalar ? shown(node.text, node.quoted) : to_string(node.kind);
}

std::string beside(const std::string& file, const std::string& path) {
  const size_t slash = file.rfind('/');
  if (path.starts_with('/') || slash == std::string::npos) return path;
  return file.substr(0, slash + 1) + path;
}

namespace {
constexpr const char* kMore = "there are more problems";
}  // namespace

ConfigProblem more_problems(std::string file, Severity severity) {
  return {severity, std::move(file), 0, 0, "", kMore, "fix these first"};
}
bool is_more(const ConfigProblem& p) noexcept { return p.line == 0 && p.found == kMore; }

void ConfigValues::problem(Severity severity, base::YamlMark mark, std::string path,
                           std::string found, std::string right) {
  if (problems_.size() > kMostProblems) return;
  if (problems_.size() == kMostProblems)
    problems_.push_back(more_problems(name_, Severity::kError));
  else
    problems_.push_back({severity, name_, mark.line, mark.column, std::move(path), std::move(found),
                         std::move(right)});
}

void ConfigValues::wrong(At at, std::string found, std::string right) {
  problem(Severity::kError, at.node.at, to_string(at.path), std::move(found),
          right.empty() ? "" : "expected " + right);
}

void ConfigValues::wrong(At at, const Key& key, std::string_view hint) {
  std::string right = "expected " + wanted(key);
  if (!hint.empty()) right += fmt::format("; did you mean '{}'?", hint);
  problem(Severity::kError, at.node.at, to_string(at.path), "found " + shown(at.node),
          std::move(right));
}

void ConfigValues::unknown_key(base::YamlMark mark, const Path& path, std::span<const Key> keys) {
  const std::vector<std::string> names = names_of(keys);
  const std::string_view near = base::closest(base::lower(path.key), names);
  problem(
      Severity::kError, mark, to_string(path), "nothing reads this key",
      near.empty() ? "expected " + base::one_of(names) : fmt::format("did you mean '{}'?", near));
}

void ConfigValues::check_required(At at, std::span<const Key> keys) {
  for (const Key& k : keys) {
    if (!k.required || at.node.find(k.name) != nullptr) continue;
    const Path path{&at.path, k.name, 0};
    problem(Severity::kError, at.node.at, to_string(path), "missing", "expected " + wanted(k));
  }
}

bool ConfigValues::is_scalar(At at, const Key& key) {
  if (at.node.kind == NodeKind::kScalar && !at.node.text.empty() &&
      at.node.text.size() <= kMostText)
    return true;
  wrong(at, key);
  return false;
}

std::optional<bool> ConfigValues::read_switch(At at, const Key& key) {
  if (!is_scalar(at, key)) return std::nullopt;
  const auto on = policy::read_switch(at.node.text);
  if (on.ok() && !at.node.quoted) return *on;
  wrong(at, key);
  return std::nullopt;
}

std::optional<int64_t> ConfigValues::read_whole(At at, const Key& key) {
  if (!is_scalar(at, key)) return std::nullopt;
  const auto v = base::yaml_whole_number(at.node.text);
  if (v && !at.node.quoted && *v >= static_cast<int64_t>(key.least) &&
      *v <= static_cast<int64_t>(key.most))
    return v;
  wrong(at, key);
  return std::nullopt;
}

std::optional<double> ConfigValues::read_number(At at, const Key& key) {
  if (!is_scalar(at, key)) return std::nullopt;
  const auto v = base::yaml_number(at.node.text);
  if (v && !at.node.quoted && *v >= key.least && *v <= key.most) return v;
  wrong(at, key);
  return std::nullopt;
}

std::optional<std::chrono::nanoseconds> ConfigValues::read_duration(At at, const Key& key) {
  if (!is_scalar(at, key)) return std::nullopt;
  const auto v = policy::read_duration(at.node.text);
  const double seconds = v ? static_cast<double>(v->count()) / 1e9 : -1;
  if (v && seconds >= key.least && seconds <= key.most) return v;
  wrong(at, key);
  return std::nullopt;
}

std::optional<int> ConfigValues::read_word(At at, const Key& key) {
  if (!is_scalar(at, key)) return std::nullopt;
  for (size_t i = 0; i < key.words.size(); ++i)
    if (base::same_word(at.node.text, key.words[i])) return static_cast<int>(i);
  wrong(at, key,
        base::closest(base::lower(at.node.text),
                      std::vector<std::string>(key.words.begin(), key.words.end())));
  return std::nullopt;
}

std::optional<std::string> ConfigValues::read_text(At at, const Key& key) {
  return read_name(at, key, [](std::string_view) { return true; });
}

std::optional<std::string> ConfigValues::read_name(At at, const Key& key,
                                                   bool (*good)(std::string_view)) {
  if (!is_scalar(at, key)) return std::nullopt;
  if (good(at.node.text)) return at.node.text;
  wrong(at, key);
  return std::nullopt;
}

std::optional<std::string> ConfigValues::read_path(At at, const Key& key) {
  auto path = read_text(at, key);
  if (path && path->find('\0') != std::string::npos) return wrong(at, key), std::nullopt;
  if (path) *path = beside(name_, *path);
  return path;
}

std::vector<std::string> ConfigValues::read_paths(At at, const Key& key) {
  std::vector<std::string> paths;
  each_item(at, key, [&](At item) {
    if (auto path = read_path(item, key)) paths.push_back(*std::move(path));
  });
  return paths;
}

std::vector<std::string> ConfigValues::read_names(At at, const Key& key,
                                                  bool (*good)(std::string_view)) {
  std::vector<std::string> names;
  each_item(at, key, [&](At item) {
    auto name = read_name(item, key, good);
    if (!name) return;
    if (std::find(names.begin(), names.end(), *name) != names.end())
      return wrong(item, shown(item.node) + " is there already", "each once");
    names.push_back(*std::move(name));
  });
  return names;
}

std::optional<KernelRef> ConfigValues::read_kernel(At at, const Key& key, bool globs) {
  if (at.node.kind != NodeKind::kMap) {
    auto id = read_name(at, key, is_kernel_glob);
    if (!id) return std::nullopt;
    if (!globs && has_wildcard(*id)) {
      wrong(at, "found the glob " + shown(at.node), "the id of one kernel");
      return std::nullopt;
    }
    return KernelRef{*std::move(id), false, place(at.node.at)};
  }
  // {kernel: ID, optional: true}
  static constexpr Key kParts[] = {
      {.name = "kernel", .shape = Shape::kKernel, .meaning = "", .required = true},
      {.name = "optional", .shape = Shape::kSwitch, .meaning = ""}};
  std::optional<KernelRef> ref;
  bool optional = false;
  each_key(at, kParts, key, [&](const Key& k, At value) {
    if (&k == &kParts[1]) {
      optional = read_switch(value, k).value_or(false);
    } else if (value.node.kind == NodeKind::kMap) {
      wrong(value, k);
    } else {
      ref = read_kernel(value, k, globs);
    }
  });
  if (ref) ref->optional = optional;
  return ref;
}

std::vector<KernelRef> ConfigValues::read_kernels(At at, const Key& key, bool globs) {
  std::vector<KernelRef> kernels;
  each_item(at, key, [&](At item) {
    auto ref = read_kernel(item, key, globs);
    if (!ref) return;
    for (const KernelRef& other : kernels)
      if (other.id == ref->id) return wrong(item, ref->id + " is there already", "each once");
    kernels.push_back(*std::move(ref));
  });
  return kernels;
}

std::vector<Condition> ConfigValues::read_conditions(At at, const Key& key) {
  std::vector<Condition> conditions;
  static constexpr Key kValue{.name = "", .shape = Shape::kText, .meaning = ""};
  each_entry(at, key, [&](At value, const std::string& k, base::YamlMark mark) {
    Condition c{k, {}, value.node.kind == NodeKind::kList, place(mark)};
    if (k.empty() || k.size() > kMostText)
      return problem(Severity::kError, mark, to_string(value.path), "found " + shown(k, true),
                     "expected the name of a field");
    bool good = true;
    if (value.node.kind == NodeKind::kList && value.node.items.empty())
      return wrong(value, "found an empty list", "a value or a list of values");
    each_item(value, kValue, [&](At item) {
      // Empty text may be what a label is compared with; nothing at all may not.
      if (item.node.kind != NodeKind::kScalar || item.node.text.size() > kMostText) {
        good = false;
        return wrong(item, "found " + shown(item.node), "a value or a list of values");
      }
      // Quotes matter only where the text could be something else.
      const std::string& text = item.node.text;
      const bool other = base::yaml_number(text).has_value() || policy::read_switch(text).ok();
      c.values.push_back({text, item.node.quoted && other});
    });
    if (good && !c.values.empty()) conditions.push_back(std::move(c));
  });
  return conditions;
}

}  // namespace yard::policy
