// SPDX-License-Identifier: Apache-2.0
#include "policy/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <tuple>

#include "base/lists.h"
#include "base/text.h"
#include "policy/config_files.h"
#include "policy/config_keys.h"
#include "policy/process.h"

namespace yard::policy {

std::string advice(std::string_view word, const Names& known, const std::string& otherwise) {
  const std::string_view near = base::closest(word, known);
  if (!near.empty()) return fmt::format("did you mean '{}'?", near);
  if (!known.empty() && known.size() <= 12) return "expected " + base::one_of(known);
  return otherwise;
}

void sort_names(Names& names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

Checker::Checker(const Config& config, const Known& known) : config_(config), known_(known) {
  ops_ = known.ops();
  sort_names(ops_);
  for (const std::string& op : ops_) {
    kernels_[op] = known.kernels(op);
    for (const std::string& id : kernels_[op]) all_kernels_.push_back(id);
  }
  sort_names(all_kernels_);
}

void Checker::problem(Severity severity, ConfigPlace at, std::string path, std::string found,
                      std::string right) {
  const Names& files = config_.sources.files;
  problems_.push_back({severity, at.file < files.size() ? files[at.file] : "configuration", at.line,
                       at.column, std::move(path), std::move(found), std::move(right)});
}

const Names& Checker::matching(const std::string& pattern) {
  const auto [it, is_new] = matching_.try_emplace(pattern);
  if (is_new)
    for (const std::string& op : ops_)
      if (glob_matches(pattern, op)) it->second.push_back(op);
  return it->second;
}

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

void Checker::unknown_name(Unknown unknown, const std::string& name, const Names& known,
                           ConfigPlace at, const std::string& path, std::string found,
                           const char* expected, const char* later) {
  if (unknown == Unknown::kFine) return;
  if (unknown == Unknown::kError)
    return error(at, path, std::move(found), advice(name, known, expected));
  if (const std::string_view near = near_miss(name, known); !near.empty())
    return error(at, path, std::move(found), fmt::format("did you mean '{}'?", near));
  problem(Severity::kWarning, at, path, std::move(found) + " yet", later);
}

bool Checker::check_op(const std::string& op, Unknown unknown, ConfigPlace at,
                       const std::string& path, const char* later) {
  if (!matching(op).empty()) return true;
  if (has_wildcard(op))
    problem(Severity::kWarning, at, path, fmt::format("no op matches '{}'", op), "");
  else
    unknown_name(unknown, op, ops_, at, path, fmt::format("no op is called '{}'", op),
                 "expected the name of an op", later);
  return false;
}

void Checker::check_kernel(const std::string& ops, const std::string& kernel, Unknown unknown,
                           ConfigPlace at, const std::string& path, const char* later) {
  const std::string key = ops + " " + kernel;
  auto it = has_kernel_.find(key);
  if (it == has_kernel_.end()) {
    bool has = false;
    for (const std::string& op : matching(ops))
      for (const std::string& id : kernels_[op]) has = has || glob_matches(kernel, id);
    it = has_kernel_.emplace(key, has).first;
  }
  if (it->second) return;
  const std::string whose =
      has_wildcard(ops) ? "no op that matches '" + ops + "' has a kernel" : ops + " has no kernel";
  if (has_wildcard(kernel)) {
    problem(Severity::kWarning, at, path, fmt::format("{} that matches '{}'", whose, kernel), "");
    return;
  }
  Names there;
  for (const std::string& op : matching(ops)) {
    // The plugin that announces the op may bring it.
    if (unknown == Unknown::kLater && known_.program(op) == nullptr) return;
    there.insert(there.end(), kernels_[op].begin(), kernels_[op].end());
  }
  sort_names(there);
  unknown_name(unknown, kernel, there, at, path, fmt::format("{} called '{}'", whose, kernel),
               "expected the id of a kernel, or optional: true", later);
}

void Checker::anywhere(const KernelRef& ref, Unknown unknown, const std::string& path,
                       const char* later) {
  const bool has = std::any_of(all_kernels_.begin(), all_kernels_.end(),
                               [&](const std::string& id) { return glob_matches(ref.id, id); });
  if (has) return;
  if (has_wildcard(ref.id))
    problem(Severity::kWarning, ref.at, path, fmt::format("no kernel matches '{}'", ref.id), "");
  else
    unknown_name(ref.optional ? Unknown::kFine : unknown, ref.id, all_kernels_, ref.at, path,
                 fmt::format("no kernel is called '{}'", ref.id),
                 "expected the id of a kernel, or optional: true", later);
}

namespace {

template <class T>
inline constexpr bool IsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
template <class T>
inline constexpr bool IsNumber<std::optional<T>> = IsNumber<T>;

constexpr const char* kHoldsLater = "it holds once there is one";

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

// Visits the fields of a Config and compares the names in them with those that are registered.
class SectionChecks : private Checker {
 public:
  using Checker::Checker;

  std::vector<ConfigProblem> check(RulesByOp* compiled) {
    effects_.rules.resize(config().dispatch_rules.size());
    effects_.scores.resize(config().score.size());
    compile(compiled, true);
    check_fields(config(), "");
    check_conflicts(*this);
    return std::move(problems());
  }

  std::vector<ConfigProblem> check_conditions_only() {
    compile(nullptr, false);
    const auto each = [&](const auto& rules, const char* section, bool score) {
      for (size_t i = 0; i < rules.size(); ++i)
        if (!matching(rules[i].operation).empty() && acts(rules[i]))
          check_conditions(rules[i], fmt::format("{}[{}]", section, i),
                           compiler_.index_of(score, i));
    };
    each(config().dispatch_rules, "dispatch_rules", false);
    each(config().score, "score", true);
    return std::move(problems());
  }

 private:
  // Compiles every condition for every op that it may apply to.
  void compile(RulesByOp* compiled, bool effects) {
    for (const std::string& op : ops()) {
      const op::Program* program = known().program(op);
      if (program == nullptr) continue;
      OpRules rules = compiler_.compile(*program, &report_);
      if (effects) add_effects(rules, kernels_of(op), effects_);
      if (compiled != nullptr && !rules.empty())
        compiled->emplace(op, std::make_shared<const OpRules>(std::move(rules)));
    }
  }

  ConfigPlace place(const std::string& path, const std::string& name) const {
    return place_of(config(), path, name);
  }

  template <class T>
  void check_fields(const T& value, const std::string& prefix) {
    visit_fields<T>(
        [&](const auto& row) { check_value(value.*row.member, prefix + row.name, row.form); });
  }

  // Numbers that were set in code: the reader has checked those of files.
  template <class M>
  void check_value(const M& value, const std::string& path, const Form& form) {
    double number = 0;
    if constexpr (std::is_same_v<M, std::chrono::nanoseconds>)
      number = static_cast<double>(value.count()) / 1e9;
    else if constexpr (IsNumber<M>)
      number = static_cast<double>(value);
    else
      return;
    if (number >= form.least && number <= form.most) return;
    error(place(path, ""), path,
          form.shape == Shape::kDuration ? fmt::format("found {}s", number)
                                         : fmt::format("found {}", number),
          "expected " + wanted(form));
  }
  template <HasFields T>
  void check_value(const T& value, const std::string& path, const Form&) {
    check_fields(value, path + ".");
  }
  template <class V>
  void check_value(const std::optional<V>& value, const std::string& path, const Form& form) {
    if (value) check_value(*value, path, form);
  }

  // ---- Rules ----

  void check_value(const std::vector<DispatchRule>& rules, const std::string& path, const Form&) {
    check_rules(rules, effects_.rules, path, false);
  }
  void check_value(const std::vector<ScoreRule>& rules, const std::string& path, const Form&) {
    check_rules(rules, effects_.scores, path, true);
  }
  template <class Rule>
  void check_rules(const std::vector<Rule>& rules, const std::vector<Effect>& effects,
                   const std::string& section, bool score) {
    check_numbers(rules, section);
    for (size_t i = 0; i < rules.size(); ++i) {
      const std::string path = fmt::format("{}[{}]", section, i);
      check_rule(rules[i], path, compiler_.index_of(score, i));
      check_effect(rules[i], effects[i], path);
    }
  }

  template <class Rule>
  void check_effect(const Rule& r, const Effect& effect, const std::string& path) {
    if (effect.ops == 0) return;
    if (effect.impossible == effect.ops) {
      Names keys;
      for (const size_t i : effect.conditions) keys.push_back(r.conditions[i].key);
      problem(Severity::kWarning, r.at, path + ".conditions",
              fmt::format("no call can pass {}", fmt::join(keys, " and ")),
              "the rule has no effect");
    } else if (effect.impossible + effect.shadowed == effect.ops) {
      problem(
          Severity::kWarning, r.at, path,
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
      if (chooses && !r.optional && !has_wildcard(r.operation)) check_of_unknown(r, path);
      return;
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
                   fmt::format("{}[{}]", path, i), "it holds once there is one");
  }

  template <class Rule>
  void check_conditions(const Rule& r, const std::string& path, size_t index) {
    const auto seen = report_.seen.begin() + static_cast<ptrdiff_t>(index);
    const bool lacks_field =
        std::find(seen, seen + static_cast<ptrdiff_t>(r.conditions.size()),
                  ConditionReport::kNoField) != seen + static_cast<ptrdiff_t>(r.conditions.size());
    for (size_t i = 0; i < r.conditions.size(); ++i) {
      const Condition& c = r.conditions[i];
      const auto& from = lacks_field ? report_.maybe : report_.wrong;
      const auto wrong = from.find(index + i);
      if (wrong != from.end())
        error(c.at, condition_path(path, c.key), wrong->second.found, wrong->second.right);
      else if (report_.seen[index + i] == ConditionReport::kNoField)
        unknown_field(r.operation, c, condition_path(path, c.key));
    }
  }

  // The op is unknown. The rest is checked against the op that was probably meant, or else for what no op accepts.
  template <class Rule>
  void check_of_unknown(const Rule& r, const std::string& path) {
    const std::string meant(base::closest(r.operation, ops()));
    if (meant.empty())
      anywhere({r.kernel, r.optional, r.kernel_at}, Unknown::kError, path + ".kernel");
    else
      check_kernel(meant, r.kernel, unless(r.optional), r.kernel_at, path + ".kernel");
    const Names& near = meant.empty() ? ops() : matching(meant);
    for (const Condition& c : r.conditions) {
      Wrong wrong;
      const Fit fit = best_fit(near, c, wrong);
      if (fit == Fit::kWrong)
        error(c.at, condition_path(path, c.key), wrong.found, wrong.right);
      else if (fit == Fit::kNoField && !meant.empty())
        unknown_field(meant, c, condition_path(path, c.key));
    }
  }

  enum class Fit : uint8_t { kNoField, kWrong, kFine };

  // The best fit of a condition over several ops.
  Fit best_fit(const Names& ops, const Condition& c, Wrong& wrong) {
    Fit best = Fit::kNoField;
    for (const std::string& op : ops) {
      const op::Program* program = known().program(op);
      if (program == nullptr) return Fit::kFine;  // its fields are not known
      std::unique_ptr<OpFields>& fields = op_fields_[op];
      if (fields == nullptr) fields = std::make_unique<OpFields>(*program);
      const SplitKey key = split_key(c.key, *fields);
      if (key.field == nullptr) continue;
      Conditions scratch;
      Wrong here;
      if (ConditionCompiler(scratch).add(*key.field, key.op, c, here)) return Fit::kFine;
      if (best == Fit::kNoField) wrong = std::move(here);
      best = Fit::kWrong;
    }
    return best;
  }

  const Names& fields_of(const std::string& ops) {
    const auto [it, is_new] = fields_.try_emplace(ops);
    if (!is_new) return it->second;
    for (const std::string& op : matching(ops))
      if (const op::Program* program = known().program(op))
        for (std::string& name : OpFields(*program).names()) it->second.push_back(std::move(name));
    sort_names(it->second);
    return it->second;
  }

  void unknown_field(const std::string& ops, const Condition& c, const std::string& path) {
    // An op whose fields are not known may have it.
    for (const std::string& op : matching(ops))
      if (known().program(op) == nullptr) return;
    const Names& fields = fields_of(ops);
    const std::string what = has_wildcard(ops) ? "no op that matches '" + ops + "' has this field"
                                               : "calls of " + ops + " have no such field";
    error(c.at, path, what, field_advice(c.key, fields));
  }

  template <class Rule>
  void check_numbers(const std::vector<Rule>& rules, const std::string& path) {
    for (size_t i = 0; i < rules.size(); ++i)
      check_numbers(rules[i], kFields<Rule>, fmt::format("{}[{}].", path, i));
  }
  template <class Rule, class Rows>
  void check_numbers(const Rule& rule, const Rows& rows, const std::string& prefix) {
    visit_rows(rows, [&](const auto& row) {
      if constexpr (requires { row.fields; }) {
        check_numbers(rule, row.fields, prefix + row.name + ".");
      } else if constexpr (requires { row.member; }) {
        if constexpr (IsNumber<typename std::decay_t<decltype(row)>::Type>)
          check_value(rule.*row.member, prefix + row.name, row.form);
      }
    });
  }

  // Locks may name what is not registered yet; static maps may not.
  void check_value(const Config::KernelMap& map, const std::string& path, const Form& form) {
    for (const auto& [op, ref] : map)
      of_op(path + "." + op, op, ref,
            form.shape == Shape::kOpKernel ? Unknown::kLater : Unknown::kError);
  }
  void of_op(const std::string& path, const std::string& op, const KernelRef& ref,
             Unknown unknown) {
    if (ref.optional) unknown = Unknown::kFine;
    if (check_op(op, unknown, ref.at, path, "the lock holds once there is one"))
      check_kernel(op, ref.id, unknown, ref.at, path, "calls fail until there is one");
  }
  void check_value(const Config::ChainMap& chains, const std::string& path, const Form&) {
    for (const auto& [op, chain] : chains)
      for (size_t i = 0; i < chain.size(); ++i)
        of_op(fmt::format("{}.{}[{}]", path, op, i), op, chain[i], Unknown::kError);
  }
  // Denies and allows may name what is not registered yet; the default chain may not.
  void check_value(const std::vector<KernelRef>& refs, const std::string& path, const Form& form) {
    for (size_t i = 0; i < refs.size(); ++i)
      anywhere(refs[i], form.shape == Shape::kGlobs ? Unknown::kLater : Unknown::kError,
               fmt::format("{}[{}]", path, i), kHoldsLater);
  }

  void check_value(const Names& names, const std::string& path, const Form& form) {
    if (form.shape == Shape::kLabelNames) return;
    for (size_t i = 0; i < names.size(); ++i) {
      const ConfigPlace at = place(path, names[i]);
      if (form.shape == Shape::kVendors)
        check_vendor(names[i], at, fmt::format("{}[{}]", path, i));
      else if (form.shape == Shape::kModes)
        check_word(names[i], at, fmt::format("{}[{}]", path, i), form);
      else
        anywhere({names[i], false, at}, Unknown::kLater, fmt::format("{}[{}]", path, i),
                 kHoldsLater);
    }
  }
  // Of a file they were checked when it was read.
  void check_word(const std::string& name, ConfigPlace at, const std::string& path,
                  const Form& form) {
    const Names words(form.words.begin(), form.words.end());
    if (!base::contains(words, name))
      error(at, path, fmt::format("found '{}'", name),
            advice(name, words, "expected " + base::one_of(words)));
  }
  // A plugin may bring kernels of a vendor at any time.
  void check_vendor(const std::string& name, ConfigPlace at, const std::string& path) {
    const Names vendors = known().vendors();
    if (!base::contains(vendors, name))
      problem(Severity::kWarning, at, path, fmt::format("no kernel has the vendor '{}'", name),
              base::closest(name, vendors).empty() ? "" : advice(name, vendors, ""));
  }

  void check_value(const Orders& orders, const std::string& section, const Form&) {
    constexpr std::string_view kImpl = "impl:", kVendor = "vendor:";
    for (const auto& [op, order] : orders) {
      const ConfigPlace at = place(section, op);
      const std::string path = section + "." + op;
      if (!check_op(op, Unknown::kError, at, path)) continue;
      for (size_t i = 0; i < order.size(); ++i) {
        const std::string &token = order[i], where = fmt::format("{}[{}]", path, i);
        if (token.starts_with(kImpl))
          check_kernel(op, token.substr(kImpl.size()), Unknown::kError, at, where);
        else if (token.starts_with(kVendor))
          check_vendor(token.substr(kVendor.size()), at, where);
      }
    }
  }

  // Backends, or ops, and their switches. A plugin may bring a backend or an op at any time.
  void check_value(const decltype(Policy::backends)& switches, const std::string& path,
                   const Form& form) {
    if (form.shape == Shape::kOpSwitches) {
      for (const auto& [op, on] : switches)
        check_op(op, Unknown::kLater, place(path, op), path + "." + op);
      return;
    }
    const Names backends = known().backends();
    for (const auto& [name, on] : switches)
      if (!base::contains(backends, name))
        unknown_name(Unknown::kLater, name, backends, place(path, name), path + "." + name,
                     fmt::format("no backend is called '{}'", name), "", kHoldsLater);
  }

  // From ops to kernels or modes.
  void check_value(const decltype(Policy::locks)& map, const std::string& section,
                   const Form& form) {
    if (form.shape == Shape::kLabels) return;
    for (const auto& [op, name] : map) {
      const ConfigPlace at = place(section, op);
      const std::string path = section + "." + op;
      if (form.shape == Shape::kOpKernel) {
        of_op(path, op, {name, false, at}, Unknown::kLater);
      } else {
        check_op(op, Unknown::kError, at, path);
        check_mode(name, at, path);
      }
    }
  }
  void check_value(const std::string& name, const std::string& path, const Form& form) {
    if (form.shape == Shape::kMode) check_mode(name, place(path, ""), path);
  }
  void check_mode(const std::string& mode, ConfigPlace at, const std::string& path) {
    Names modes = mode_names(nullptr);
    for (std::string& name : known().modes()) modes.push_back(std::move(name));
    if (!base::contains(modes, mode))
      error(at, path, fmt::format("no mode is called '{}'", mode),
            advice(mode, modes, "expected a mode"));
  }

  // Functions and backends may be registered later: unknown names are warnings.
  void check_value(const decltype(Config::functions)& rules, const std::string& section,
                   const Form&) {
    const Names functions = known().functions(), backends = known().backends();
    Names names = functions;
    for (const std::string& f : functions) names.push_back(f.substr(0, f.find('/')));
    for (const auto& [key, rule] : rules) {
      const std::string path = child_path(section, key);
      // clang 14 captures no structured bindings.
      const bool found =
          std::any_of(names.begin(), names.end(),
                      [&, &glob = key](const std::string& n) { return glob_matches(glob, n); });
      // Where none are declared at all, as in the command, nothing can be concluded.
      if (!found && !names.empty())
        problem(Severity::kWarning, rule.at, path, fmt::format("no function matches '{}' now", key),
                base::closest(key, names).empty() ? "" : advice(key, names, ""));
      Names listed = rule.backends.value_or(Names());
      listed.insert(listed.end(), rule.deny.begin(), rule.deny.end());
      for (const std::string& b : listed)
        if (!base::contains(backends, b) && !base::closest(b, backends).empty())
          problem(Severity::kWarning, rule.at, path,
                  fmt::format("no backend is called '{}' now", b), advice(b, backends, ""));
    }
  }

  void check_value(const std::vector<CanaryRule>& rules, const std::string& path, const Form&) {
    check_numbers(rules, path);
    for (size_t i = 0; i < rules.size(); ++i)
      check_canary(rules[i], fmt::format("{}[{}]", path, i));
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

  // Relations between the values, and values that were set in code.
  void check_value(const ConfigSettings::Breaker& b, const std::string& path, const Form&) {
    const size_t before = problems().size();
    check_fields(b, path + ".");
    if (problems().size() > before) return;
    const Status status = validate(breaker_of(config()));
    if (!status.ok())
      error(place(path + (b.cooldown_cap ? ".cooldown_cap" : ".cooldown"), ""), path,
            std::string(status.message()), "");
  }

  const RuleCompiler compiler_{config()};
  ConditionReport report_ = compiler_.empty_report();
  Effects effects_;
  std::map<std::string, Names> fields_;
  std::map<std::string, std::unique_ptr<OpFields>> op_fields_;
};

}  // namespace

std::vector<ConfigProblem> check_config(const Config& config, const Known& known,
                                        RulesByOp* compiled) {
  return SectionChecks(config, known).check(compiled);
}

std::vector<ConfigProblem> check_conditions(const Config& config, const Known& known) {
  return SectionChecks(config, known).check_conditions_only();
}

void check_reading(ConfigReading& reading, const Known& known, RulesByOp* compiled) {
  std::vector<ConfigProblem> more = check_config(reading.config, known, compiled);
  std::vector<ConfigProblem>& all = reading.problems;
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  const bool cut = std::erase_if(all, is_more) > 0 || all.size() > kMostProblems;
  const auto rank = [&](const ConfigProblem& p) {
    return std::find(reading.files.begin(), reading.files.end(), p.file) - reading.files.begin();
  };
  const auto place = [&](const ConfigProblem& p) { return std::tuple(rank(p), p.line, p.column); };
  const auto by_place = [&](const ConfigProblem& a, const ConfigProblem& b) {
    return place(a) < place(b);
  };
  std::stable_sort(all.begin(), all.end(), by_place);
  if (!cut) return;
  // Warnings are cut before errors, so that what is cut decides nothing.
  std::stable_partition(all.begin(), all.end(),
                        [](const ConfigProblem& p) { return p.severity == Severity::kError; });
  if (all.size() > kMostProblems) all.resize(kMostProblems);
  std::stable_sort(all.begin(), all.end(), by_place);
  all.push_back(more_problems(reading.files.empty() ? "configuration" : reading.files[0],
                              Severity::kWarning));
}

}  // namespace yard::policy
