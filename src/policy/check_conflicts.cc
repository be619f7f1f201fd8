// SPDX-License-Identifier: Apache-2.0
// Statements of one Config that exclude each other: valid, and never what was meant.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/lists.h"
#include "base/text.h"
#include "policy/check.h"
#include "policy/fields.h"

namespace yard::policy {
namespace {

class Conflicts {
 public:
  explicit Conflicts(Checker& checker)
      : checker_(checker), config_(checker.config()), policy_(policy_of(config_)) {}

  void check() {
    check_labels();
    if (policy_.empty() && config_.dispatch_rules.empty()) return;
    if (policy_.allow_kernels && policy_.allow_kernels->empty()) return;  // the reader reports it
    check_locks();
    check_ops();
    for (size_t i = 0; i < config_.dispatch_rules.size(); ++i)
      check_rule(config_.dispatch_rules[i], fmt::format("dispatch_rules[{}]", i));
    for (const auto& [op, ref] : config_.static_kernel_map)
      if (const std::string why = excluded_by(op, ref.id); !why.empty())
        warn(ref.at, "static_kernel_map." + op, fmt::format("{} is excluded by {}", ref.id, why),
             "the map has no effect");
  }

 private:
  void warn(ConfigPlace at, std::string path, std::string found, std::string right) {
    checker_.problem(Severity::kWarning, at, std::move(path), std::move(found), std::move(right));
  }

  // The statement that excludes a kernel from all calls of an op; empty: none.
  std::string excluded_by(std::string_view op, const std::string& kernel) const {
    const auto matches = [&](const std::string& glob) { return glob_matches(glob, kernel); };
    const auto& denies = policy_.deny_kernels;
    if (const auto it = std::find_if(denies.begin(), denies.end(), matches); it != denies.end())
      return fmt::format("kernel_denies ({})", *it);
    const auto& allows = policy_.allow_kernels;
    if (allows && std::none_of(allows->begin(), allows->end(), matches)) return "kernel_allows";
    const char* other = checker_.known().excluded_by(op, kernel, policy_);
    return other != nullptr ? other : "";
  }

  // The same for all kernels of an op that match, denies before others; empty if one is not excluded, or there is none.
  std::string all_excluded_by(const std::string& op, const std::string& pattern) const {
    std::string why;
    for (const std::string& id : checker_.kernels_of(op)) {
      if (!glob_matches(pattern, id)) continue;
      std::string one = excluded_by(op, id);
      if (one.empty()) return one;
      if (why.empty() || (one.starts_with("kernel_denies") && !why.starts_with("kernel_denies")))
        why = std::move(one);
    }
    return why;
  }

  void check_locks() {
    for (const auto& [op, kernel] : policy_.locks) {
      const auto ref = config_.kernel_locks.find(op);
      const std::string why = excluded_by(op, kernel);
      if (!why.empty())
        warn(ref != config_.kernel_locks.end() ? ref->second.at : ConfigPlace(),
             "kernel_locks." + op, fmt::format("{} is excluded by {}", kernel, why),
             "calls would have no kernel");
    }
  }

  // Ops that are left without a kernel.
  void check_ops() {
    Names lost;
    std::string why;
    for (const std::string& op : checker_.ops()) {
      const std::string excluded = all_excluded_by(op, "*");
      if (excluded.empty()) continue;
      if (lost.empty()) why = excluded;
      lost.push_back(op);
    }
    if (lost.empty()) return;
    constexpr size_t kMostNamed = 3;
    const bool every = lost.size() == checker_.ops().size();
    const size_t more = lost.size() > kMostNamed ? lost.size() - kMostNamed : 0;
    lost.resize(lost.size() - more);
    const std::string ops = every ? "any op"
                            : more > 0
                                ? fmt::format("{} and {} more ops", fmt::join(lost, ", "), more)
                                : fmt::format("{}", fmt::join(lost, ", "));
    const std::string section(why.substr(0, why.find(' ')));
    warn(place_of(section, why), section, "no kernel of " + ops + " may run", "excluded by " + why);
  }

  // Of the entry that check_ops() names.
  ConfigPlace place_of(const std::string& section, const std::string& why) const {
    if (section == "kernel_allows" && config_.kernel_allows && !config_.kernel_allows->empty())
      return config_.kernel_allows->front().at;
    for (const KernelRef& ref : config_.kernel_denies)
      if (why == fmt::format("kernel_denies ({})", ref.id)) return ref.at;
    return {};
  }

  // A kernel that a rule can never choose.
  void check_rule(const DispatchRule& r, const std::string& path) {
    if (r.kernel.empty()) return;
    const auto listed = [&](const std::vector<KernelRef>& refs) {
      return std::any_of(refs.begin(), refs.end(),
                         [&](const KernelRef& k) { return glob_matches(k.id, r.kernel); });
    };
    if (listed(r.deny) || (r.allow && !has_wildcard(r.kernel) && !listed(*r.allow)))
      return warn(r.kernel_at, path + ".kernel",
                  fmt::format("{} is excluded by the rule's own {}", r.kernel,
                              listed(r.deny) ? "deny" : "allow"),
                  "the rule cannot choose it");
    std::string why;
    for (const std::string& op : checker_.matching(r.operation)) {
      const std::string* lock = find_for_op(policy_.locks, op);
      std::string here = lock != nullptr && !glob_matches(r.kernel, *lock)
                             ? fmt::format("kernel_locks ({})", *lock)
                             : all_excluded_by(op, r.kernel);
      if (here.empty()) return;
      why = std::move(here);
    }
    if (!why.empty())
      warn(r.kernel_at, path + ".kernel", fmt::format("{} is excluded by {}", r.kernel, why),
           "the rule cannot choose it");
  }

  void check_labels() {
    Names known = config_.settings.labels;
    known.insert(known.end(), plain_labels().begin(), plain_labels().end());
    for (std::string& label : checker_.known().labels()) known.push_back(std::move(label));
    const auto look = [&](const std::string& name, ConfigPlace at, const std::string& path) {
      if (base::contains(known, name)) return;
      const std::string_view near = base::closest(name, known);
      warn(at, path, fmt::format("no label is called '{}'", name),
           near.empty() ? "expected a label that settings.labels lists"
                        : fmt::format("did you mean '{}'?", near));
    };
    const auto in_rules = [&](const auto& rules, const char* section) {
      for (size_t i = 0; i < rules.size(); ++i)
        for (const Condition& c : rules[i].conditions)
          if (const std::string_view name = own_label(c.key); !name.empty())
            look(std::string(name), c.at, condition_path(fmt::format("{}[{}]", section, i), c.key));
    };
    in_rules(config_.dispatch_rules, "dispatch_rules");
    in_rules(config_.score, "score");
    if (config_.rollout)
      for (const auto& [name, value] : config_.rollout->labels)
        look(name, config_.rollout->at, "rollout.labels." + name);
  }

  Checker& checker_;
  const Config& config_;
  const Policy policy_;
};

}  // namespace

void check_conflicts(Checker& checker) { Conflicts(checker).check(); }

}  // namespace yard::policy
