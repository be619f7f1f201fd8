// SPDX-License-Identifier: Apache-2.0
// Names and conditions held against what is registered.
#include "policy/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>
#include <unordered_map>

#include "base/text.h"
#include "policy/config_keys.h"
#include "policy/modes.h"
#include "policy/rule_compiler.h"

namespace yard::policy {
namespace {

constexpr size_t kMostProblems = 200;
using Names = std::vector<std::string>;

// "did you mean 'x'?", or what there is, or `otherwise`.
std::string advice(std::string_view word, const Names& known, const std::string& otherwise) {
  const std::string_view near = base::closest(word, known);
  if (!near.empty()) return fmt::format("did you mean '{}'?", near);
  if (!known.empty() && known.size() <= 12) return base::one_of(known) + " would be right";
  return otherwise;
}

void sort_names(Names& names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

class Checker {
 public:
  Checker(const Config& config, const Known& known) : config_(config), known_(known) {
    ops_ = known.ops();
    sort_names(ops_);
    for (const std::string& op : ops_) {
      kernels_[op] = known.kernels(op);
      for (const std::string& id : kernels_[op]) all_kernels_.push_back(id);
    }
    sort_names(all_kernels_);
  }

  std::vector<ConfigProblem> check(RulesByOp* compiled) {
    for (size_t i = 0; i < config_.defaults.fallback_policy.size(); ++i)
      anywhere(config_.defaults.fallback_policy[i], fmt::format("defaults.fallback_policy[{}]", i));
    check_rules(compiled);
    for (const auto& [op, ref] : config_.kernel_locks) of_op("kernel_locks." + op, op, ref);
    for (size_t i = 0; i < config_.kernel_denies.size(); ++i)
      anywhere(config_.kernel_denies[i], fmt::format("kernel_denies[{}]", i));
    if (config_.kernel_allows)
      for (size_t i = 0; i < config_.kernel_allows->size(); ++i)
        anywhere((*config_.kernel_allows)[i], fmt::format("kernel_allows[{}]", i));
    for (const auto& [op, chain] : config_.fallback_chains)
      for (size_t i = 0; i < chain.size(); ++i)
        of_op(fmt::format("fallback_chains.{}[{}]", op, i), op, chain[i]);
    check_policy();
    for (const auto& [op, ref] : config_.static_kernel_map)
      of_op("static_kernel_map." + op, op, ref);
    problems_.insert(problems_.end(), score_problems_.begin(), score_problems_.end());
    check_functions();
    for (size_t i = 0; i < config_.canary_check.size(); ++i)
      check_canary(config_.canary_check[i], fmt::format("canary_check[{}]", i));
    check_modes();
    check_breaker();
    if (problems_.size() > kMostProblems) {
      problems_.resize(kMostProblems);
      problem(Severity::kError, {}, "", "there are more problems",
              "putting these right first would be right");
    }
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

  // ---- Ops and kernels ----

  const Names& matching(const std::string& pattern) {
    const auto [it, is_new] = matching_.try_emplace(pattern);
    if (is_new)
      for (const std::string& op : ops_)
        if (glob_matches(pattern, op)) it->second.push_back(op);
    return it->second;
  }

  // False if there is no such op; then that has been said.
  bool check_op(const std::string& op, bool optional, ConfigPlace at, const std::string& path) {
    if (!matching(op).empty()) return true;
    if (has_wildcard(op))
      problem(Severity::kWarning, at, path, fmt::format("no op matches '{}'", op), "");
    else if (!optional)
      error(at, path, fmt::format("no op is called '{}'", op),
            advice(op, ops_, "the name of an op would be right"));
    return false;
  }

  // That one of the ops has such a kernel.
  void check_kernel(const std::string& ops, const std::string& kernel, bool optional,
                    ConfigPlace at, const std::string& path) {
    const std::string key = ops + " " + kernel;
    auto it = has_kernel_.find(key);
    if (it == has_kernel_.end()) {
      bool has = false;
      for (const std::string& op : matching(ops))
        for (const std::string& id : kernels_[op]) has = has || glob_matches(kernel, id);
      it = has_kernel_.emplace(key, has).first;
    }
    if (it->second) return;
    const std::string whose = has_wildcard(ops) ? "no op that matches '" + ops + "' has a kernel"
                                                : ops + " has no kernel";
    if (has_wildcard(kernel)) {
      problem(Severity::kWarning, at, path, fmt::format("{} that matches '{}'", whose, kernel), "");
      return;
    }
    if (optional) return;
    Names there;
    for (const std::string& op : matching(ops))
      there.insert(there.end(), kernels_[op].begin(), kernels_[op].end());
    sort_names(there);
    error(at, path, fmt::format("{} called '{}'", whose, kernel),
          advice(kernel, there, "the id of a kernel, or optional: true, would be right"));
  }

  void of_op(const std::string& path, const std::string& op, const KernelRef& ref) {
    if (check_op(op, ref.optional, ref.at, path))
      check_kernel(op, ref.id, ref.optional, ref.at, path);
  }

  // A kernel of any op.
  void anywhere(const KernelRef& ref, const std::string& path) {
    const bool has = std::any_of(all_kernels_.begin(), all_kernels_.end(),
                                 [&](const std::string& id) { return glob_matches(ref.id, id); });
    if (has) return;
    if (has_wildcard(ref.id))
      problem(Severity::kWarning, ref.at, path, fmt::format("no kernel matches '{}'", ref.id), "");
    else if (!ref.optional)
      error(ref.at, path, fmt::format("no kernel is called '{}'", ref.id),
            advice(ref.id, all_kernels_, "the id of a kernel, or optional: true, would be right"));
  }

  // ---- Rules ----

  void check_rules(RulesByOp* compiled) {
    const RuleCompiler compiler(config_);
    ConditionReport report = compiler.empty_report();
    for (const std::string& op : ops_) {
      const op::Program* program = known_.program(op);
      if (program == nullptr) continue;
      OpRules rules = compiler.compile(*program, &report);
      if (compiled != nullptr && !rules.empty())
        compiled->emplace(op, std::make_shared<const OpRules>(std::move(rules)));
    }
    for (size_t i = 0; i < config_.dispatch_rules.size(); ++i)
      check_rule(config_.dispatch_rules[i], fmt::format("dispatch_rules[{}]", i),
                 compiler.index_of(false, i, 0), report);
    // Told where the section stands.
    std::vector<ConfigProblem> before = std::move(problems_);
    problems_.clear();
    for (size_t i = 0; i < config_.score.size(); ++i)
      check_rule(config_.score[i], fmt::format("score[{}]", i), compiler.index_of(true, i, 0),
                 report);
    score_problems_ = std::move(problems_);
    problems_ = std::move(before);
  }

  template <class Rule>
  void check_rule(const Rule& r, const std::string& path, size_t index,
                  const ConditionReport& report) {
    // The reader has said so already of what stands in a file.
    if (r.operation.empty() || r.kernel.empty()) {
      if (r.at.line == 0) error(r.at, path, "an op or a kernel is missing", "both would be right");
      return;
    }
    if (!check_op(r.operation, r.optional, r.operation_at, path + ".operation")) return;
    check_kernel(r.operation, r.kernel, r.optional, r.kernel_at, path + ".kernel");
    const auto seen = report.seen.begin() + static_cast<ptrdiff_t>(index);
    const bool nobodys =
        std::find(seen, seen + static_cast<ptrdiff_t>(r.conditions.size()),
                  ConditionReport::kNoField) != seen + static_cast<ptrdiff_t>(r.conditions.size());
    for (size_t i = 0; i < r.conditions.size(); ++i) {
      const Condition& c = r.conditions[i];
      const auto& from = nobodys ? report.maybe : report.wrong;
      const auto wrong = from.find(index + i);
      if (wrong != from.end())
        error(c.at, condition_path(path, c), wrong->second.found, wrong->second.right);
      else if (report.seen[index + i] == ConditionReport::kNoField)
        unknown_field(r.operation, c, condition_path(path, c));
    }
  }

  static std::string condition_path(const std::string& path, const Condition& c) {
    const bool plain = base::is_bare_word(c.key) && c.key.size() <= 120;
    return plain ? path + ".conditions." + c.key
                 : path + ".conditions[" + base::excerpt(c.key) + "]";
  }

  const Names& fields_of(const std::string& ops) {
    const auto [it, is_new] = fields_.try_emplace(ops);
    if (!is_new) return it->second;
    for (const std::string& op : matching(ops))
      if (const op::Program* program = known_.program(op))
        for (std::string& name : OpFields(*program).names()) it->second.push_back(std::move(name));
    sort_names(it->second);
    return it->second;
  }

  void unknown_field(const std::string& ops, const Condition& c, const std::string& path) {
    // An op whose fields are not known may have it.
    for (const std::string& op : matching(ops))
      if (known_.program(op) == nullptr) return;
    const Names& fields = fields_of(ops);
    const std::string what = has_wildcard(ops) ? "no op that matches '" + ops + "' has this field"
                                               : "calls of " + ops + " have no such field";
    error(c.at, path, what, field_advice(c.key, fields));
  }

  static std::string field_advice(const std::string& key, const Names& fields) {
    // A field with something behind it that is no operator.
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
    return fmt::format("{}, or a label as label.{}, would be right", base::one_of(plain), name);
  }

  // ---- Policy and settings ----

  ConfigPlace place(std::string_view section, std::string_view name) const {
    const auto it = config_.sources.places.find(fmt::format("{}/{}", section, name));
    return it == config_.sources.places.end() ? ConfigPlace() : it->second;
  }

  void check_policy() {
    const Policy& p = config_.policy;
    for (const auto& [op, order] : p.per_op) {
      const std::string path = "policy.per_op." + op;
      if (!check_op(op, false, place("policy.per_op", op), path)) continue;
      for (size_t i = 0; i < order.size(); ++i)
        check_token(op, order[i], fmt::format("{}[{}]", path, i));
    }
    for (const auto& [op, kernel] : p.locks)
      of_op("policy.locks." + op, op, {kernel, false, place("policy.locks", op)});
    if (p.allow_kernels) check_list("policy.allow_kernels", *p.allow_kernels);
    check_list("policy.deny_kernels", p.deny_kernels);
    if (p.allow_vendors) check_vendors("policy.allow_vendors", *p.allow_vendors);
    check_vendors("policy.deny_vendors", p.deny_vendors);
    const Names backends = known_.backends();
    for (const auto& [name, on] : p.backends)
      if (std::find(backends.begin(), backends.end(), name) == backends.end())
        error(place("policy.backends", name), "policy.backends." + name,
              fmt::format("no backend is called '{}'", name),
              advice(name, backends, "the name of a backend would be right"));
  }

  void check_token(const std::string& op, const std::string& token, const std::string& path) {
    constexpr std::string_view kImpl = "impl:", kVendor = "vendor:";
    const ConfigPlace at = place("policy.per_op", op);
    if (token.starts_with(kImpl))
      check_kernel(op, token.substr(kImpl.size()), false, at, path);
    else if (token.starts_with(kVendor))
      check_vendor(token.substr(kVendor.size()), at, path);
  }

  void check_list(const std::string& section, const Names& globs) {
    for (size_t i = 0; i < globs.size(); ++i)
      anywhere({globs[i], false, place(section, globs[i])}, fmt::format("{}[{}]", section, i));
  }
  void check_vendors(const std::string& section, const Names& names) {
    for (size_t i = 0; i < names.size(); ++i)
      check_vendor(names[i], place(section, names[i]), fmt::format("{}[{}]", section, i));
  }
  // A plugin may bring kernels of a vendor at any time.
  void check_vendor(const std::string& name, ConfigPlace at, const std::string& path) {
    const Names vendors = known_.vendors();
    if (std::find(vendors.begin(), vendors.end(), name) == vendors.end())
      problem(Severity::kWarning, at, path, fmt::format("no kernel has the vendor '{}'", name),
              base::closest(name, vendors).empty() ? "" : advice(name, vendors, ""));
  }

  void check_mode(const std::string& mode, ConfigPlace at, const std::string& path) {
    Names modes = mode_names(nullptr);
    for (std::string& name : known_.modes()) modes.push_back(std::move(name));
    if (std::find(modes.begin(), modes.end(), mode) == modes.end())
      error(at, path, fmt::format("no mode is called '{}'", mode),
            advice(mode, modes, "a mode would be right"));
  }

  // Functions may be declared, and backends come, later: what is not known now is only suspicious.
  void check_functions() {
    const Names functions = known_.functions(), backends = known_.backends();
    Names names = functions;
    for (const std::string& f : functions) names.push_back(f.substr(0, f.find('/')));
    for (const auto& [key, rule] : config_.functions) {
      const std::string path = base::is_bare_word(key)
                                   ? "functions." + key
                                   : fmt::format("functions[{}]", base::quote(key));
      // clang 14 captures no structured bindings.
      const bool found =
          std::any_of(names.begin(), names.end(),
                      [&, &glob = key](const std::string& n) { return glob_matches(glob, n); });
      // Where none are declared at all, as in the command, nobody can tell.
      if (!found && !names.empty())
        problem(Severity::kWarning, rule.at, path, fmt::format("no function matches '{}' now", key),
                base::closest(key, names).empty() ? "" : advice(key, names, ""));
      const auto look = [&, &at = rule.at](const Names& listed) {
        for (const std::string& b : listed)
          if (std::find(backends.begin(), backends.end(), b) == backends.end() &&
              !base::closest(b, backends).empty())
            problem(Severity::kWarning, at, path, fmt::format("no backend is called '{}' now", b),
                    advice(b, backends, ""));
      };
      if (rule.backends) look(*rule.backends);
      look(rule.deny);
    }
  }

  void check_canary(const CanaryRule& r, const std::string& path) {
    // Of what stands in a file the reader has said so already.
    if (r.at.line == 0) {
      if (r.op.empty() || r.one_in < 1 || r.dump_most < 1 || r.rtol.value_or(0) < 0 ||
          r.atol.value_or(0) < 0)
        return error(r.at, path, "an op is missing, or a number is too small",
                     "an op, one_in and dump_most from 1 and a tolerance from 0 would be right");
    } else if (r.op.empty()) {
      return;
    }
    if (!check_op(r.op, r.optional, r.op_at, path + ".op")) return;
    if (r.kernel != "*") check_kernel(r.op, r.kernel, r.optional, r.kernel_at, path + ".kernel");
    if (r.against != "reference" && !has_wildcard(r.against))
      check_kernel(r.op, r.against, r.optional, r.against_at, path + ".against");
  }

  void check_modes() {
    const ConfigSettings& s = config_.settings;
    if (s.mode) check_mode(*s.mode, place("settings.mode", ""), "settings.mode");
    for (const auto& [op, mode] : s.modes) {
      const ConfigPlace at = place("settings.modes", op);
      check_op(op, false, at, "settings.modes." + op);
      check_mode(mode, at, "settings.modes." + op);
    }
  }

  // What the reader cannot see of one value alone, and values that were made in code.
  void check_breaker() {
    const Status status = validate(breaker_of(config_));
    if (status.ok()) return;
    const bool cap = config_.settings.breaker.cooldown_cap.has_value();
    const std::string path = cap ? "settings.breaker.cooldown_cap" : "settings.breaker.cooldown";
    error(place(path, ""), "settings.breaker", std::string(status.message()), "");
  }

  const Config& config_;
  const Known& known_;
  Names ops_, all_kernels_;
  std::map<std::string, Names> kernels_, fields_;
  std::unordered_map<std::string, Names> matching_;
  std::unordered_map<std::string, bool> has_kernel_;
  std::vector<ConfigProblem> problems_, score_problems_;
};

}  // namespace

std::vector<ConfigProblem> check_config(const Config& config, const Known& known,
                                        RulesByOp* compiled) {
  return Checker(config, known).check(compiled);
}

void check_reading(ConfigReading& reading, const Known& known, RulesByOp* compiled) {
  std::vector<ConfigProblem> more = check_config(reading.config, known, compiled);
  std::vector<ConfigProblem>& all = reading.problems;
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  const auto rank = [&](const ConfigProblem& p) {
    return std::find(reading.files.begin(), reading.files.end(), p.file) - reading.files.begin();
  };
  std::stable_sort(all.begin(), all.end(), [&](const ConfigProblem& a, const ConfigProblem& b) {
    return std::tuple(rank(a), a.line, a.column) < std::tuple(rank(b), b.line, b.column);
  });
}

}  // namespace yard::policy
