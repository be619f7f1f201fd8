// SPDX-License-Identifier: Apache-2.0
// What must be known of a library before it is opened in this process: that it was verified, that it survives
// a process of its own.
#include <fmt/format.h>

#include <algorithm>

#include "base/digest.h"
#include "base/log.h"
#include "plugin/loader.h"
#include "plugin/probe.h"

namespace yard::plugin {

// Plugins that may bring the ops it serves.
std::vector<std::string> Loader::others_for(const Catalogue& catalogue, const Record& record) {
  std::vector<std::string> to;
  for (const Record& r : catalogue.records())
    if (r.path != record.path && r.manifest.name != record.manifest.name &&
        (r.state() == PluginState::kFound || r.state() == PluginState::kLoaded) &&
        std::any_of(record.manifest.ops.begin(), record.manifest.ops.end(),
                    [&](const std::string& op) { return r.serves(PluginOffer::kOp, op); }))
      to.push_back(r.path);
  return to;
}

void Loader::try_out(const Record& record, const base::File& file, std::vector<std::string> others,
                     ProbeReport& report) const {
  run_probe({file, std::move(others),
             services_.device_features ? services_.device_features() : std::vector<std::string>(),
             settings_},
            report);
  // What it lacks here may be there tomorrow; how it behaves is its own.
  if (!report.passed() && report.reason != PluginReason::kProbeFailed) return;
  const Status s =
      results_.remember(Results::Of::kProbe, record.sha256, {report.passed(), report.detail});
  if (!s.ok() && base::log_enabled("plugin", LogLevel::kInfo))
    base::log(LogLevel::kInfo, "plugin",
              fmt::format("The probe of {} is not remembered: {}", record.path, s.message()));
}

Refusal Loader::not_verified(const Record& r) const {
  std::string why;
  const auto known = results_.find(Results::Of::kVerify, r.sha256, &why);
  if (known && known->passed) return {};
  return {PluginReason::kNotVerified, fmt::format("`yard verify {}` {} it with digest {}{}", r.path,
                                                  known ? "failed on" : "has not passed", r.sha256,
                                                  why.empty() ? "" : fmt::format("; {}", why))};
}

void Loader::keep_to_rules() noexcept {
  if (!unjudged_.load()) return;
  if (Turn::mine() || Library::inside_plugin() || services_.choosing()) return;
  LoaderState& b = state();
  const Turn turn(*this, b, std::try_to_lock);
  if (!turn.taken() || !unjudged_.exchange(false)) return;
  std::vector<Record> out;
  for (const Record& r : b.catalogue.records())
    if (r.state() == PluginState::kLoaded)
      if (Refusal why = not_verified(r); why.refused())
        out.emplace_back(r).refusal = std::move(why);
  // Those that others depend on can go after them.
  for (bool any = true; any;) {
    any = false;
    for (auto r = out.begin(); r != out.end();) {
      if (!take_out(*r).ok()) {
        ++r;
        continue;
      }
      base::log(LogLevel::kWarn, "plugin",
                fmt::format("{}; it was loaded, and is taken out",
                            to_status(r->path, r->refusal).message()));
      r->said = PluginState::kRefused;
      put(b, std::move(*r));
      r = out.erase(r);
      any = true;
    }
  }
  for (const Record& r : out)
    base::log(LogLevel::kError, "plugin",
              fmt::format("Plugin '{}' is not verified and stays loaded: {}; {}", r.manifest.name,
                          take_out(r).message(), r.refusal.detail));
}

Refusal Loader::known_against(PluginProbe mode, const Record& r) const {
  if (settings_.require_verified || verified_in_rules_.load(std::memory_order_relaxed))
    YARD_RETURN_IF_REFUSED(not_verified(r));
  if (mode != PluginProbe::kChanged) return {};
  const auto known = results_.find(Results::Of::kProbe, r.sha256);
  if (!known || known->passed) return {};
  return {PluginReason::kProbeFailed,
          fmt::format("when it was tried before, it {}; `yard plugin probe {}` tries it again",
                      known->detail, r.path)};
}

Refusal Loader::vet(LoaderState& state, const Record& r, const base::File& file) const {
  const PluginProbe mode = probe_mode(state);
  YARD_RETURN_IF_REFUSED(known_against(mode, r));
  if (mode == PluginProbe::kNever) return {};
  if (mode == PluginProbe::kChanged && results_.find(Results::Of::kProbe, r.sha256)) return {};
  ProbeReport report;
  try_out(r, file, others_for(state.catalogue, r), report);
  if (report.reason == PluginReason::kProbeFailed)
    return {report.reason, fmt::format("in a process of its own it {}", report.detail)};
  return {report.reason, report.detail};
}

ProbeReport Loader::probe(const std::string& path) {
  ProbeReport report;
  Directories directories(settings_.allow_writable);
  const Candidate c = look_at(path, directories, settings_.allow_writable, process_);
  Record r;
  r.path = path, r.manifest = c.manifest, r.id = c.id;
  Refusal refusal = c.refusal;
  if (c.file) {
    auto digest = base::sha256(c.file);
    if (digest.ok())
      r.sha256 = *digest;
    else if (!refusal.refused())
      refusal = {PluginReason::kUnreadable, std::string(digest.status().message())};
  }
  if (refusal.refused()) {
    r.refuse(refusal);
    report.reason = refusal.reason, report.detail = refusal.detail;
  } else {
    std::vector<std::string> others;
    {
      LoaderState& b = state();
      const std::lock_guard lock(b.data);
      others = others_for(b.catalogue, r);
    }
    try_out(r, c.file, std::move(others), report);
  }
  report.info = with_results(r.info());
  return report;
}

Status Loader::remember_verified(std::string_view sha256, bool passed) {
  return results_.remember(Results::Of::kVerify, sha256, {passed, ""});
}

PluginInfo Loader::with_results(PluginInfo info) const {
  if (info.sha256.empty()) return info;
  if (const auto known = results_.find(Results::Of::kProbe, info.sha256))
    info.probed = known->passed;
  const auto verified = results_.find(Results::Of::kVerify, info.sha256);
  info.verified = verified && verified->passed;
  return info;
}

const void* Loader::keep_of(std::string_view name) {
  LoaderState& b = state();
  const std::lock_guard lock(b.data);
  const Record* r = b.catalogue.find(name);
  if (r == nullptr || r->state() != PluginState::kLoaded) return nullptr;
  return r->lease.lock().get();
}

}  // namespace yard::plugin
