// SPDX-License-Identifier: Apache-2.0
#include "policy/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_map>

#include "base/lists.h"
#include "base/text.h"
#include "policy/config_files.h"
#include "policy/config_keys.h"
#include "policy/process.h"

namespace yard::policy {
namespace {

constexpr const char* kHoldsLater = "it holds once there is one";

std::string did_you_mean(std::string_view name) { return fmt::format("did you mean '{}'?", name); }

// "did you mean 'x'?", or "expected a, b or c", or `otherwise`.
std::string advice(std::string_view word, const Names& known, const std::string& otherwise) {
  const std::string_view near = base::closest(word, known);
  if (!near.empty()) return did_you_mean(near);
  if (!known.empty() && known.size() <= 12) return "expected " + base::one_of(known);
  return otherwise;
}

void sort_names(Names& names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

bool any_matches(std::string_view glob, const Names& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return glob_matches(glob, name); });
}

// The known name that was probably meant: a few letters differ. Names that differ in digits alone are two names.
std::string_view near_miss(std::string_view word, const Names& known) {
  const auto without_digits = [](std::string_view text) {
    std::string to(text);
    std::erase_if(to, [](char c) { return c >= '0' && c <= '9'; });
    return to;
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
    if (d > 0 && without_digits(a) == without_digits(b)) return {};  // another version
    const bool near = d > 0 && d < best && d <= std::max<size_t>(1, a.size() / 3);
    if (!near || a.substr(0, 1) != b.substr(0, 1)) continue;
    best = d, found = name;
  }
  return found;
}

std::string field_advice(const std::string& key, const Names& fields) {
  // A field followed by something that is no operator.
  std::string_view known;
  for (const std::string& f : fields)
    if (f.size() > known.size() && key.starts_with(f + "_")) known = f;
  Names suffixes;
  for (const OperatorRow& row : operators()) suffixes.emplace_back(row.suffix);
  const std::string_view field = field_part(key);
  if (!known.empty() && field == key) {
    const std::string_view suffix =
        base::closest(std::string_view(key).substr(known.size()), suffixes);
    if (!suffix.empty()) return fmt::format("did you mean '{}{}'?", known, suffix);
  }
  const std::string_view near = base::closest(field, fields);
  if (!near.empty()) return fmt::format("did you mean '{}{}'?", near, key.substr(field.size()));
  Names plain;
  for (const std::string& f : fields)
    if (f.find('.') == std::string::npos) plain.push_back(f);
  const std::string name(base::is_bare_word(field) ? field.substr(0, 80) : "NAME");
  return fmt::format("expected {}, or a label as label.{}", base::one_of(plain), name);
}

// What an unknown name is. kLater: a warning, or an error for a near miss.
enum class Unknown : uint8_t { kError, kLater, kFine };
Unknown unless(bool optional) { return optional ? Unknown::kFine : Unknown::kError; }

// Compares the names in a Config with those that are registered. Borrows both.
class Checker {
 public:
  Checker(const Config& config, const Known& known) : config_(config), known_(known) {
    for (const std::string& op : known.ops()) kernels_[op] = known.kernels(op);
    ops_ = base::keys(kernels_);
    report_.applies.resize(config.dispatch_rules.size() + config.score.size());
    report_.invalid.resize(report_.applies.size());
  }

  std::vector<ConfigProblem> check(RulesByOp* compiled) {
    Effects effects;
    effects.rules.resize(config_.dispatch_rules.size());
    effects.scores.resize(config_.score.size());
    compile(compiled, &effects);
    check_set(config_, {}, "");
    check_sections(effects);
    check_conflicts(config_, known_, kernels_,
                    [&](ConfigPlace at, std::string path, std::string found, std::string right) {
                      warn(at, std::move(path), std::move(found), std::move(right));
                    });
    return std::move(problems_);
  }

  std::vector<ConfigProblem> check_conditions_only() {
    compile(nullptr, nullptr);
    const auto each = [&](const auto& rules, const char* section, size_t first) {
      for (size_t i = 0; i < rules.size(); ++i)
        if (!matching(rules[i].operation).empty() && acts(rules[i]))
          check_conditions(rules[i], fmt::format("{}[{}]", section, i), first + i);
    };
    each(config_.dispatch_rules, "dispatch_rules", 0);
    each(config_.score, "score", config_.dispatch_rules.size());
    return std::move(problems_);
  }

 private:
  void problem(Severity severity, ConfigPlace at, std::string path, std::string found,
               std::string right) {
    const Names& files = config_.sources.files;
    problems_.push_back({severity, at.file < files.size() ? files[at.file] : "configuration",
                         at.line, at.column, std::move(path), std::move(found), std::move(right)});
  }
  void error(ConfigPlace at, std::string path, std::string found, std::string right) {
    problem(Severity::kError, at, std::move(path), std::move(found), std::move(right));
  }
  void warn(ConfigPlace at, std::string path, std::string found, std::string right) {
    problem(Severity::kWarning, at, std::move(path), std::move(found), std::move(right));
  }
  ConfigPlace place(const std::string& path, const std::string& name = {}) const {
    return place_of(config_, path, name);
  }

  // Compiles every rule for every op that it may apply to.
  void compile(RulesByOp* compiled, Effects* effects) {
    for (const auto& [op, kernels] : kernels_) {
      const op::Program* program = known_.program(op);
      if (program == nullptr) continue;
      OpRules rules = compile_rules(config_, *program, &report_);
      if (effects != nullptr) add_effects(rules, kernels, *effects);
      if (compiled != nullptr && !rules.empty())
        compiled->emplace(op, std::make_shared<const OpRules>(std::move(rules)));
    }
  }

  // ---- Numbers and words that were set in code: the reader has checked those of files ----

  template <class M>
  void check_set(const M& value, const Form& form, const std::string& path) {
    if constexpr (IsOptional<M>) {
      if (value) check_set(*value, form, path);
    } else if constexpr (HasFields<M>) {
      check_rows(value, kFields<M>, path.empty() ? "" : path + ".");
    } else if constexpr (IsList<M> && HasFields<Part<M>>) {
      for (size_t i = 0; i < value.size(); ++i)
        check_set(value[i], form, fmt::format("{}[{}]", path, i));
    } else if constexpr (std::is_same_v<M, std::chrono::nanoseconds>) {
      check_range(static_cast<double>(value.count()) / 1e9, "s", form, path);
    } else if constexpr (std::is_arithmetic_v<M> && !std::is_same_v<M, bool>) {
      check_range(static_cast<double>(value), "", form, path);
    } else if constexpr (std::is_same_v<M, Names>) {
      if (form.words.empty()) return;
      const Names words(form.words.begin(), form.words.end());
      for (size_t i = 0; i < value.size(); ++i)
        if (!base::contains(words, value[i]))
          error(place(path), fmt::format("{}[{}]", path, i), fmt::format("found '{}'", value[i]),
                advice(value[i], words, "expected " + base::one_of(words)));
    }
  }
  template <class T, class Rows>
  void check_rows(const T& value, const Rows& rows, const std::string& prefix) {
    visit_rows(rows, [&](const auto& row) {
      if constexpr (requires { row.fields; })
        check_rows(value, row.fields, prefix + row.name + ".");
      else if constexpr (requires { row.member; })
        check_set(value.*row.member, row.form, prefix + row.name);
    });
  }
  void check_range(double number, const char* unit, const Form& form, const std::string& path) {
    if (number >= form.least && number <= form.most) return;
    error(place(path), path, fmt::format("found {}{}", number, unit), "expected " + wanted(form));
  }

  // ---- Names ----

  // The ops that match a name or glob.
  const Names& matching(const std::string& pattern) {
    const auto [it, is_new] = matching_.try_emplace(pattern);
    if (is_new)
      for (const std::string& op : ops_)
        if (glob_matches(pattern, op)) it->second.push_back(op);
    return it->second;
  }

  void unknown_name(Unknown unknown, const std::string& name, const Names& known, ConfigPlace at,
                    const std::string& path, std::string found, const char* expected,
                    const char* later) {
    if (unknown == Unknown::kFine) return;
    const std::string_view near = near_miss(name, known);
    if (unknown == Unknown::kError)
      error(at, path, std::move(found), advice(name, known, expected));
    else if (!near.empty())
      error(at, path, std::move(found), did_you_mean(near));
    else
      warn(at, path, std::move(found) + " yet", later);
  }

  // False if there is no such op; then a problem has been added. `later` says what follows until there is one.
  bool check_op(const std::string& op, Unknown unknown, ConfigPlace at, const std::string& path,
                const char* later = "") {
    if (!matching(op).empty()) return true;
    if (has_wildcard(op))
      warn(at, path, fmt::format("no op matches '{}'", op), "");
    else
      unknown_name(unknown, op, ops_, at, path, fmt::format("no op is called '{}'", op),
                   "expected the name of an op", later);
    return false;
  }

  // That one of the ops has such a kernel. Without ops, any op may have it.
  void check_kernel(const std::string& ops, const std::string& kernel, Unknown unknown,
                    ConfigPlace at, const std::string& path, const char* later = "") {
    const bool any = ops.empty();
    const Names& of = any ? ops_ : matching(ops);
    const auto [has, is_new] = has_kernel_.try_emplace(ops + " " + kernel);
    for (const std::string& op : of)
      if (is_new) has->second = has->second || any_matches(kernel, kernels_[op]);
    if (has->second) return;
    const std::string whose = any                 ? "no kernel "
                              : has_wildcard(ops) ? "no op that matches '" + ops + "' has a kernel "
                                                  : ops + " has no kernel ";
    if (has_wildcard(kernel))
      return warn(at, path, fmt::format("{}{}matches '{}'", whose, any ? "" : "that ", kernel), "");
    Names there;
    for (const std::string& op : of) {
      // The plugin that announces the op may bring it.
      if (!any && unknown == Unknown::kLater && known_.program(op) == nullptr) return;
      there.insert(there.end(), kernels_[op].begin(), kernels_[op].end());
    }
    sort_names(there);
    unknown_name(unknown, kernel, there, at, path,
                 fmt::format("{}{}called '{}'", whose, any ? "is " : "", kernel),
                 "expected the id of a kernel, or optional: true", later);
  }

  // Kernels of any op.
  void check_any(const std::vector<KernelRef>& refs, Unknown unknown, const std::string& path) {
    for (size_t i = 0; i < refs.size(); ++i)
      check_kernel("", refs[i].id, refs[i].optional ? Unknown::kFine : unknown, refs[i].at,
                   fmt::format("{}[{}]", path, i), kHoldsLater);
  }

  // A kernel of an op.
  void check_of_op(const std::string& path, const std::string& op, const KernelRef& ref,
                   Unknown unknown) {
    if (ref.optional) unknown = Unknown::kFine;
    if (check_op(op, unknown, ref.at, path, "the lock holds once there is one"))
      check_kernel(op, ref.id, unknown, ref.at, path, "calls fail until there is one");
  }

  // A plugin may bring kernels of a vendor at any time.
  void check_vendor(const std::string& name, ConfigPlace at, const std::string& path) {
    const Names vendors = known_.vendors();
    if (base::contains(vendors, name)) return;
    const std::string_view near = base::closest(name, vendors);
    warn(at, path, fmt::format("no kernel has the vendor '{}'", name),
         near.empty() ? "" : did_you_mean(near));
  }

  void check_mode(const std::string& mode, ConfigPlace at, const std::string& path) {
    Names modes = mode_names(nullptr);
    for (std::string& name : known_.modes()) modes.push_back(std::move(name));
    if (!base::contains(modes, mode))
      error(at, path, fmt::format("no mode is called '{}'", mode),
            advice(mode, modes, "expected a mode"));
  }

  // ---- Sections ----

  // Denies, allows and locks may name what is not registered yet; chains and static maps may not.
  void check_sections(const Effects& effects) {
    const Config& c = config_;
    check_any(c.defaults.fallback_policy, Unknown::kError, "defaults.fallback_policy");
    check_rules(c.dispatch_rules, effects.rules, "dispatch_rules", 0);
    for (const auto& [op, ref] : c.kernel_locks)
      check_of_op("kernel_locks." + op, op, ref, Unknown::kLater);
    check_any(c.kernel_denies, Unknown::kLater, "kernel_denies");
    if (c.kernel_allows) check_any(*c.kernel_allows, Unknown::kLater, "kernel_allows");
    for (const auto& [op, chain] : c.fallback_chains)
      for (size_t i = 0; i < chain.size(); ++i)
        check_of_op(fmt::format("fallback_chains.{}[{}]", op, i), op, chain[i], Unknown::kError);
    check_policy(c.policy);
    for (const auto& [op, ref] : c.static_kernel_map)
      check_of_op("static_kernel_map." + op, op, ref, Unknown::kError);
    check_rules(c.score, effects.scores, "score", c.dispatch_rules.size());
    check_functions();
    for (size_t i = 0; i < c.canary.size(); ++i)
      check_canary(c.canary[i], fmt::format("canary[{}]", i));
    if (c.settings.mode) check_mode(*c.settings.mode, place("settings.mode"), "settings.mode");
    for (const auto& [op, mode] : c.settings.modes) {
      const ConfigPlace at = place("settings.modes", op);
      check_op(op, Unknown::kError, at, "settings.modes." + op);
      check_mode(mode, at, "settings.modes." + op);
    }
    check_breaker();
  }

  void check_policy(const Policy& p) {
    const auto vendors = [&](const Names& names, const std::string& path) {
      for (size_t i = 0; i < names.size(); ++i)
        check_vendor(names[i], place(path, names[i]), fmt::format("{}[{}]", path, i));
    };
    constexpr std::string_view kImpl = "impl:", kVendor = "vendor:";
    for (const auto& [op, order] : p.per_op) {
      const ConfigPlace at = place("policy.per_op", op);
      const std::string path = "policy.per_op." + op;
      if (!check_op(op, Unknown::kError, at, path)) continue;
      for (size_t i = 0; i < order.size(); ++i) {
        const std::string &token = order[i], where = fmt::format("{}[{}]", path, i);
        if (token.starts_with(kImpl))
          check_kernel(op, token.substr(kImpl.size()), Unknown::kError, at, where);
        else if (token.starts_with(kVendor))
          check_vendor(token.substr(kVendor.size()), at, where);
      }
    }
    if (p.allow_vendors) vendors(*p.allow_vendors, "policy.allow_vendors");
    vendors(p.deny_vendors, "policy.deny_vendors");
    for (const std::string& id : p.allow_kernels.value_or(Names()))
      check_kernel("", id, Unknown::kLater, {}, "policy.allow_kernels", kHoldsLater);
    for (const std::string& id : p.deny_kernels)
      check_kernel("", id, Unknown::kLater, {}, "policy.deny_kernels", kHoldsLater);
    for (const auto& [op, id] : p.locks)
      check_of_op("policy.locks." + op, op, {id, false, {}}, Unknown::kLater);
    // A plugin may bring a backend or an op at any time.
    const Names backends = known_.backends();
    for (const auto& [name, on] : p.backends)
      if (!base::contains(backends, name))
        unknown_name(Unknown::kLater, name, backends, place("policy.backends", name),
                     "policy.backends." + name, fmt::format("no backend is called '{}'", name), "",
                     kHoldsLater);
    for (const auto& [op, on] : p.transforms)
      check_op(op, Unknown::kLater, place("policy.transforms", op), "policy.transforms." + op);
  }

  // Functions and backends may be registered later: unknown names are warnings.
  void check_functions() {
    const Names functions = known_.functions(), backends = known_.backends();
    Names names = functions;
    for (const std::string& f : functions) names.push_back(f.substr(0, f.find('/')));
    for (const auto& [key, rule] : config_.functions) {
      const std::string path = child_path("functions", key);
      // Where none are declared at all, as in the command, nothing can be concluded.
      if (!names.empty() && !any_matches(key, names))
        warn(rule.at, path, fmt::format("no function matches '{}' now", key),
             base::closest(key, names).empty() ? "" : advice(key, names, ""));
      Names listed = rule.backends.value_or(Names());
      listed.insert(listed.end(), rule.deny.begin(), rule.deny.end());
      for (const std::string& b : listed)
        if (const std::string_view near = base::closest(b, backends);
            !near.empty() && !base::contains(backends, b))
          warn(rule.at, path, fmt::format("no backend is called '{}' now", b), did_you_mean(near));
    }
  }

  void check_canary(const CanaryRule& r, const std::string& path) {
    if (r.op.empty()) {
      // In files the reader has reported it.
      if (r.at.line == 0) error(r.at, path + ".op", "missing", "expected the name of an op");
      return;
    }
    const Unknown unknown = unless(r.optional);
    if (!check_op(r.op, unknown, r.op_at, path + ".op")) return;
    if (r.kernel != "*") check_kernel(r.op, r.kernel, unknown, r.kernel_at, path + ".kernel");
    if (r.against != "reference" && !has_wildcard(r.against))
      check_kernel(r.op, r.against, unknown, r.against_at, path + ".against");
  }

  // Relations between the values.
  void check_breaker() {
    const std::string path = "settings.breaker";
    if (std::any_of(problems_.begin(), problems_.end(),
                    [&](const ConfigProblem& p) { return p.path.starts_with(path); }))
      return;
    if (const Status status = validate(breaker_of(config_)); !status.ok())
      error(place(path + (config_.settings.breaker.cooldown_cap ? ".cooldown_cap" : ".cooldown")),
            path, std::string(status.message()), "");
  }

  // ---- Rules ----

  template <class Rule>
  void check_rules(const std::vector<Rule>& rules, const std::vector<Effect>& effects,
                   const char* section, size_t first) {
    for (size_t i = 0; i < rules.size(); ++i) {
      const std::string path = fmt::format("{}[{}]", section, i);
      check_rule(rules[i], path, first + i);
      check_effect(rules[i], effects[i], path);
    }
  }

  template <class Rule>
  void check_effect(const Rule& r, const Effect& effect, const std::string& path) {
    if (effect.ops == 0) return;
    if (effect.impossible == effect.ops) {
      Names keys;
      for (const size_t i : effect.conditions) keys.push_back(r.conditions[i].key);
      warn(r.at, path + ".conditions", fmt::format("no call can pass {}", fmt::join(keys, " and ")),
           "the rule has no effect");
    } else if (effect.impossible + effect.shadowed == effect.ops) {
      warn(r.at, path,
           fmt::format("dispatch_rules[{}] comes first for all of its calls", effect.by),
           "expected a higher priority, other conditions, or fallback_chains for a second choice");
    }
  }

  static bool acts(const ScoreRule& r) { return !r.kernel.empty(); }
  static bool acts(const DispatchRule& r) {
    return !r.kernel.empty() || !r.deny.empty() || r.allow;
  }

  template <class Rule>
  void check_rule(const Rule& r, const std::string& path, size_t index) {
    const bool chooses = !r.kernel.empty();
    // In files the reader has reported it.
    if (r.operation.empty() || !acts(r)) {
      if (r.at.line == 0) error(r.at, path, "an op or a kernel is missing", "expected both");
      return;
    }
    // What only excludes kernels holds once there is such an op.
    const Unknown unknown = chooses || r.optional ? unless(r.optional) : Unknown::kLater;
    if (!check_op(r.operation, unknown, r.operation_at, path + ".operation",
                  "the rule holds once there is one")) {
      // The rest is checked against the op that was probably meant.
      const std::string meant(base::closest(r.operation, ops_));
      if (!chooses || r.optional || has_wildcard(r.operation) || meant.empty()) return;
      check_kernel(meant, r.kernel, unknown, r.kernel_at, path + ".kernel");
      return check_conditions_of(meant, r.conditions, path);
    }
    if (chooses) check_kernel(r.operation, r.kernel, unknown, r.kernel_at, path + ".kernel");
    if constexpr (std::is_same_v<Rule, DispatchRule>) {
      check_listed(r, r.deny, path + ".deny");
      if (r.allow) check_listed(r, *r.allow, path + ".allow");
    }
    check_conditions(r, path, index);
  }

  void check_listed(const DispatchRule& r, const std::vector<KernelRef>& refs,
                    const std::string& path) {
    for (size_t i = 0; i < refs.size(); ++i)
      check_kernel(r.operation, refs[i].id,
                   r.optional || refs[i].optional ? Unknown::kFine : Unknown::kLater, refs[i].at,
                   fmt::format("{}[{}]", path, i), kHoldsLater);
  }

  // Checks the conditions of the n-th rule unless it compiled for every op that has its fields.
  template <class Rule>
  void check_conditions(const Rule& r, const std::string& path, size_t n) {
    if (!report_.applies[n] || report_.invalid[n])
      check_conditions_of(r.operation, r.conditions, path);
  }

  // A condition must fit every op that has all fields of the rule. If no op has one of the fields, the other conditions
  // must fit the ops that have theirs.
  void check_conditions_of(const std::string& pattern, const std::vector<Condition>& conditions,
                           const std::string& path) {
    const Names& ops = matching(pattern);
    Wrong wrong;
    const auto lacks = [&](const std::string& op) {
      return [&](const Condition& c) { return fit(op, c, wrong) == Fit::kNoField; };
    };
    const auto nowhere = [&](const Condition& c) {
      return std::all_of(ops.begin(), ops.end(), [&](auto& op) { return lacks(op)(c); });
    };
    const bool some_nowhere = std::any_of(conditions.begin(), conditions.end(), nowhere);
    for (const Condition& c : conditions) {
      if (nowhere(c)) {
        unknown_field(pattern, c, condition_path(path, c.key));
        continue;
      }
      for (const std::string& op : ops) {
        if (!some_nowhere && std::any_of(conditions.begin(), conditions.end(), lacks(op))) continue;
        if (fit(op, c, wrong) != Fit::kWrong) continue;
        error(c.at, condition_path(path, c.key), wrong.found, wrong.right);
        break;
      }
    }
  }

  enum class Fit : uint8_t { kNoField, kWrong, kFine };

  // Whether a condition fits calls of an op. Sets `wrong` for kWrong.
  Fit fit(const std::string& op, const Condition& c, Wrong& wrong) {
    const op::Program* program = known_.program(op);
    if (program == nullptr) return Fit::kFine;  // its fields are not known
    std::unique_ptr<OpFields>& fields = fields_[op];
    if (fields == nullptr) fields = std::make_unique<OpFields>(*program);
    const SplitKey key = split_key(c.key, *fields);
    if (key.field == nullptr) return Fit::kNoField;
    Conditions scratch;
    Wrong here;
    if (ConditionCompiler(scratch).add(*key.field, key.op, c, here)) return Fit::kFine;
    wrong = std::move(here);
    return Fit::kWrong;
  }

  void unknown_field(const std::string& ops, const Condition& c, const std::string& path) {
    Names names;
    for (const std::string& op : matching(ops))
      for (std::string& name : fields_.at(op)->names()) names.push_back(std::move(name));
    sort_names(names);
    error(c.at, path,
          has_wildcard(ops) ? "no op that matches '" + ops + "' has this field"
                            : "calls of " + ops + " have no such field",
          field_advice(c.key, names));
  }

  const Config& config_;
  const Known& known_;
  KernelsByOp kernels_;
  Names ops_;
  std::unordered_map<std::string, Names> matching_;
  std::unordered_map<std::string, bool> has_kernel_;
  std::map<std::string, std::unique_ptr<OpFields>> fields_;
  RuleReport report_;
  std::vector<ConfigProblem> problems_;
};

}  // namespace

std::vector<ConfigProblem> check_config(const Config& config, const Known& known,
                                        RulesByOp* compiled) {
  return Checker(config, known).check(compiled);
}

std::vector<ConfigProblem> check_conditions(const Config& config, const Known& known) {
  return Checker(config, known).check_conditions_only();
}

void check_reading(ConfigReading& reading, const Known& known, RulesByOp* compiled) {
  std::vector<ConfigProblem> more = check_config(reading.config, known, compiled);
  std::vector<ConfigProblem>& all = reading.problems;
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  const bool cut = std::erase_if(all, is_more) > 0 || all.size() > kMostProblems;
  const auto place = [&](const ConfigProblem& p) {
    const auto file = std::find(reading.files.begin(), reading.files.end(), p.file);
    return std::tuple(file - reading.files.begin(), p.line, p.column);
  };
  const auto by_place = [&](auto& a, auto& b) { return place(a) < place(b); };
  std::stable_sort(all.begin(), all.end(), by_place);
  if (all.size() > kMostProblems) {
    // Warnings are cut before errors, so that what is cut decides nothing.
    std::stable_partition(all.begin(), all.end(),
                          [](const ConfigProblem& p) { return p.severity == Severity::kError; });
    all.resize(kMostProblems);
    std::stable_sort(all.begin(), all.end(), by_place);
  }
  if (cut)
    all.push_back(more_problems(reading.files.empty() ? "configuration" : reading.files[0],
                                Severity::kWarning));
}

}  // namespace yard::policy
