// SPDX-License-Identifier: Apache-2.0
#include "policy/checker.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "policy/config_keys.h"

namespace yard::policy {

std::string advice(std::string_view word, const NameList& known, const std::string& otherwise) {
  const std::string_view near = base::closest(word, known);
  if (!near.empty()) return fmt::format("did you mean '{}'?", near);
  if (!known.empty() && known.size() <= 12) return "expected " + base::one_of(known);
  return otherwise;
}

void sort_names(NameList& names) {
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
  const NameList& files = config_.sources.files;
  problems_.push_back({severity, at.file < files.size() ? files[at.file] : "configuration", at.line,
                       at.column, std::move(path), std::move(found), std::move(right)});
}

const NameList& Checker::matching(const std::string& pattern) {
  const auto [it, is_new] = matching_.try_emplace(pattern);
  if (is_new)
    for (const std::string& op : ops_)
      if (glob_matches(pattern, op)) it->second.push_back(op);
  return it->second;
}

bool Checker::check_op(const std::string& op, bool optional, ConfigPlace at,
                       const std::string& path) {
  if (!matching(op).empty()) return true;
  if (has_wildcard(op))
    problem(Severity::kWarning, at, path, fmt::format("no op matches '{}'", op), "");
  else if (!optional)
    error(at, path, fmt::format("no op is called '{}'", op),
          advice(op, ops_, "expected the name of an op"));
  return false;
}

void Checker::check_kernel(const std::string& ops, const std::string& kernel, bool optional,
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
  const std::string whose =
      has_wildcard(ops) ? "no op that matches '" + ops + "' has a kernel" : ops + " has no kernel";
  if (has_wildcard(kernel)) {
    problem(Severity::kWarning, at, path, fmt::format("{} that matches '{}'", whose, kernel), "");
    return;
  }
  if (optional) return;
  NameList there;
  for (const std::string& op : matching(ops))
    there.insert(there.end(), kernels_[op].begin(), kernels_[op].end());
  sort_names(there);
  error(at, path, fmt::format("{} called '{}'", whose, kernel),
        advice(kernel, there, "expected the id of a kernel, or optional: true"));
}

void Checker::of_op(const std::string& path, const std::string& op, const KernelRef& ref) {
  if (check_op(op, ref.optional, ref.at, path))
    check_kernel(op, ref.id, ref.optional, ref.at, path);
}

void Checker::anywhere(const KernelRef& ref, const std::string& path) {
  const bool has = std::any_of(all_kernels_.begin(), all_kernels_.end(),
                               [&](const std::string& id) { return glob_matches(ref.id, id); });
  if (has) return;
  if (has_wildcard(ref.id))
    problem(Severity::kWarning, ref.at, path, fmt::format("no kernel matches '{}'", ref.id), "");
  else if (!ref.optional)
    error(ref.at, path, fmt::format("no kernel is called '{}'", ref.id),
          advice(ref.id, all_kernels_, "expected the id of a kernel, or optional: true"));
}

}  // namespace yard::policy
