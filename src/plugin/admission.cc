// SPDX-License-Identifier: Apache-2.0
// Loader: checks before a library is opened in this process. It may have to be verified, and to survive a probe in a
// separate process.
#include <fmt/format.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "plugin/loader.h"
#include "plugin/probe.h"

namespace yard::plugin {

std::vector<std::string> Loader::dependencies_of(const PluginIndex& index,
                                                 const PluginRecord& record) {
  std::vector<std::string> to;
  for (const PluginRecord& r : index.records())
    if (r.path != record.path && r.manifest.name != record.manifest.name &&
        (r.state() == PluginState::kFound || r.state() == PluginState::kLoaded) &&
        std::any_of(record.manifest.ops.begin(), record.manifest.ops.end(),
                    [&](const std::string& op) { return r.serves(PluginOffer::kOp, op); }))
      to.push_back(r.path);
  return to;
}

void Loader::run_and_store_probe(const PluginRecord& record, const base::File& file,
                                 std::vector<std::string> others, ProbeReport& report) const {
  probe_in_child(
      {file, std::move(others),
       services_.device_features ? services_.device_features() : std::vector<std::string>(),
       settings_},
      report);
  // Only the behaviour of the plugin is stored; what it lacks on this machine may be available later.
  if (!report.passed() && report.reason != PluginReason::kProbeFailed) return;
  const Status s =
      results_.save(ResultStore::Check::kProbe, record.sha256, {report.passed(), report.detail});
  if (!s.ok() && base::log_enabled("plugin", LogLevel::kInfo))
    base::log(LogLevel::kInfo, "plugin",
              fmt::format("The probe result of {} is not stored: {}", record.path, s.message()));
}

Refusal Loader::check_verified(const PluginRecord& r) const {
  std::string why;
  const auto known = results_.find(ResultStore::Check::kVerify, r.sha256, &why);
  if (known && known->passed) return {};
  return {PluginReason::kNotVerified, fmt::format("`yard verify {}` {} it with digest {}{}", r.path,
                                                  known ? "failed on" : "has not passed", r.sha256,
                                                  why.empty() ? "" : fmt::format("; {}", why))};
}

void Loader::enforce_rules() noexcept {
  // Again if rules have changed meanwhile: their thread found the lock taken, or something under way.
  while (rules_pending_.load()) {
    if (inside() || services_.choosing()) return;
    const LoadingLock lock(*this, std::try_to_lock);
    if (!lock.owns_lock() || !state().underway.empty()) return;
    if (!rules_pending_.exchange(false)) continue;
    try {
      unload_unverified();
    } catch (const std::bad_alloc&) {  // the next load or change tries again
      rules_pending_.store(true);
      return;
    }
  }
}

void Loader::unload_unverified() {
  std::vector<std::pair<std::string, Refusal>> out;
  for (const PluginRecord& r : state().index.records())
    if (r.state() == PluginState::kLoaded)
      if (Refusal why = check_verified(r); why.refused()) out.emplace_back(r.path, std::move(why));
  // Plugins that others depend on can be unloaded after those.
  std::vector<std::string> dependants;
  for (bool any = true; any;) {
    any = false;
    dependants.clear();
    for (auto at = out.begin(); at != out.end();) {
      const auto& [path, why] = *at;
      const PluginRecord* const found = state().index.find_path(path);
      if (found == nullptr || found->state() != PluginState::kLoaded ||
          underway(state(), path) != nullptr) {
        rules_pending_.store(
            true);  // another thread has changed it, and enforces them when it is done
        at = out.erase(at);
        continue;
      }
      PluginRecord r = *found;
      const Claim claim(*this, path);
      if (const Status s = unpublish(r); !s.ok()) {
        dependants.push_back(fmt::format("Plugin '{}' is not verified and stays loaded: {}; {}",
                                         r.manifest.name, s.message(), why.detail));
        ++at;
        continue;
      }
      LoadingLock::log(LogLevel::kWarn,
                       fmt::format("{}; it is unloaded", to_status(path, why).message()));
      r.refuse(why);
      store(std::move(r));
      at = out.erase(at);
      any = true;
    }
  }
  for (std::string& text : dependants) LoadingLock::log(LogLevel::kError, std::move(text));
}

Refusal Loader::check_stored_results(PluginProbe mode, const PluginRecord& r) const {
  if (settings_.require_verified || verified_in_rules_.load(std::memory_order_relaxed))
    YARD_RETURN_IF_REFUSED(check_verified(r));
  if (mode != PluginProbe::kChanged) return {};
  const auto known = results_.find(ResultStore::Check::kProbe, r.sha256);
  if (!known || known->passed) return {};
  return {PluginReason::kProbeFailed,
          fmt::format("when it was probed before, it {}; `yard plugin probe {}` probes it again",
                      known->detail, r.path)};
}

PluginProbe Loader::replace_probe_mode(const LoaderState& state) const {
  if (const auto set = probe_setting(state)) return *set;
  std::string why;
  return find_probe_program(settings_, why).empty() ? PluginProbe::kNever : PluginProbe::kChanged;
}

Refusal Loader::admit(PluginProbe mode, const PluginRecord& r, const base::File& file,
                      std::vector<std::string> others) const {
  YARD_RETURN_IF_REFUSED(check_stored_results(mode, r));
  if (mode == PluginProbe::kNever) return {};
  if (mode == PluginProbe::kChanged && results_.find(ResultStore::Check::kProbe, r.sha256))
    return {};
  ProbeReport report;
  run_and_store_probe(r, file, std::move(others), report);
  if (report.reason == PluginReason::kProbeFailed)
    return {report.reason, fmt::format("in a separate process it {}", report.detail)};
  return {report.reason, report.detail};
}

ProbeReport Loader::probe(const std::string& path) {
  ProbeReport report;
  PluginFile file;
  const PluginRecord r = inspected(path, &file);
  if (r.refusal.refused()) {
    report.reason = r.refusal.reason, report.detail = r.refusal.detail;
  } else {
    std::vector<std::string> others;
    {
      LoaderState& s = state();
      const std::lock_guard lock(s.lock);
      others = dependencies_of(s.index, r);
    }
    run_and_store_probe(r, file.file, std::move(others), report);
  }
  report.info = with_results(r.info());
  return report;
}

Status Loader::save_verified(std::string_view sha256, bool passed) {
  return results_.save(ResultStore::Check::kVerify, sha256, {passed, ""});
}

PluginInfo Loader::with_results(PluginInfo info) const {
  if (info.sha256.empty()) return info;
  if (const auto known = results_.find(ResultStore::Check::kProbe, info.sha256))
    info.probed = known->passed;
  const auto verified = results_.find(ResultStore::Check::kVerify, info.sha256);
  info.verified = verified && verified->passed;
  return info;
}

const void* Loader::keep_of(std::string_view name) {
  LoaderState& s = state();
  const std::lock_guard lock(s.lock);
  const PluginRecord* r = s.index.find(name);
  if (r == nullptr || r->state() != PluginState::kLoaded) return nullptr;
  return r->keep_alive.lock().get();
}

}  // namespace yard::plugin
