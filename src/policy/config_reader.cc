// SPDX-License-Identifier: Apache-2.0
// The sections of a rule file.
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "base/text.h"
#include "policy/config_values.h"
#include "policy/words.h"

namespace yard::policy {
namespace {

using base::YamlNode;

bool is_glob_of_ops(std::string_view text) { return is_op_glob(text); }
bool is_kernel(std::string_view text) { return is_kernel_glob(text); }
bool is_vendor(std::string_view text) { return is_vendor_name(text); }
bool is_mode(std::string_view text) { return is_mode_name(text); }

class TreeReader {
 public:
  TreeReader(ConfigValues& values, std::vector<Include>& includes)
      : v_(values), includes_(includes) {}

  Config read(const YamlNode& root, bool main) {
    static constexpr Key kFile{.name = "", .shape = Shape::kMap, .meaning = ""};
    Key whole = kFile;
    whole.inner = root_keys();
    // Only the file that includes others must state the version.
    std::vector<Key> keys(root_keys().begin(), root_keys().end());
    keys[0].required = main;
    const Path top;
    v_.each_key(At{root, top}, keys, whole, [&](const Key& k, At at) { read_section(k, at); });
    return std::move(to_);
  }

 private:
  void read_section(const Key& key, At at) {
    const std::string_view name = key.name;
    if (name == "version") return read_version(key, at);
    if (name == "include") return read_includes(key, at);
    if (name == "defaults") return read_defaults(key, at);
    if (name == "dispatch_rules") return read_rules(key, at);
    if (name == "kernel_locks") return read_op_kernels(key, at, to_.kernel_locks, true);
    if (name == "kernel_denies") to_.kernel_denies = v_.read_kernels(at, key, true);
    if (name == "kernel_allows") to_.kernel_allows = v_.read_kernels(at, key, true);
    if (name == "fallback_chains") return read_chains(key, at);
    if (name == "policy") return read_policy(key, at);
    if (name == "static_kernel_map") return read_op_kernels(key, at, to_.static_kernel_map, false);
    if (name == "score") return read_scores(key, at);
    if (name == "functions") return read_functions(key, at);
    if (name == "canary") return read_canaries(key, at);
    if (name == "rollout") return read_rollout(key, at);
    if (name == "settings") return read_settings(key, at);
  }

  void read_version(const Key& key, At at) {
    const auto text = v_.read_text(at, key);
    if (text && *text != "1.0" && *text != "1") v_.wrong(at, key);
  }

  void read_includes(const Key& key, At at) {
    v_.each_item(at, key, [&](At item) {
      auto path = v_.read_path(item, key);
      if (path) includes_.push_back({*std::move(path), item.node.at, to_string(item.path)});
    });
  }

  void read_defaults(const Key& key, At at) {
    v_.each_key(at, key.inner, key, [&](const Key& k, At value) {
      if (k.shape == Shape::kKernels)
        to_.defaults.fallback_policy = v_.read_kernels(value, k, false);
      else if (const auto n = v_.read_whole(value, k))
        to_.defaults.default_priority = static_cast<int>(*n);
    });
  }

  // What rules and score adjustments have in common.
  template <class Rule>
  void read_common(const Key& k, At value, Rule& rule) {
    const std::string_view name = k.name;
    if (name == "operation")
      rule.operation = v_.read_name(value, k, is_glob_of_ops).value_or(""),
      rule.operation_at = v_.place(value.node.at);
    else if (name == "conditions")
      rule.conditions = v_.read_conditions(value, k);
    else if (name == "kernel")
      rule.kernel = v_.read_name(value, k, is_kernel).value_or(""),
      rule.kernel_at = v_.place(value.node.at);
    else if (name == "optional")
      rule.optional = v_.read_switch(value, k).value_or(false);
    else if (name == "name")
      rule.name = v_.read_text(value, k).value_or("");
    else if (name == "description")
      rule.description = v_.read_text(value, k).value_or("");
  }

  // Calls f(At) for each item; a list it must be, but it may be empty.
  template <class F>
  void each_map(const Key& key, At at, F f) {
    if (at.node.kind != YamlNode::Kind::kList) return v_.wrong(at, key);
    if (!at.node.items.empty()) v_.each_item(at, key, f);
  }

  void read_rules(const Key& key, At at) {
    const Key one{.name = "", .shape = Shape::kMap, .meaning = "", .inner = key.inner};
    if (at.node.kind == YamlNode::Kind::kList) to_.dispatch_rules.reserve(at.node.items.size());
    each_map(key, at, [&](At item) {
      DispatchRule rule;
      rule.at = v_.place(item.node.at);
      v_.each_key(item, key.inner, one, [&](const Key& k, At value) {
        if (k.shape != Shape::kWhole) return read_common(k, value, rule);
        if (const auto n = v_.read_whole(value, k)) rule.priority = static_cast<int>(*n);
      });
      to_.dispatch_rules.push_back(std::move(rule));
    });
  }

  void read_scores(const Key& key, At at) {
    const Key one{.name = "", .shape = Shape::kMap, .meaning = "", .inner = key.inner};
    each_map(key, at, [&](At item) {
      ScoreRule rule;
      rule.at = v_.place(item.node.at);
      v_.each_key(item, key.inner, one, [&](const Key& k, At value) {
        if (k.shape != Shape::kNumber) return read_common(k, value, rule);
        double& into = std::string_view(k.name) == "add" ? rule.add : rule.multiply;
        if (const auto n = v_.read_number(value, k)) into = *n;
      });
      if (item.node.kind == YamlNode::Kind::kMap && item.node.find("add") == nullptr &&
          item.node.find("multiply") == nullptr)
        v_.wrong(item, "this adjusts nothing", "add or multiply");
      to_.score.push_back(std::move(rule));
    });
  }

  void read_functions(const Key& key, At at) {
    const Key one{.name = "", .shape = Shape::kMap, .meaning = "", .inner = key.inner};
    v_.each_entry(at, key, [&](At value, const std::string& name, base::YamlMark mark) {
      FunctionRule rule;
      rule.at = v_.place(mark);
      v_.each_key(value, key.inner, one, [&](const Key& k, At v) {
        const std::string_view what = k.name;
        if (what == "enabled") rule.enabled = v_.read_switch(v, k);
        if (what == "backends") rule.backends = v_.read_names(v, k, base::is_bare_word);
        if (what == "deny") rule.deny = v_.read_names(v, k, base::is_bare_word);
      });
      if (is_function_glob(name))
        to_.functions.emplace(name, std::move(rule));
      else
        v_.problem(Severity::kError, mark, to_string(value.path), "found " + shown(name, false),
                   "expected a group, or a function as group/name, or a glob of such");
    });
  }

  void read_canaries(const Key& key, At at) {
    v_.each_item(at, key, [&](At item) {
      CanaryRule rule;
      rule.at = v_.place(item.node.at);
      v_.each_key(item, key.inner, key, [&](const Key& k, At v) { read_canary(k, v, rule); });
      to_.canary.push_back(std::move(rule));
    });
  }

  void read_rollout(const Key& key, At at) {
    RolloutRule rule;
    rule.at = v_.place(at.node.at);
    v_.each_key(at, key.inner, key, [&](const Key& k, At v) {
      const std::string_view name = k.name;
      if (name == "percent") rule.percent = v_.read_number(v, k).value_or(rule.percent);
      if (name == "hold_s") rule.hold_s = v_.read_number(v, k).value_or(rule.hold_s);
      if (name == "max_error_rate")
        rule.max_error_rate = v_.read_number(v, k).value_or(rule.max_error_rate);
      if (name == "max_slowdown")
        rule.max_slowdown = v_.read_number(v, k).value_or(rule.max_slowdown);
      if (name == "labels") read_labels(k, v, rule.labels);
    });
    to_.rollout = std::move(rule);
  }

  void read_labels(const Key& key, At at, std::map<std::string, std::string, std::less<>>& to) {
    static constexpr Key kOne{.name = "", .shape = Shape::kText, .meaning = ""};
    v_.each_entry(at, key, [&](At value, const std::string& name, base::YamlMark) {
      if (auto text = v_.read_text(value, kOne)) to.emplace(name, *std::move(text));
    });
  }

  void read_canary(const Key& k, At v, CanaryRule& to) {
    const std::string_view name = k.name;
    if (name == "op")
      to.op = v_.read_name(v, k, is_glob_of_ops).value_or(""), to.op_at = v_.place(v.node.at);
    if (name == "kernel")
      to.kernel = v_.read_name(v, k, is_kernel).value_or("*"), to.kernel_at = v_.place(v.node.at);
    if (name == "against") {
      to.against = v_.read_name(v, k, is_kernel).value_or("reference");
      to.against_at = v_.place(v.node.at);
      if (has_wildcard(to.against))
        v_.wrong(v, "found " + shown(v.node), "reference, or the id of one kernel");
    }
    if (name == "one_in") to.one_in = v_.read_whole(v, k).value_or(1);
    if (name == "dump_most") to.dump_most = v_.read_whole(v, k).value_or(16);
    if (name == "dump") to.dump = v_.read_path(v, k).value_or("");
    if (name == "optional") to.optional = v_.read_switch(v, k).value_or(false);
    if (name == "check") to.check = static_cast<CanaryCheck>(v_.read_word(v, k).value_or(0));
    if (name != "tolerance") return;
    v_.each_key(v, k.inner, k, [&](const Key& part, At number) {
      (std::string_view(part.name) == "rtol" ? to.rtol : to.atol) = v_.read_number(number, part);
    });
    if (v.node.kind == YamlNode::Kind::kMap && v.node.entries.empty())
      v_.wrong(v, "found an empty map", "rtol, atol or both");
  }

  // Whether a key of a map is an op, or a glob over ops.
  bool is_op_key(At value, const std::string& op, base::YamlMark mark, bool globs) {
    const bool good = is_op_glob(op) && (globs || !has_wildcard(op));
    if (!good)
      v_.problem(Severity::kError, mark, to_string(value.path), "found " + shown(op, false),
                 globs ? "expected the name of an op or a glob as attention.*"
                       : "expected the name of one op");
    return good;
  }

  void read_op_kernels(const Key& key, At at, Config::KernelMap& to, bool globs) {
    v_.each_entry(at, key, [&](At value, const std::string& op, base::YamlMark mark) {
      static constexpr Key kOne{.name = "", .shape = Shape::kKernel, .meaning = ""};
      auto kernel = v_.read_kernel(value, kOne, false);
      if (is_op_key(value, op, mark, globs) && kernel) to.emplace(op, *std::move(kernel));
    });
  }

  void read_chains(const Key& key, At at) {
    v_.each_entry(at, key, [&](At value, const std::string& op, base::YamlMark mark) {
      static constexpr Key kOne{.name = "", .shape = Shape::kKernels, .meaning = ""};
      auto kernels = v_.read_kernels(value, kOne, false);
      if (is_op_key(value, op, mark, true) && !kernels.empty())
        to_.fallback_chains.emplace(op, std::move(kernels));
    });
  }

  void read_policy(const Key& key, At at) {
    Policy& p = to_.policy;
    v_.each_key(at, key.inner, key, [&](const Key& k, At value) {
      const std::string_view name = k.name;
      if (name == "prefer") p.prefer = read_kind(k, value);
      if (name == "strict") p.strict = v_.read_switch(value, k);
      if (name == "retry_inplace")
        if (const auto word = v_.read_word(value, k))
          p.retry_inplace = static_cast<RetryInplace>(*word);
      if (name == "reference_only") p.reference_only = v_.read_switch(value, k);
      if (name == "per_op") read_orders(k, value);
      if (name == "allow_vendors") p.allow_vendors = read_list(k, value, is_vendor);
      if (name == "deny_vendors") p.deny_vendors = read_list(k, value, is_vendor);
      if (name == "allow_kernels") p.allow_kernels = read_list(k, value, is_kernel);
      if (name == "deny_kernels") p.deny_kernels = read_list(k, value, is_kernel);
      if (name == "backends") read_backends(k, value);
      if (name != "locks") return;
      Config::KernelMap locks;
      read_op_kernels(k, value, locks, true);
      for (auto& [op, ref] : locks) {
        remember("policy.locks", op, ref.at);
        p.locks.emplace(op, std::move(ref.id));
      }
    });
  }

  std::vector<std::string> read_list(const Key& key, At at, bool (*good)(std::string_view)) {
    const auto note = [&](At item) {
      remember(to_string(at.path), item.node.text, v_.place(item.node.at));
    };
    if (at.node.kind != YamlNode::Kind::kList || !at.node.items.empty())
      v_.each_item(at, key, note);
    return v_.read_names(at, key, good);
  }

  void remember(const std::string& section, const std::string& name, ConfigPlace at) {
    to_.sources.places.emplace(section + "/" + name, at);
  }

  std::optional<Kind> read_kind(const Key& key, At at) {
    if (at.node.kind == YamlNode::Kind::kScalar)
      if (const auto kind = policy::read_kind(at.node.text); kind.ok()) return *kind;
    (void)v_.read_word(at, key);  // says what is wrong
    return std::nullopt;
  }

  void read_orders(const Key& key, At at) {
    static constexpr Key kOrder{.name = "", .shape = Shape::kOpOrders, .meaning = ""};
    v_.each_entry(at, key, [&](At value, const std::string& op, base::YamlMark mark) {
      std::vector<std::string> order;
      v_.each_item(value, kOrder, [&](At item) {
        if (item.node.kind != YamlNode::Kind::kScalar)
          return v_.wrong(item, "found " + shown(item.node),
                          "default, vendor, reference, vendor:NAME or impl:ID");
        const auto token = read_token(item.node.text);
        if (!token.ok())
          return v_.problem(Severity::kError, item.node.at, to_string(item.path),
                            "found " + shown(item.node), std::string(token.status().message()));
        if (std::find(order.begin(), order.end(), *token) != order.end())
          return v_.wrong(item, *token + " is there already", "each token once");
        order.push_back(*token);
      });
      remember("policy.per_op", op, v_.place(mark));
      if (is_op_key(value, op, mark, false) && !order.empty())
        to_.policy.per_op.emplace(op, std::move(order));
    });
  }

  void read_backends(const Key& key, At at) {
    static constexpr Key kOne{.name = "", .shape = Shape::kSwitch, .meaning = ""};
    v_.each_entry(at, key, [&](At value, const std::string& name, base::YamlMark mark) {
      const auto on = v_.read_switch(value, kOne);
      remember("policy.backends", name, v_.place(mark));
      if (!is_vendor_name(name))
        v_.problem(Severity::kError, mark, to_string(value.path), "found " + shown(name, true),
                   "expected the name of a backend");
      else if (on)
        to_.policy.backends.emplace(name, *on);
    });
  }

  void read_settings(const Key& key, At at) {
    v_.each_key(at, key.inner, key, [&](const Key& k, At value) {
      if (k.shape == Shape::kMap)
        v_.each_key(value, k.inner, k, [&](const Key& inner, At v) { read_setting(inner, v); });
      else if (k.shape == Shape::kOpModes)
        read_modes(k, value);
      else
        read_setting(k, value);
    });
  }

  void read_modes(const Key& key, At at) {
    static constexpr Key kOne{.name = "", .shape = Shape::kMode, .meaning = ""};
    v_.each_entry(at, key, [&](At value, const std::string& op, base::YamlMark mark) {
      auto mode = v_.read_name(value, kOne, is_mode);
      remember("settings.modes", op, v_.place(value.node.at));
      if (is_op_key(value, op, mark, true) && mode) to_.settings.modes.emplace(op, *mode);
    });
  }

  void read_setting(const Key& key, At at) {
    remember(to_string(at.path), "", v_.place(at.node.at));
    std::visit([&](auto* to) { read_into(*to, key, at); }, key.at(to_.settings));
  }
  void read_into(std::optional<bool>& to, const Key& k, At at) { to = v_.read_switch(at, k); }
  void read_into(std::optional<int64_t>& to, const Key& k, At at) { to = v_.read_whole(at, k); }
  void read_into(std::optional<double>& to, const Key& k, At at) { to = v_.read_number(at, k); }
  void read_into(std::optional<std::chrono::nanoseconds>& to, const Key& k, At at) {
    to = v_.read_duration(at, k);
  }
  void read_into(std::optional<std::string>& to, const Key& k, At at) {
    to = k.shape == Shape::kPath ? v_.read_path(at, k) : v_.read_name(at, k, is_mode);
  }
  void read_into(std::optional<std::vector<std::string>>& to, const Key& k, At at) {
    to = v_.read_paths(at, k);
  }
  template <class Enum>
  std::enable_if_t<std::is_enum_v<Enum>> read_into(std::optional<Enum>& to, const Key& k, At at) {
    if (const auto word = v_.read_word(at, k)) to = static_cast<Enum>(*word);
  }

  ConfigValues& v_;
  std::vector<Include>& includes_;
  Config to_;
};

}  // namespace

Config read_tree(const YamlNode& root, bool main, ConfigValues& values,
                 std::vector<Include>& includes) {
  return TreeReader(values, includes).read(root, main);
}

}  // namespace yard::policy
