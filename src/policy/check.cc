// SPDX-License-Identifier: Apache-2.0
// The sections of a Config held against what is registered.
#include "policy/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/text.h"
#include "policy/checker.h"
#include "policy/config_keys.h"
#include "policy/config_values.h"
#include "policy/modes.h"

namespace yard::policy {
namespace {

class SectionChecks : private Checker {
 public:
  using Checker::Checker;

  std::vector<ConfigProblem> check(RulesByOp* compiled) {
    const Config& c = config();
    for (size_t i = 0; i < c.defaults.fallback_policy.size(); ++i)
      anywhere(c.defaults.fallback_policy[i], fmt::format("defaults.fallback_policy[{}]", i));
    const std::vector<ConfigProblem> of_score = check_rules(*this, RulePart::kAll, compiled);
    for (const auto& [op, ref] : c.kernel_locks) of_op("kernel_locks." + op, op, ref);
    for (size_t i = 0; i < c.kernel_denies.size(); ++i)
      anywhere(c.kernel_denies[i], fmt::format("kernel_denies[{}]", i));
    if (c.kernel_allows)
      for (size_t i = 0; i < c.kernel_allows->size(); ++i)
        anywhere((*c.kernel_allows)[i], fmt::format("kernel_allows[{}]", i));
    for (const auto& [op, chain] : c.fallback_chains)
      for (size_t i = 0; i < chain.size(); ++i)
        of_op(fmt::format("fallback_chains.{}[{}]", op, i), op, chain[i]);
    check_policy();
    for (const auto& [op, ref] : c.static_kernel_map) of_op("static_kernel_map." + op, op, ref);
    problems().insert(problems().end(), of_score.begin(), of_score.end());
    check_functions();
    for (size_t i = 0; i < c.canary.size(); ++i)
      check_canary(c.canary[i], fmt::format("canary[{}]", i));
    check_modes();
    check_breaker();
    return std::move(problems());
  }

 private:
  ConfigPlace place(std::string_view section, std::string_view name) const {
    const auto it = config().sources.places.find(fmt::format("{}/{}", section, name));
    return it == config().sources.places.end() ? ConfigPlace() : it->second;
  }

  void check_policy() {
    const Policy& p = config().policy;
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
    const NameList backends = known().backends();
    for (const auto& [name, on] : p.backends)
      if (std::find(backends.begin(), backends.end(), name) == backends.end())
        error(place("policy.backends", name), "policy.backends." + name,
              fmt::format("no backend is called '{}'", name),
              advice(name, backends, "expected the name of a backend"));
  }

  void check_token(const std::string& op, const std::string& token, const std::string& path) {
    constexpr std::string_view kImpl = "impl:", kVendor = "vendor:";
    const ConfigPlace at = place("policy.per_op", op);
    if (token.starts_with(kImpl))
      check_kernel(op, token.substr(kImpl.size()), false, at, path);
    else if (token.starts_with(kVendor))
      check_vendor(token.substr(kVendor.size()), at, path);
  }

  void check_list(const std::string& section, const NameList& globs) {
    for (size_t i = 0; i < globs.size(); ++i)
      anywhere({globs[i], false, place(section, globs[i])}, fmt::format("{}[{}]", section, i));
  }
  void check_vendors(const std::string& section, const NameList& names) {
    for (size_t i = 0; i < names.size(); ++i)
      check_vendor(names[i], place(section, names[i]), fmt::format("{}[{}]", section, i));
  }
  // A plugin may bring kernels of a vendor at any time.
  void check_vendor(const std::string& name, ConfigPlace at, const std::string& path) {
    const NameList vendors = known().vendors();
    if (std::find(vendors.begin(), vendors.end(), name) == vendors.end())
      problem(Severity::kWarning, at, path, fmt::format("no kernel has the vendor '{}'", name),
              base::closest(name, vendors).empty() ? "" : advice(name, vendors, ""));
  }

  void check_mode(const std::string& mode, ConfigPlace at, const std::string& path) {
    NameList modes = mode_names(nullptr);
    for (std::string& name : known().modes()) modes.push_back(std::move(name));
    if (std::find(modes.begin(), modes.end(), mode) == modes.end())
      error(at, path, fmt::format("no mode is called '{}'", mode),
            advice(mode, modes, "expected a mode"));
  }

  // Functions may be declared, and backends come, later: what is not known now is only suspicious.
  void check_functions() {
    const NameList functions = known().functions(), backends = known().backends();
    NameList names = functions;
    for (const std::string& f : functions) names.push_back(f.substr(0, f.find('/')));
    for (const auto& [key, rule] : config().functions) {
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
      const auto look = [&, &at = rule.at](const NameList& listed) {
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
                     "expected an op, one_in and dump_most from 1 and a tolerance from 0");
    } else if (r.op.empty()) {
      return;
    }
    if (!check_op(r.op, r.optional, r.op_at, path + ".op")) return;
    if (r.kernel != "*") check_kernel(r.op, r.kernel, r.optional, r.kernel_at, path + ".kernel");
    if (r.against != "reference" && !has_wildcard(r.against))
      check_kernel(r.op, r.against, r.optional, r.against_at, path + ".against");
  }

  void check_modes() {
    const ConfigSettings& s = config().settings;
    if (s.mode) check_mode(*s.mode, place("settings.mode", ""), "settings.mode");
    for (const auto& [op, mode] : s.modes) {
      const ConfigPlace at = place("settings.modes", op);
      check_op(op, false, at, "settings.modes." + op);
      check_mode(mode, at, "settings.modes." + op);
    }
  }

  // What the reader cannot see of one value alone, and values that were made in code.
  void check_breaker() {
    const Status status = validate(breaker_of(config()));
    if (status.ok()) return;
    const bool cap = config().settings.breaker.cooldown_cap.has_value();
    const std::string path = cap ? "settings.breaker.cooldown_cap" : "settings.breaker.cooldown";
    error(place(path, ""), "settings.breaker", std::string(status.message()), "");
  }
};

}  // namespace

std::vector<ConfigProblem> check_config(const Config& config, const Known& known,
                                        RulesByOp* compiled) {
  return SectionChecks(config, known).check(compiled);
}

std::vector<ConfigProblem> check_conditions(const Config& config, const Known& known) {
  Checker checker(config, known);
  std::vector<ConfigProblem> of_score = check_rules(checker, RulePart::kConditions, nullptr);
  std::vector<ConfigProblem> all = std::move(checker.problems());
  all.insert(all.end(), std::make_move_iterator(of_score.begin()),
             std::make_move_iterator(of_score.end()));
  return all;
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
  // No error goes before a warning does.
  std::stable_partition(all.begin(), all.end(),
                        [](const ConfigProblem& p) { return p.severity == Severity::kError; });
  if (all.size() > kMostProblems) all.resize(kMostProblems);
  const bool has_error = all[0].severity == Severity::kError;
  std::stable_sort(all.begin(), all.end(), by_place);
  all.push_back(more_problems(reading.files.empty() ? "configuration" : reading.files[0],
                              has_error ? Severity::kWarning : Severity::kError));
}

}  // namespace yard::policy
