// SPDX-License-Identifier: Apache-2.0
#include "policy/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/lists.h"
#include "base/text.h"
#include "policy/config_files.h"
#include "policy/config_keys.h"
#include "policy/process.h"

namespace yard::policy {

void Findings::add(Severity severity, const Where& where, std::string found, std::string right) {
  const auto& [at, path] = where;
  const Names& files = config.sources.files;
  problems.push_back({severity, at.file < files.size() ? files[at.file] : "configuration", at.line,
                      at.column, to_string(path), std::move(found), std::move(right)});
}

namespace {

constexpr const char* kHoldsLater = "it holds once there is one";

// "did you mean 'x'?", or "expected a, b or c", or `otherwise`.
std::string advice(std::string_view word, const Names& known, const std::string& otherwise) {
  const bool few = !known.empty() && known.size() <= 12;
  return suggestion(word, known, few ? "expected " + base::one_of(known) : otherwise);
}

// The known name that was probably meant: a few letters differ. Names that differ in digits alone are two names.
std::string_view near_miss(std::string_view word, const Names& known) {
  const auto without_digits = [](std::string text) {
    std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
    return text;
  };
  std::string_view found;
  size_t best = SIZE_MAX;
  for (const std::string& name : known) {
    // Parts such as `vendor.` that both have do not make them similar.
    std::string_view a = word, b = name;
    for (size_t dot = a.find('.'); dot != a.npos && a.substr(0, dot + 1) == b.substr(0, dot + 1);
         dot = a.find('.'))
      a.remove_prefix(dot + 1), b.remove_prefix(dot + 1);
    const size_t d = base::edit_distance(a, b);
    if (d > 0 && without_digits(std::string(a)) == without_digits(std::string(b))) return {};
    if (d == 0 || d >= best || d > std::max<size_t>(1, a.size() / 3) ||
        a.substr(0, 1) != b.substr(0, 1))
      continue;
    best = d, found = name;
  }
  return found;
}

std::string field_advice(const std::string& key, const Names& fields) {
  Names plain, keys = fields;
  for (const std::string& field : fields) {
    if (!base::contains(field, '.')) plain.push_back(field);
    for (const OperatorRow& row : kOperators) keys.push_back(field + std::string(row.suffix));
  }
  const std::string_view field = field_part(key);
  return suggestion(key, keys,
                    fmt::format("expected {}, or a label as label.{}", base::one_of(plain),
                                base::is_bare_word(field) ? field.substr(0, 80) : "NAME"));
}

// What an unknown name is. kLater is a warning, or an error for a near miss.
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
  }

  std::vector<ConfigProblem> check(RulesByOp* compiled) {
    for (const auto& [name, op] : known_.ops) {
      if (op.program == nullptr) continue;
      OpRules rules = compile_rules(config_, *op.program, &report_);
      add_effects(rules, op, report_);
      if (compiled == nullptr) continue;
      std::shared_ptr<const OpRules>& of_op = (*compiled)[op.program];
      if (!rules.empty()) of_op = std::make_shared<const OpRules>(std::move(rules));
    }
    check_set(config_, {}, kTop);
    check_sections();
    check_conflicts(known_, to_);
    return std::move(to_.problems);
  }

 private:
  // For values and entries of maps that have no place of their own.
  Where where(const Path& path) const { return {place_of(config_, to_string(path)), path}; }
  Where where_entry(const Path& map, const std::string& name) const {
    return {place_of(config_, to_string(map), name), {&map, name}};
  }

  // ---- Numbers and words that were set in code: the reader has checked those of files ----

  template <class M>
  void check_set(const M& value, const Form& form, const Path& path) {
    if constexpr (IsOptional<M>) {
      if (value) check_set(*value, form, path);
    } else if constexpr (HasFields<M>) {
      check_rows(value, kFields<M>, path);
    } else if constexpr (IsList<M> && HasFields<Part<M>>) {
      for (size_t i = 0; i < value.size(); ++i) check_set(value[i], form, Path{&path, {}, i});
    } else if constexpr (std::is_same_v<M, std::chrono::nanoseconds>) {
      check_range(static_cast<double>(value.count()) / 1e9, "s", form, path);
    } else if constexpr (std::is_arithmetic_v<M> && !std::is_same_v<M, bool>) {
      check_range(static_cast<double>(value), "", form, path);
    } else if constexpr (std::is_same_v<M, Names>) {
      const Names words(form.words.begin(), form.words.end());
      for (size_t i = 0; i < value.size() && !words.empty(); ++i)
        if (!base::contains(words, value[i]))
          to_.error({place_of(config_, to_string(path)), {&path, {}, i}},
                    fmt::format("found '{}'", value[i]),
                    advice(value[i], words, "expected " + base::one_of(words)));
    }
  }
  template <class T, class Rows>
  void check_rows(const T& value, const Rows& rows, const Path& path) {
    visit_rows(rows, [&](const auto& row) {
      const Path inner{&path, row.name};
      if constexpr (requires { row.fields; })
        check_rows(value, row.fields, inner);
      else if constexpr (requires { row.member; })
        check_set(value.*row.member, row.form, inner);
    });
  }
  void check_range(double number, const char* unit, const Form& form, const Path& path) {
    if (number >= form.least && number <= form.most) return;
    to_.error(where(path), fmt::format("found {}{}", number, unit), "expected " + wanted(form));
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

  // Returns false, after adding a problem, if there is no such op. `later` says what follows until there is one.
  bool check_op(const std::string& op, Unknown unknown, const Where& at, const char* later = "") {
    if (!matching(op).empty()) return true;
    if (has_wildcard(op))
      to_.warn(at, fmt::format("no op matches '{}'", op), "");
    else
      unknown_name(unknown, op, ops_, at, fmt::format("no op is called '{}'", op),
                   "expected the name of an op", later);
    return false;
  }

  // Checks that one of the ops has such a kernel. If `ops` is empty, any op may have it.
  void check_kernel(const std::string& ops, const std::string& kernel, Unknown unknown,
                    const Where& at, const char* later = "") {
    const bool any = ops.empty();
    const Names& of = any ? ops_ : matching(ops);
    for (const std::string& op : of)
      for (const auto& [id, facts] : known_.ops.at(op).kernels)
        if (glob_matches(kernel, id)) return;
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
                  const Path& path) {
    for (size_t i = 0; i < refs.size(); ++i)
      check_kernel(ops, refs[i].id, unless(refs[i].optional, unknown), {refs[i].at, {&path, {}, i}},
                   kHoldsLater);
  }

  void check_of_op(const Path& path, const std::string& op, const KernelRef& ref, Unknown unknown) {
    unknown = unless(ref.optional, unknown);
    if (check_op(op, unknown, {ref.at, path}, "the lock holds once there is one"))
      check_kernel(op, ref.id, unknown, {ref.at, path}, "calls fail until there is one");
  }

  // A plugin may bring kernels of a vendor at any time.
  void check_vendor(const std::string& name, const Where& at) {
    if (!base::contains(known_.vendors, name))
      to_.warn(at, fmt::format("no kernel has the vendor '{}'", name),
               suggestion(name, known_.vendors));
  }

  void check_mode(const std::string& mode, const Where& at) {
    Names modes = mode_names(nullptr);
    modes.insert(modes.end(), known_.modes.begin(), known_.modes.end());
    if (!base::contains(modes, mode))
      to_.error(at, fmt::format("no mode is called '{}'", mode),
                advice(mode, modes, "expected a mode"));
  }

  // ---- Sections ----

  // Denies, allows and locks may name what is not registered yet; chains and static maps may not.
  void check_sections() {
    const Config& c = config_;
    const auto section = [](const char* name) { return Path{&kTop, name}; };
    const Path rules = section("dispatch_rules"), locks = section("kernel_locks"),
               chains = section("fallback_chains"), map = section("static_kernel_map"),
               scores = section("score"), canaries = section("canary"),
               modes = section("settings.modes");
    check_list("", c.defaults.fallback_policy, Unknown::kError,
               section("defaults.fallback_policy"));
    for (size_t i = 0; i < c.dispatch_rules.size(); ++i)
      check_rule(c.dispatch_rules[i], report_.rules[i], {&rules, {}, i});
    const KernelSections kernels = kernel_sections(c);
    for (const auto& [op, ref] : kernels.locks) check_of_op({&locks, op}, op, ref, Unknown::kLater);
    check_list("", kernels.denies, Unknown::kLater, section("kernel_denies"));
    if (kernels.allows) check_list("", *kernels.allows, Unknown::kLater, section("kernel_allows"));
    for (const auto& [op, chain] : c.fallback_chains) {
      const Path of_op{&chains, op};
      for (size_t i = 0; i < chain.size(); ++i)
        check_of_op({&of_op, {}, i}, op, chain[i], Unknown::kError);
    }
    check_policy(c.policy);
    for (const auto& [op, ref] : c.static_kernel_map)
      check_of_op({&map, op}, op, ref, Unknown::kError);
    for (size_t i = 0; i < c.score.size(); ++i)
      check_rule(c.score[i], report_.scores[i], {&scores, {}, i});
    check_functions();
    for (size_t i = 0; i < c.canary.size(); ++i) check_canary(c.canary[i], {&canaries, {}, i});
    if (c.settings.mode) check_mode(*c.settings.mode, where(section("settings.mode")));
    for (const auto& [op, mode] : c.settings.modes) {
      check_op(op, Unknown::kError, where_entry(modes, op));
      check_mode(mode, where_entry(modes, op));
    }
    check_breaker();
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
      const Where at = where_entry(orders, op);
      if (!check_op(op, Unknown::kError, at)) continue;
      for (size_t i = 0; i < order.size(); ++i) {
        const std::string name = order[i].substr(order[i].find(':') + 1);
        const Where token{at.at, {&at.path, {}, i}};
        if (order[i].starts_with("impl:")) check_kernel(op, name, Unknown::kError, token);
        if (order[i].starts_with("vendor:")) check_vendor(name, token);
      }
    }
    if (p.allow_vendors) vendors(*p.allow_vendors, "policy.allow_vendors");
    vendors(p.deny_vendors, "policy.deny_vendors");
    // A plugin may bring a backend or an op at any time.
    for (const auto& [name, on] : p.backends)
      if (!base::contains(known_.backends, name))
        unknown_name(Unknown::kLater, name, known_.backends, where_entry(backends, name),
                     fmt::format("no backend is called '{}'", name), "", kHoldsLater);
    for (const auto& [op, on] : p.transforms)
      check_op(op, Unknown::kLater, where_entry(transforms, op));
  }

  // Functions and backends may be registered later: unknown names are warnings.
  void check_functions() {
    Names names = known_.functions;
    for (const std::string& f : known_.functions) names.push_back(f.substr(0, f.find('/')));
    const Path functions{&kTop, "functions"};
    for (const auto& [key, rule] : config_.functions) {
      const Where at{rule.at, {&functions, key}};
      // Where none are declared at all, as in the command, nothing can be concluded.
      const auto matches = [&key = key](const std::string& name) {
        return glob_matches(key, name);
      };
      if (!names.empty() && std::ranges::none_of(names, matches))
        to_.warn(at, fmt::format("no function matches '{}' now", key), suggestion(key, names));
      Names listed = rule.backends.value_or(Names());
      listed.insert(listed.end(), rule.deny.begin(), rule.deny.end());
      for (const std::string& b : listed) {
        const std::string near = suggestion(b, known_.backends);
        if (!near.empty() && !base::contains(known_.backends, b))
          to_.warn(at, fmt::format("no backend is called '{}' now", b), near);
      }
    }
  }

  void check_canary(const CanaryRule& r, const Path& path) {
    if (r.op.empty()) {
      // In files the reader has reported it.
      if (r.at.line == 0) to_.error({r.at, {&path, "op"}}, "missing", "expected the name of an op");
      return;
    }
    const Unknown unknown = unless(r.optional);
    if (!check_op(r.op, unknown, {r.op_at, {&path, "op"}})) return;
    if (r.kernel != "*") check_kernel(r.op, r.kernel, unknown, {r.kernel_at, {&path, "kernel"}});
    if (r.against != "reference" && !has_wildcard(r.against))
      check_kernel(r.op, r.against, unknown, {r.against_at, {&path, "against"}});
  }

  void check_breaker() {
    const std::string path = "settings.breaker";
    const auto is_of_breaker = [&](const ConfigProblem& p) { return p.path.starts_with(path); };
    if (std::ranges::any_of(to_.problems, is_of_breaker)) return;
    if (const Status status = validate(breaker_of(config_)); !status.ok()) {
      const bool cap = config_.settings.breaker.cooldown_cap.has_value();
      to_.error({place_of(config_, path + (cap ? ".cooldown_cap" : ".cooldown")), {&kTop, path}},
                std::string(status.message()), "");
    }
  }

  // ---- Rules ----

  template <class Rule>
  void check_rule(const Rule& r, const RuleEffect& effect, const Path& path) {
    const bool chooses = !r.kernel.empty();
    bool acts = chooses;
    if constexpr (std::is_same_v<Rule, DispatchRule>) acts |= !r.deny.empty() || r.allow;
    // In files the reader has reported it.
    if (r.operation.empty() || !acts) {
      if (r.at.line == 0) to_.error({r.at, path}, "an op or a kernel is missing", "expected both");
      return;
    }
    // What only excludes kernels holds once there is such an op.
    const Unknown unknown = unless(r.optional, chooses ? Unknown::kError : Unknown::kLater);
    std::string op = r.operation;
    if (!check_op(op, unknown, {r.operation_at, {&path, "operation"}},
                  "the rule holds once there is one")) {
      // The rest is checked against the op that was probably meant.
      op = base::closest(op, ops_);
      if (!chooses || r.optional || has_wildcard(r.operation) || op.empty()) return;
    }
    if (chooses) check_kernel(op, r.kernel, unknown, {r.kernel_at, {&path, "kernel"}});
    if constexpr (std::is_same_v<Rule, DispatchRule>) {
      if (op == r.operation) {
        check_list(op, r.deny, unless(r.optional, Unknown::kLater), {&path, "deny"});
        if (r.allow)
          check_list(op, *r.allow, unless(r.optional, Unknown::kLater), {&path, "allow"});
      }
    }
    // Conditions of a rule that compiled for every op that has its fields are valid.
    if (!effect.applies || effect.invalid)
      check_conditions(op, r.conditions, {&path, "conditions"});
    if (effect.ops == 0) return;
    if (effect.impossible == effect.ops) {
      Names keys;
      for (const size_t i : effect.conditions) keys.push_back(r.conditions[i].key);
      to_.warn({r.at, {&path, "conditions"}},
               fmt::format("no call can pass {}", fmt::join(keys, " and ")),
               "the rule has no effect");
    } else if (effect.impossible + effect.shadowed == effect.ops) {
      to_.warn(
          {r.at, path},
          fmt::format("dispatch_rules[{}] comes first for all of its calls", effect.by),
          "expected a higher priority, other conditions, or fallback_chains for a second choice");
    }
  }

  // A condition must fit every op that has all fields of the rule. If no op has one of the fields, the other conditions
  // must fit the ops that have theirs.
  void check_conditions(const std::string& pattern, const std::vector<Condition>& conditions,
                        const Path& path) {
    const Names& ops = matching(pattern);
    Wrong wrong;
    const auto lacks = [&](const std::string& op) {
      return [&](const Condition& c) { return fit(op, c, wrong) == Fit::kNoField; };
    };
    const auto nowhere = [&](const Condition& c) {
      return std::ranges::all_of(ops, [&](auto& op) { return lacks(op)(c); });
    };
    const bool some_nowhere = std::ranges::any_of(conditions, nowhere);
    for (const Condition& c : conditions) {
      const Where at{c.at, {&path, c.key}};
      if (nowhere(c)) {
        unknown_field(pattern, c.key, at);
        continue;
      }
      for (const std::string& op : ops) {
        if (!some_nowhere && std::ranges::any_of(conditions, lacks(op))) continue;
        if (fit(op, c, wrong) != Fit::kWrong) continue;
        to_.error(at, wrong.found, wrong.right);
        break;
      }
    }
  }

  enum class Fit : uint8_t { kNoField, kWrong, kFine };

  // Whether a condition fits calls of an op. Sets `wrong` for kWrong.
  Fit fit(const std::string& op, const Condition& c, Wrong& wrong) {
    const op::Program* program = known_.ops.at(op).program.get();
    if (program == nullptr) return Fit::kFine;  // its fields are not known
    const SplitKey key = split_key(c.key, fields_.try_emplace(op, *program).first->second);
    if (key.field == nullptr) return Fit::kNoField;
    Conditions scratch;
    return ConditionCompiler(scratch).add(*key.field, key.op, c, wrong) ? Fit::kFine : Fit::kWrong;
  }

  void unknown_field(const std::string& ops, const std::string& key, const Where& at) {
    std::set<std::string> names;
    for (const std::string& op : matching(ops))
      for (std::string& name : fields_.at(op).names()) names.insert(std::move(name));
    to_.error(at,
              has_wildcard(ops) ? "no op that matches '" + ops + "' has this field"
                                : "calls of " + ops + " have no such field",
              field_advice(key, {names.begin(), names.end()}));
  }

  const Config& config_;
  const Known& known_;
  const Names ops_;
  std::unordered_map<std::string, Names> matching_;
  std::map<std::string, OpFields> fields_;
  RuleReport report_;
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
