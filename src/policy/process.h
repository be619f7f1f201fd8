// SPDX-License-Identifier: Apache-2.0
// Where policies come from: sources, modes of the program, rule files, and the process.
#pragma once

#include <yard/explain.h>

#include <set>

#include "policy/clauses.h"
#include "policy/environment.h"
#include "policy/rollout.h"

namespace yard::policy {

// ---- Sources, weakest first ----

struct Source {
  const char* name;  // "environment", "process", "scope", "call"
  const Policy* policy;
};

// Lists the set fields with the source that decided each. Deny lists name every source.
std::vector<Explanation::PolicyNote> notes(std::span<const Source> sources);
std::vector<Explanation::PolicyNote> notes(const Policy& policy, const char* source);

struct ProgramMode {  // immutable once published
  const char* name;   // never freed: result records point to it
  ModeProvider provider;
};
using Modes = std::map<std::string, std::shared_ptr<const ProgramMode>, std::less<>>;

Result<std::shared_ptr<const ProgramMode>> make_mode(std::string_view name, ModeProvider provider);
// Returns the names of the built-in modes and of `modes`, which may be null.
std::vector<std::string> mode_names(const Modes* modes);
Status check_mode_name(std::string_view name, const Modes* modes);

// ---- A rule file in force, and its rules compiled for each op ----

class FileRules {
 public:
  explicit FileRules(Config c, RulesByOp rules = {})
      : shared_config(std::make_shared<const Config>(std::move(c))),
        config(*shared_config),
        said(policy_of(config)),
        rules_(std::move(rules)) {}
  FileRules(const FileRules&) = delete;
  FileRules& operator=(const FileRules&) = delete;

  // Returns null if the op has no rules. Compiles rules for ops that were not known from the start.
  std::shared_ptr<const OpRules> rules_for(
      const std::shared_ptr<const op::Program>& program) const {
    if (const auto it = rules_.find(program); it != rules_.end()) return it->second;
    auto rules = std::make_shared<const OpRules>(compile_rules(config, *program));
    return rules->empty() ? nullptr : rules;
  }
  // Whether the conditions have been checked for the program.
  bool knows(const std::shared_ptr<const op::Program>& program) const {
    return rules_.contains(program);
  }
  bool concerns(std::string_view op) const {
    const auto matches = [&](const auto& rule) { return glob_matches(rule.operation, op); };
    return std::ranges::any_of(config.dispatch_rules, matches) ||
           std::ranges::any_of(config.score, matches);
  }

  const std::shared_ptr<const Config> shared_config;
  const Config& config;
  const Policy said;  // policy, locks, denies and allows

 private:
  const RulesByOp rules_;
};

// See ConfigVersion.
struct RulesVersion {
  uint64_t number = 0;
  std::string sha256{};  // empty for rules that were a value
  std::chrono::system_clock::time_point time{};
  std::string source{};
  std::shared_ptr<const Config> config{}, before{};  // null if there were no rules
};

// ---- The policy of the process, from rule file, environment and API (weakest first) ----

struct Reading {  // of the environment
  Environment good;
  std::vector<EnvProblem> problems;
};

struct ProcessPolicy {  // immutable once published
  std::shared_ptr<const Reading> reading = std::make_shared<Reading>();
  Policy set;                                   // through the API
  std::shared_ptr<const FileRules> file;        // may be null
  std::shared_ptr<const RulesVersion> version;  // null if there have been no rules
  op::Labels labels;                            // of every call
  BreakerSettings breakers;                     // through the API; weaker than the file
  StaticMap mapped;                             // through the API; stronger than the file
  std::shared_ptr<const Modes> modes = std::make_shared<Modes>();
  std::shared_ptr<const Rollout> rollout;  // may be null
  // Indexed by backend. Read with the environment or when the backend is registered.
  std::map<std::string, OwnSwitch, std::less<>> own_switches;
  std::set<std::string, std::less<>> by_own;  // backends that own_switches decide
  Policy environment;  // of the reading and own_switches, with the registered names of backends
  Policy in_force;     // of all sources

  // Computes the last three for the registered backends.
  void settle(const std::vector<std::string>& backends) {
    environment = with_backend_names(reading->good.policy, backends);
    by_own.clear();
    for (const auto& [backend, own] : own_switches)
      if (own.on && environment.backends.try_emplace(backend, *own.on).second)
        by_own.insert(backend);
    in_force = merge(file != nullptr ? merge(file->said, environment) : environment, set);
    if (rollout == nullptr) return;
    auto next = std::make_shared<ProcessPolicy>(*this);
    next->file = rollout->next().file;
    next->rollout = nullptr;
    next->settle(backends);
    rollout = rollout->with(std::move(next));
  }
};

ClauseSources sources_for(const ProcessPolicy& process,
                          const std::shared_ptr<const op::Program>& program);
// `name` must be valid; see check_mode_name().
void set_mode(ModeSettings& to, const Modes& modes, const std::string& name, const char* by);

}  // namespace yard::policy
