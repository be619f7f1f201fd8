// SPDX-License-Identifier: Apache-2.0
#include "policy/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "policy/config_files.h"
#include "policy/config_rows.h"
#include "policy/process.h"

namespace yard::policy {

namespace {

constexpr const char* kHoldsLater = "it holds once there is one";
constexpr const char* kNoFallback = "no call falls back to it";

// How to treat an unknown name. kLater is a warning, or an error if a known name is similar.
enum class Unknown : uint8_t { kError, kLater, kFine };
Unknown unless(bool optional, Unknown otherwise = Unknown::kError) {
  return optional ? Unknown::kFine : otherwise;
}

class Checker {
 public:
  Checker(const Config& config, const Known& known)
      : config_(config), known_(known), ops_(base::keys(known.ops)), to_{config} {
    report_.rules.resize(config.dispatch_rules.size());
    report_.scores.resize(config.score.size());
    for (const Names& more : {known.labels, config.settings.labels})
      labels_.insert(labels_.end(), more.begin(), more.end());
  }

  std::vector<ConfigProblem> check(RulesByOp* compiled) {
    Config meant = config_;
    for (DispatchRule& r : meant.dispatch_rules) r.operation = meant_op(r);
    for (ScoreRule& r : meant.score) r.operation = meant_op(r);
    RulesByOp rules;
    for (const auto& [name, op] : known_.ops) {
      if (op.program == nullptr) continue;
      OpRules of_op = compile_rules(meant, *op.program, &report_);
      auto& to = rules[op.program];
      if (!of_op.empty()) to = std::make_shared<const OpRules>(std::move(of_op));
    }
    apply(rules);
    check_settings(known_, to_);
    check_sections();
    check_conflicts(applied_, to_);
    if (compiled != nullptr) *compiled = std::move(rules);
    return std::move(to_.problems);
  }

 private:
  void apply(const RulesByOp& rules) {
    process_.file = std::make_shared<FileRules>(with_sections(config_), rules);
    process_.in_force = process_.file->said, process_.mapped = known_.mapped;
    const auto& allows = process_.in_force.allow_kernels;
    if (allows && allows->empty()) return;  // the reader reports it
    for (const auto& [name, op] : known_.ops) {
      if (op.program == nullptr) continue;
      std::vector<KernelFacts> kernels;
      for (const auto& [id, facts] : op.kernels) kernels.push_back(facts);
      Clauses clauses(sources_for(process_, op.program), name, kernels);
      applied_.push_back({name, std::move(kernels), std::move(clauses)});
    }
  }

  // ---- Names ----

  const Names& matching(const std::string& pattern) {
    const auto [it, is_new] = matching_.try_emplace(pattern);
    if (is_new)
      for (const std::string& op : ops_)
        if (glob_matches(pattern, op)) it->second.push_back(op);
    return it->second;
  }

  void unknown_name(Unknown unknown, const std::string& name, const Names& known, const Where& at,
                    std::string found, const char* expected, const char* later) {
    if (unknown == Unknown::kFine) return;
    const std::string_view near = near_miss(name, known);
    if (unknown == Unknown::kError)
      to_.error(at, std::move(found), advice(name, known, expected));
    else if (!near.empty())
      to_.error(at, std::move(found), fmt::format("did you mean '{}'?", near));
    else
      to_.warn(at, std::move(found) + " yet", later);
  }

  // Returns false, after adding a problem, if no op has the name.
  bool check_op(const std::string& op, Unknown unknown, const Where& at, const char* later = "") {
    if (!matching(op).empty()) return true;
    if (has_wildcard(op))
      to_.warn(at, fmt::format("no op matches '{}'", op), "");
    else
      unknown_name(unknown, op, ops_, at, fmt::format("no op is called '{}'", op),
                   "expected the name of an op", later);
    return false;
  }

  // Warns if the ops of a pattern have kernels that a statement means, and none of them may run.
  void check_runs(const std::string& ops, const std::function<bool(const KernelFacts&)>& means,
                  const std::string& text, const Where& at, const char* barred) {
    std::string why;
    for (const OpUnderConfig& op : applied_) {
      if (!glob_matches(ops, op.name)) continue;
      const Exclusion e = exclusion(op, means);
      if (e.any && e.by == nullptr) return;
      if (e.any && why.empty()) why = statement(op, *e.by);
    }
    if (!why.empty()) to_.warn(at, fmt::format("{} is excluded by {}", text, why), barred);
  }

  // Checks that one of the ops (or of all, if `ops` is empty) has such a kernel, and warns with
  // `barred` if the kernel may not run.
  void check_kernel(const std::string& ops, const std::string& kernel, Unknown unknown,
                    const Where& at, const char* later = "", const char* barred = nullptr) {
    const bool any = ops.empty();
    const Names& of = any ? ops_ : matching(ops);
    const auto means = [&](const KernelFacts& k) { return glob_matches(kernel, k.id); };
    if (barred != nullptr) check_runs(any ? "*" : ops, means, kernel, at, barred);
    for (const std::string& op : of)
      for (const auto& [id, facts] : known_.ops.at(op).kernels)
        if (means(facts)) return;
    const std::string whose = any                 ? "no op has a kernel"
                              : has_wildcard(ops) ? "no op that matches '" + ops + "' has a kernel"
                                                  : ops + " has no kernel";
    if (has_wildcard(kernel))
      return to_.warn(at, fmt::format("{} that matches '{}'", whose, kernel), "");
    std::set<std::string> there;
    for (const std::string& op : of) {
      const auto& [program, kernels] = known_.ops.at(op);
      // The plugin that announces the op may bring the kernel.
      if (!any && unknown == Unknown::kLater && program == nullptr) return;
      for (const auto& [id, facts] : kernels) there.insert(id);
    }
    unknown_name(unknown, kernel, {there.begin(), there.end()}, at,
                 fmt::format("{} called '{}'", whose, kernel),
                 "expected the id of a kernel, or optional: true", later);
  }

  void check_list(const std::string& ops, const std::vector<KernelRef>& refs, Unknown unknown,
                  const Path& path, const char* barred = nullptr) {
    for (size_t i = 0; i < refs.size(); ++i)
      check_kernel(ops, refs[i].id, unless(refs[i].optional, unknown), {refs[i].at, {&path, {}, i}},
                   kHoldsLater, barred);
  }

  void check_of_op(const Path& path, const std::string& op, const KernelRef& ref, Unknown unknown,
                   const char* barred) {
    unknown = unless(ref.optional, unknown);
    if (check_op(op, unknown, {ref.at, path}, "the lock holds once there is one"))
      check_kernel(op, ref.id, unknown, {ref.at, path}, "calls fail until there is one", barred);
  }

  void check_vendor(const std::string& name, const Where& at) {
    if (!base::contains(known_.vendors, name))
      to_.warn(at, fmt::format("no kernel has the vendor '{}'", name),
               suggestion(name, known_.vendors));
  }

  // `mode` must be part of the Config of process_.
  void check_mode(const std::string& mode, const Where& at) {
    Names modes = mode_names(nullptr);
    modes.insert(modes.end(), known_.modes.begin(), known_.modes.end());
    if (!base::contains(modes, mode))
      to_.error(at, fmt::format("no mode is called '{}'", mode),
                advice(mode, modes, "expected a mode"));
    // Usually some ops are not mapped in mode static, so this warns only if none is.
    bool unmapped = false;
    for (const OpUnderConfig& op : applied_) {
      if (mode_of(process_.file->config, op.name) != &mode) continue;
      if (!op.clauses.find(Clause::Act::kStatic) || !op.clauses.mapped().empty()) return;
      unmapped = true;
    }
    if (unmapped)
      to_.warn(at, "no kernel may run, because static_kernel_map has no entry",
               "expected one, or settings.mode_fallback");
  }

  // ---- Sections ----

  // Denies, allows and locks may name kernels that come later. Chains and static maps may not.
  void check_sections() {
    const Config& c = process_.file->config;
    const auto section = [](const char* name) { return Path{&kTop, name}; };
    const Path rules = section("dispatch_rules"), locks = section("kernel_locks"),
               chains = section("fallback_chains"), map = section("static_kernel_map"),
               scores = section("score"), canaries = section("canary"),
               modes = section("settings.modes"), labels = section("rollout.labels");
    check_list("", c.defaults.fallback_policy, Unknown::kError, section("defaults.fallback_policy"),
               kNoFallback);
    for (size_t i = 0; i < c.dispatch_rules.size(); ++i)
      check_rule(c.dispatch_rules[i], report_.rules[i], {&rules, {}, i});
    for (const auto& [op, ref] : c.kernel_locks)
      check_of_op({&locks, op}, op, ref, Unknown::kLater, "calls would have no kernel");
    check_list("", c.kernel_denies, Unknown::kLater, section("kernel_denies"));
    if (c.kernel_allows)
      check_list("", *c.kernel_allows, Unknown::kLater, section("kernel_allows"));
    for (const auto& [op, chain] : c.fallback_chains) {
      const Path of_op{&chains, op};
      for (size_t i = 0; i < chain.size(); ++i)
        check_of_op({&of_op, {}, i}, op, chain[i], Unknown::kError, kNoFallback);
    }
    check_policy(c.policy);
    for (const auto& [op, ref] : c.static_kernel_map)
      check_of_op({&map, op}, op, ref, Unknown::kError, "the map has no effect");
    for (size_t i = 0; i < c.score.size(); ++i)
      check_rule(c.score[i], report_.scores[i], {&scores, {}, i});
    check_functions();
    for (size_t i = 0; i < c.canary.size(); ++i) check_canary(c.canary[i], {&canaries, {}, i});
    if (const auto& mode = c.settings.mode) check_mode(*mode, to_.where(section("settings.mode")));
    for (const auto& [op, mode] : c.settings.modes) {
      check_op(op, Unknown::kError, to_.where_entry(modes, op));
      check_mode(mode, to_.where_entry(modes, op));
    }
    if (c.rollout)
      for (const auto& [name, value] : c.rollout->labels)
        check_label(name, {c.rollout->at, {&labels, name}});
  }

  void check_policy(const Policy& p) {
    const auto vendors = [&](const Names& names, const char* section) {
      const Path path{&kTop, section};
      for (size_t i = 0; i < names.size(); ++i)
        check_vendor(names[i], {place_of(config_, section, names[i]), {&path, {}, i}});
    };
    const Path orders{&kTop, "policy.per_op"}, backends{&kTop, "policy.backends"},
        transforms{&kTop, "policy.transforms"};
    for (const auto& [op, order] : p.per_op) {
      const Where at = to_.where_entry(orders, op);
      const size_t before = to_.problems.size();
      if (!check_op(op, Unknown::kError, at)) continue;
      for (size_t i = 0; i < order.size(); ++i) {
        const std::string name = order[i].substr(order[i].find(':') + 1);
        const Where token{at.at, {&at.path, {}, i}};
        if (order[i].starts_with("impl:")) check_kernel(op, name, Unknown::kError, token);
        if (order[i].starts_with("vendor:")) check_vendor(name, token);
      }
      const Clause clause{Clause::Act::kOrder, order};
      const auto listed = [&](const KernelFacts& k) { return !clause.excludes(k); };
      check_runs(op, listed, fmt::format("{}", fmt::join(order, ", ")), at,
                 "the order is left without a kernel");
      const auto& [program, kernels] = known_.ops.at(op);
      const bool fine = to_.problems.size() == before && !order.empty() && program != nullptr;
      if (fine && std::ranges::none_of(kernels, [&](auto& k) { return listed(k.second); }))
        to_.warn(at, fmt::format("no kernel of {} is in the order", op), "its calls fail");
    }
    if (p.allow_vendors) vendors(*p.allow_vendors, "policy.allow_vendors");
    vendors(p.deny_vendors, "policy.deny_vendors");
    for (const auto& [name, on] : p.backends)
      if (!base::contains(known_.backends, name))
        unknown_name(Unknown::kLater, name, known_.backends, to_.where_entry(backends, name),
                     fmt::format("no backend is called '{}'", name), "", kHoldsLater);
    for (const auto& [op, on] : p.transforms)
      check_op(op, Unknown::kLater, to_.where_entry(transforms, op));
  }

  // Functions and backends may be registered later, so unknown names are warnings.
  void check_functions() {
    Names names = known_.functions;
    for (const std::string& f : known_.functions) names.push_back(f.substr(0, f.find('/')));
    const Path functions{&kTop, "functions"};
    for (const auto& [key, rule] : config_.functions) {
      const Where at{rule.at, {&functions, key}};
      const auto matches = [&key = key](const std::string& name) {
        return glob_matches(key, name);
      };
      // The command declares no functions.
      if (!names.empty() && std::ranges::none_of(names, matches))
        to_.warn(at, fmt::format("no function matches '{}' now", key), suggestion(key, names));
      for (const Names& listed : {rule.backends.value_or(Names()), rule.deny})
        for (const std::string& b : listed)
          if (const std::string near = suggestion(b, known_.backends);
              !near.empty() && !base::contains(known_.backends, b))
            to_.warn(at, fmt::format("no backend is called '{}' now", b), near);
    }
  }

  void check_canary(const CanaryRule& r, const Path& path) {
    if (r.op.empty()) {
      if (r.at.line == 0) to_.error({r.at, {&path, "op"}}, "missing", "expected the name of an op");
      return;
    }
    const Unknown unknown = unless(r.optional);
    if (!check_op(r.op, unknown, {r.op_at, {&path, "op"}})) return;
    if (r.kernel != "*")
      check_kernel(r.op, r.kernel, unknown, {r.kernel_at, {&path, "kernel"}}, "",
                   "the canary checks no call");
    if (r.check != CanaryRule::Check::kValues) return;
    const Where against{r.against_at.line > 0 ? r.against_at : r.at, {&path, "against"}};
    if (r.against != "reference" && !has_wildcard(r.against))
      check_kernel(r.op, r.against, unknown, against, "", "expected a kernel that may run");
    const KernelFacts* own = nullptr;
    for (const OpUnderConfig& op : applied_) {
      const auto references = std::ranges::count(op.kernels, Kind::kReference, &KernelFacts::kind);
      for (const KernelFacts& k : op.kernels) {
        if (!glob_matches(r.op, op.name) || !glob_matches(r.kernel, k.id)) continue;
        own = &k;
        if (r.against == "reference" ? k.kind != Kind::kReference || references > 1
                                     : k.id != r.against)
          return;
      }
    }
    if (own != nullptr)
      to_.warn(against, fmt::format("{} would be compared with itself", own->id),
               "expected another kernel");
  }

  void check_label(std::string_view name, const Where& at) {
    if (!base::contains(labels_, name))
      to_.warn(at, fmt::format("no label is called '{}'", name),
               suggestion(name, labels_, "expected a label that settings.labels lists"));
  }

  // ---- Rules ----

  // A rule that only excludes kernels may name an op that is registered later.
  template <class Rule>
  static Unknown unknown_op(const Rule& r) {
    return unless(r.optional, r.kernel.empty() ? Unknown::kLater : Unknown::kError);
  }
  // Returns the rule's op, or the op that was probably meant, so that the rest can be checked.
  template <class Rule>
  std::string meant_op(const Rule& r) {
    const bool unknown = unknown_op(r) == Unknown::kError && !r.operation.empty() &&
                         !has_wildcard(r.operation) && !known_.ops.contains(r.operation);
    const std::string_view near = unknown ? base::closest(r.operation, ops_) : std::string_view();
    return near.empty() ? r.operation : std::string(near);
  }

  template <class Rule>
  void check_rule(const Rule& r, const std::vector<ConditionReport>& conditions, const Path& path) {
    bool acts = !r.kernel.empty();
    if constexpr (std::is_same_v<Rule, DispatchRule>) acts |= !r.deny.empty() || r.allow;
    // The reader has reported it in files.
    if (r.operation.empty() || !acts) {
      if (r.at.line == 0) to_.error({r.at, path}, "an op or a kernel is missing", "expected both");
      return;
    }
    if (r.conditions.size() > kMostConditions)
      return to_.error({r.at, {&path, "conditions"}},
                       fmt::format("found {} conditions", r.conditions.size()),
                       fmt::format("expected at most {}", kMostConditions));
    const Path keys{&path, "conditions"};
    for (const Condition& c : r.conditions)
      if (const std::string_view label = own_label(c.key); !label.empty())
        check_label(label, {c.at, {&keys, c.key}});
    const Unknown unknown = unknown_op(r);
    const std::string op = meant_op(r);
    if (!check_op(r.operation, unknown, {r.operation_at, {&path, "operation"}},
                  "the rule holds once there is one") &&
        op == r.operation)
      return;
    if (!r.kernel.empty()) check_kernel(op, r.kernel, unknown, {r.kernel_at, {&path, "kernel"}});
    if constexpr (std::is_same_v<Rule, DispatchRule>) {
      const Unknown listed = unless(r.optional, Unknown::kLater);
      check_list(op, r.deny, listed, {&path, "deny"});
      if (r.allow) check_list(op, *r.allow, listed, {&path, "allow"});
    }
    check_conditions(op, r.conditions, conditions, keys);
  }

  // A condition must fit every op that has all fields of the rule. If a field is unknown, the other
  // conditions must fit the ops that have their fields. Fields of announced ops are not known.
  void check_conditions(const std::string& ops, const std::vector<Condition>& conditions,
                        const std::vector<ConditionReport>& reports, const Path& path) {
    const bool announced = std::ranges::any_of(
        matching(ops), [&](auto& op) { return known_.ops.at(op).program == nullptr; });
    const bool some_unknown =
        !announced && std::ranges::find(reports, false, &ConditionReport::known) != reports.end();
    for (size_t i = 0; i < reports.size(); ++i) {
      const Where at{conditions[i].at, {&path, conditions[i].key}};
      const ConditionReport& report = reports[i];
      const auto& wrong = some_unknown && !report.wrong ? report.elsewhere : report.wrong;
      if (report.known || announced) {
        if (wrong) to_.error(at, wrong->found, wrong->right);
        continue;
      }
      std::set<std::string> fields;
      for (const std::string& op : matching(ops))
        for (std::string& name : OpFields(*known_.ops.at(op).program).names())
          fields.insert(std::move(name));
      to_.error(at,
                has_wildcard(ops) ? "no op that matches '" + ops + "' has this field"
                                  : "calls of " + ops + " have no such field",
                field_advice(conditions[i].key, {fields.begin(), fields.end()}));
    }
  }

  const Config& config_;
  const Known& known_;
  const Names ops_;
  Names labels_{std::begin(kPlainLabels), std::end(kPlainLabels)};
  std::map<std::string, Names> matching_;  // by pattern
  RuleReport report_;
  ProcessPolicy process_;
  OpsUnderConfig applied_;
  Findings to_;
};

}  // namespace

std::vector<ConfigProblem> check_config(const Config& config, const Known& known,
                                        RulesByOp* compiled) {
  return Checker(config, known).check(compiled);
}

void check_reading(ConfigReading& reading, const Known& known, RulesByOp* compiled) {
  add_problems(reading, check_config(reading.config, known, compiled));
}

}  // namespace yard::policy
