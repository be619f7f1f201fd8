// SPDX-License-Identifier: Apache-2.0
// A Config as a tree again: printed as YAML, or compared with another.
#include <fmt/format.h>
#include <yard/config.h>

#include <algorithm>
#include <type_traits>

#include "base/text.h"
#include "base/yaml.h"
#include "policy/config_keys.h"

namespace yard {
namespace {

using base::YamlNode;
using policy::Key;
using policy::Shape;

YamlNode scalar(std::string text, bool quoted = false) {
  YamlNode n;
  n.kind = YamlNode::Kind::kScalar;
  n.text = std::move(text);
  n.quoted = quoted;
  return n;
}

YamlNode map() {
  YamlNode n;
  n.kind = YamlNode::Kind::kMap;
  return n;
}

void put(YamlNode& to, std::string key, YamlNode value) {
  to.entries.push_back({std::move(key), {}, std::move(value)});
}
// Only what says something.
void put_filled(YamlNode& to, std::string key, YamlNode value) {
  if (!value.items.empty() || !value.entries.empty()) put(to, std::move(key), std::move(value));
}
void put_text(YamlNode& to, std::string key, const std::string& text) {
  if (!text.empty()) put(to, std::move(key), scalar(text));
}

template <class List, class F>
YamlNode list(const List& from, F f) {
  YamlNode n;
  n.kind = YamlNode::Kind::kList;
  for (const auto& item : from) n.items.push_back(f(item));
  return n;
}
YamlNode texts(const std::vector<std::string>& from) {
  return list(from, [](const std::string& s) { return scalar(s); });
}

YamlNode kernel(const KernelRef& ref) {
  if (!ref.optional) return scalar(ref.id);
  YamlNode n = map();
  put(n, "kernel", scalar(ref.id));
  put(n, "optional", scalar("true"));
  return n;
}
YamlNode kernels(const std::vector<KernelRef>& refs) { return list(refs, kernel); }

template <class Map, class F>
YamlNode map_of(const Map& from, F f) {
  YamlNode n = map();
  for (const auto& [key, value] : from) put(n, key, f(value));
  return n;
}

YamlNode conditions(const std::vector<Condition>& from) {
  YamlNode n = map();
  for (const Condition& c : from) {
    const auto value = [](const ConfigValue& v) { return scalar(v.text, v.quoted); };
    put(n, c.key, c.list || c.values.size() != 1 ? list(c.values, value) : value(c.values[0]));
  }
  return n;
}

template <class Rule>
YamlNode rule_head(const Rule& r) {
  YamlNode n = map();
  put_text(n, "name", r.name);
  put_text(n, "description", r.description);
  put(n, "operation", scalar(r.operation));
  put_filled(n, "conditions", conditions(r.conditions));
  put(n, "kernel", scalar(r.kernel));
  if (r.optional) put(n, "optional", scalar("true"));
  return n;
}

YamlNode rule_tree(const DispatchRule& r) {
  YamlNode n = rule_head(r);
  if (r.priority) put(n, "priority", scalar(std::to_string(*r.priority)));
  return n;
}

YamlNode score_tree(const ScoreRule& r) {
  YamlNode n = rule_head(r);
  if (r.add != 0 || r.multiply == 1) put(n, "add", scalar(base::format_double(r.add)));
  if (r.multiply != 1) put(n, "multiply", scalar(base::format_double(r.multiply)));
  return n;
}

YamlNode on_off(bool on) { return scalar(on ? "true" : "false"); }

YamlNode policy_tree(const Policy& p) {
  YamlNode n = map();
  if (p.prefer) put(n, "prefer", scalar(to_string(*p.prefer)));
  if (p.strict) put(n, "strict", on_off(*p.strict));
  if (p.retry_inplace) put(n, "retry_inplace", scalar(to_string(*p.retry_inplace)));
  if (p.reference_only) put(n, "reference_only", on_off(*p.reference_only));
  put_filled(n, "per_op", map_of(p.per_op, texts));
  if (p.allow_vendors) put(n, "allow_vendors", texts(*p.allow_vendors));
  put_filled(n, "deny_vendors", texts(p.deny_vendors));
  if (p.allow_kernels) put(n, "allow_kernels", texts(*p.allow_kernels));
  put_filled(n, "deny_kernels", texts(p.deny_kernels));
  put_filled(n, "locks", map_of(p.locks, [](const std::string& id) { return scalar(id); }));
  put_filled(n, "backends", map_of(p.backends, on_off));
  return n;
}

YamlNode function_tree(const FunctionRule& r) {
  YamlNode n = map();
  if (r.enabled) put(n, "enabled", on_off(*r.enabled));
  if (r.backends) put(n, "backends", texts(*r.backends));
  put_filled(n, "deny", texts(r.deny));
  return n;
}

YamlNode canary_tree(const CanaryRule& r) {
  const CanaryRule usual;
  YamlNode n = map(), tolerance = map();
  put(n, "op", scalar(r.op));
  if (r.kernel != usual.kernel) put(n, "kernel", scalar(r.kernel));
  put(n, "one_in", scalar(std::to_string(r.one_in)));
  if (r.check != usual.check) put(n, "check", scalar(to_string(r.check)));
  if (r.against != usual.against) put(n, "against", scalar(r.against));
  if (r.rtol) put(tolerance, "rtol", scalar(base::format_double(*r.rtol)));
  if (r.atol) put(tolerance, "atol", scalar(base::format_double(*r.atol)));
  put_filled(n, "tolerance", std::move(tolerance));
  put_text(n, "dump", r.dump);
  if (r.dump_most != usual.dump_most) put(n, "dump_most", scalar(std::to_string(r.dump_most)));
  if (r.optional) put(n, "optional", scalar("true"));
  return n;
}

YamlNode value_of(const Key&, bool v) { return on_off(v); }
YamlNode value_of(const Key&, int64_t v) { return scalar(std::to_string(v)); }
YamlNode value_of(const Key&, double v) { return scalar(base::format_double(v)); }
YamlNode value_of(const Key&, std::chrono::nanoseconds v) {
  return scalar(policy::print_duration(v));
}
YamlNode value_of(const Key&, const std::string& v) { return scalar(v); }
YamlNode value_of(const Key&, const std::vector<std::string>& v) { return texts(v); }
template <class Enum>
std::enable_if_t<std::is_enum_v<Enum>, YamlNode> value_of(const Key& key, Enum v) {
  return scalar(key.words[static_cast<size_t>(v)]);
}

YamlNode settings_tree(ConfigSettings& s, std::span<const Key> keys) {
  YamlNode n = map();
  for (const Key& k : keys) {
    if (k.shape == Shape::kMap) put_filled(n, k.name, settings_tree(s, k.inner));
    if (k.shape == Shape::kOpModes)
      put_filled(n, k.name, map_of(s.modes, [](const std::string& m) { return scalar(m); }));
    if (k.at == nullptr) continue;
    std::visit(
        [&](auto* value) {
          if (value->has_value()) put(n, k.name, value_of(k, **value));
        },
        k.at(s));
  }
  return n;
}

YamlNode rollout_tree(const RolloutRule& r) {
  const auto number = [](double v) { return scalar(base::format_double(v)); };
  YamlNode n = map();
  put(n, "percent", number(r.percent));
  put_filled(n, "labels", map_of(r.labels, [](const std::string& v) { return scalar(v, true); }));
  put(n, "hold_s", number(r.hold_s));
  put(n, "max_error_rate", number(r.max_error_rate));
  put(n, "max_slowdown", number(r.max_slowdown));
  return n;
}

YamlNode tree_of(const Config& c) {
  YamlNode n = map(), defaults = map();
  put(n, "version", scalar(policy::kConfigVersion, true));
  put_filled(defaults, "fallback_policy", kernels(c.defaults.fallback_policy));
  if (c.defaults.default_priority)
    put(defaults, "default_priority", scalar(std::to_string(*c.defaults.default_priority)));
  put_filled(n, "defaults", std::move(defaults));
  put_filled(n, "dispatch_rules", list(c.dispatch_rules, rule_tree));
  put_filled(n, "kernel_locks", map_of(c.kernel_locks, kernel));
  put_filled(n, "kernel_denies", kernels(c.kernel_denies));
  if (c.kernel_allows) put(n, "kernel_allows", kernels(*c.kernel_allows));
  put_filled(n, "fallback_chains", map_of(c.fallback_chains, kernels));
  put_filled(n, "policy", policy_tree(c.policy));
  put_filled(n, "static_kernel_map", map_of(c.static_kernel_map, kernel));
  put_filled(n, "score", list(c.score, score_tree));
  put_filled(n, "functions", map_of(c.functions, function_tree));
  put_filled(n, "canary", list(c.canary, canary_tree));
  if (c.rollout) put(n, "rollout", rollout_tree(*c.rollout));
  ConfigSettings settings = c.settings;
  put_filled(n, "settings", settings_tree(settings, policy::settings_keys()));
  return n;
}

// A section that is a list of maps.
bool is_rules(std::string_view section) {
  return section == "dispatch_rules" || section == "score" || section == "canary";
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
    if (e.value.kind == YamlNode::Kind::kMap && !is_optional_kernel(e.value)) {
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

std::string child(const std::string& path, const std::string& key) {
  const bool plain = !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return base::is_bare_word({&c, 1}) || c == '*' || c == '?';
  });
  if (!plain) return path + "[" + base::excerpt(key) + "]";
  return path.empty() ? key : path + "." + key;
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
    // A whole map that came or went is told entry by entry.
    const YamlNode* only = a == nullptr ? b : b == nullptr ? a : nullptr;
    if (only != nullptr && !is_optional_kernel(*only) && path.find('[') == std::string::npos) {
      const YamlNode no_map = map(), no_list = list(std::vector<int>(), [](int) { return map(); });
      const YamlNode* none = only->kind == YamlNode::Kind::kMap ? &no_map
                             : is_rules(path)                   ? &no_list
                                                                : nullptr;
      if (none != nullptr) return compare(path, a ? a : none, b ? b : none);
    }
    changes.push_back({path, a ? flow(*a) : "", b ? flow(*b) : ""});
  }

 private:
  void compare_maps(const std::string& path, const YamlNode& a, const YamlNode& b) {
    for (const base::YamlEntry& e : a.entries) compare(child(path, e.key), &e.value, b.find(e.key));
    for (const base::YamlEntry& e : b.entries)
      if (a.find(e.key) == nullptr) compare(child(path, e.key), nullptr, &e.value);
  }

  // What both begin with and end with is the same; in between rules are told apart by what they say.
  void compare_rules(const std::string& path, const YamlNode& a, const YamlNode& b) {
    const auto flat = [](const YamlNode& n) {
      std::vector<std::string> to;
      for (const YamlNode& item : n.items) to.push_back(flow(item));
      return to;
    };
    const std::vector<std::string> x = flat(a), y = flat(b);
    size_t head = 0, tail = 0;
    while (head < std::min(x.size(), y.size()) && x[head] == y[head]) ++head;
    while (tail < std::min(x.size(), y.size()) - head &&
           x[x.size() - 1 - tail] == y[y.size() - 1 - tail])
      ++tail;
    const auto at = [&](size_t i) { return fmt::format("{}[{}]", path, i); };
    if (x.size() == y.size()) {
      for (size_t i = head; i < x.size() - tail; ++i) compare(at(i), &a.items[i], &b.items[i]);
      return;
    }
    const std::vector<bool> keep = common(x, y, head, tail);
    size_t j = head;
    for (size_t i = head; i < x.size() - tail; ++i) {
      if (!keep[i]) {
        changes.push_back({at(i), x[i], ""});
        continue;
      }
      for (; y[j] != x[i]; ++j) changes.push_back({at(j), "", y[j]});
      ++j;
    }
    for (; j < y.size() - tail; ++j) changes.push_back({at(j), "", y[j]});
  }

  // Which of x are part of the longest sequence that y has, too; none where looking would take long.
  static std::vector<bool> common(const std::vector<std::string>& x,
                                  const std::vector<std::string>& y, size_t head, size_t tail) {
    std::vector<bool> keep(x.size(), false);
    const size_t n = x.size() - tail - head, m = y.size() - tail - head;
    if (n * m > 16'000'000) return keep;
    std::vector<uint32_t> longest((n + 1) * (m + 1), 0);
    const auto at = [&](size_t i, size_t j) -> uint32_t& { return longest[i * (m + 1) + j]; };
    for (size_t i = n; i-- > 0;)
      for (size_t j = m; j-- > 0;)
        at(i, j) = x[head + i] == y[head + j] ? at(i + 1, j + 1) + 1
                                              : std::max(at(i + 1, j), at(i, j + 1));
    for (size_t i = 0, j = 0; i < n && j < m;) {
      if (x[head + i] == y[head + j] && at(i, j) == at(i + 1, j + 1) + 1)
        keep[head + i++] = true, ++j;
      else if (at(i + 1, j) >= at(i, j + 1))
        ++i;
      else
        ++j;
    }
    return keep;
  }
};

}  // namespace

const char* to_string(CanaryCheck check) noexcept {
  return check == CanaryCheck::kFinite ? "finite" : "values";
}

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

}  // namespace yard
