// SPDX-License-Identifier: Apache-2.0
// Loads and watches rule files, and applies settings that concern other parts than the dispatcher.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/events.h"
#include "base/log.h"
#include "base/results.h"
#include "policy/config_files.h"
#include "rules/rules.h"

namespace yard::rules {
namespace {

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto full = std::filesystem::absolute(path, error);
  return error ? path : full.string();
}

// Makes `use` write to another file from now on, or to none if the path is empty.
void use_file(const char* setting, const std::string& path, std::string& now,
              const std::function<Status(const std::string&)>& use) {
  if (path == now) return;
  now = path;
  if (const Status status = use(path); !status.ok())
    base::log(LogLevel::kError, "runtime",
              fmt::format("settings.{}: {}", setting, status.to_string()));
}

Status check_least(const char* what, std::chrono::nanoseconds is, std::chrono::milliseconds least) {
  if (is >= least) return {};
  return base::invalid("WatchSettings::{}: expected at least {} ms, got {} ms", what, least.count(),
                       std::chrono::duration<double, std::milli>(is).count());
}

}  // namespace

bool Rules::wants_hot_reload(const Config& config) {
  const std::string hot_reload = to_string(Mode::kHotReload);
  return config.settings.mode == hot_reload ||
         std::ranges::any_of(config.settings.modes,
                             [&](const auto& of) { return of.second == hot_reload; });
}

Status Rules::load(const std::string& path, Problems* problems, bool at_start) {
  if (path.empty()) {
    if (problems != nullptr) problems->clear();
    return clear();
  }
  YARD_RETURN_IF_ERROR(check_reentry());
  Submission o;
  o.reading = read_config(path), o.source = path, o.from = Origin::kFile;
  const bool asks = wants_hot_reload(o.reading.config);
  const std::string sha256 = o.reading.sha256;
  Status status = submit(std::move(o), problems);
  if (!status.ok()) {
    const bool first = core_.snapshot()->policy->file == nullptr;
    const std::lock_guard lock(lock_);
    if (!first || !(at_start || asks) || !watched_.path.empty()) return status;
    set_watched({.path = absolute(path), .by_mode = true, .refused = sha256});
  }
  Status started = follow_watch();
  return status.ok() ? started : status;
}

Status Rules::watch(const std::string& path, const WatchSettings& settings, Problems* problems) {
  YARD_RETURN_IF_ERROR(check_reentry());
  YARD_RETURN_IF_ERROR(check_least("debounce", settings.debounce, base::kLeastDebounce));
  YARD_RETURN_IF_ERROR(check_least("poll_interval", settings.poll_interval, base::kLeastInterval));
  Submission o;
  o.source = absolute(path), o.from = Origin::kWatchedFile;
  o.reading = read_config(o.source);
  {
    const std::lock_guard lock(lock_);
    set_watched({.path = o.source, .settings = settings});
  }
  Status status = submit(std::move(o), problems);
  YARD_RETURN_IF_ERROR(follow_watch());
  return status;
}

void Rules::unwatch() {
  {
    const std::lock_guard lock(lock_);
    set_watched({});
  }
  // If this thread runs a validator, the watcher may be waiting for it, and stop() could wait
  // forever. Without a path the watcher does nothing, so it need not be stopped.
  if (check_reentry().ok()) watcher_.stop();
}

void Rules::watch_as_asked(Origin from, const std::string& source, const std::string& sha256,
                           bool asks) {
  if (from == Origin::kValue || (!watched_.path.empty() && !watched_.by_mode)) return;
  if (!asks)
    set_watched({});
  else if (from == Origin::kFile)
    set_watched({.path = absolute(source), .by_mode = true, .good = sha256});
}

WatchSettings Rules::watch_settings(const WatchSettings& settings) const {
  const auto file = core_.snapshot()->policy->file;
  if (file == nullptr) return settings;
  const ConfigSettings::Reload& said = file->config.settings.reload;
  return {said.debounce.value_or(settings.debounce),
          said.poll_interval.value_or(settings.poll_interval)};
}

Status Rules::follow_watch() {
  for (;;) {
    std::unique_lock lock(lock_);
    const Watched now = watched_;
    const uint64_t number = watch_number_;
    lock.unlock();
    Status started;
    if (now.path.empty())
      watcher_.stop();
    else  // reads the file at once, because it may have changed
      started = watcher_.start({now.path}, watch_settings(now.settings));
    lock.lock();
    if (watch_number_ != number) continue;
    if (!started.ok()) set_watched({});
    return started;
  }
}

bool Rules::reread() {
  Submission o;
  WatchSettings settings;
  {
    const std::lock_guard lock(lock_);
    o.source = watched_.path, settings = watched_.settings, o.watch = watch_number_;
  }
  if (o.source.empty()) {
    if (const Status started = follow_watch(); !started.ok())
      base::log(LogLevel::kError, "policy",
                fmt::format("the rule file is not watched: {}", started.message()));
    return true;
  }
  // Files that change while they are read may belong to two versions. Parsing takes much longer, so
  // a change during parsing counts as the next change.
  std::vector<std::string> opened;
  std::vector<base::FileState> before;
  bool stable = true;
  o.reading = policy::read_config_from(o.source, [&](const std::string& file) {
    opened.push_back(file), before.push_back(base::file_states({file})[0]);
    auto text = policy::open_file(file);
    stable = stable && base::file_states(opened) == before;
    return text;
  });
  const std::vector<std::string> files = o.reading.files;
  const std::string sha256 = o.reading.sha256;
  const auto now = in_force();
  const bool stays = now != nullptr && now->source == o.source && now->sha256 == sha256;
  bool known = false, back = false;
  if (stable) {
    const std::lock_guard lock(lock_);
    if (watch_ended(o)) return false;
    // If the file has its accepted text again after a refused one, submit it only if its rules are
    // in force. A different text is needed to replace other rules, such as a rollback.
    known = o.reading.ok() && watched_.good == sha256 && !(watched_.refused && stays);
    if (known && std::exchange(watched_.refused, {})) problems_.clear(), back = true;
  }
  if (back)
    base::record({.kind = &base::event::kRules,
                  .runtime = core_.id,
                  .subject = o.source,
                  .reason = "the file has its accepted text again",
                  .number = now->number});
  if (stable && !known) {
    o.from = Origin::kWatchedFile;
    submit(std::move(o), nullptr).ignore();  // submit() has reported the error
  }
  watcher_.set(files, watch_settings(settings));
  const std::lock_guard lock(lock_);
  return stable && watched_.refused.value_or(watched_.good) == sha256;
}

// ---- Settings of the rules in force ----

// Recording publishes, which calls follow() again, so no lock is held. One thread continues until
// it has applied the rules in force, so that older settings are never applied last.
void Rules::follow() {
  check_later_ops();
  std::unique_lock lock(lock_);
  while (!applying_) {
    const auto file = core_.snapshot()->policy->file;
    if (applied_ == file) return;
    applied_ = file, applying_ = true;
    lock.unlock();
    try {
      apply_settings(file != nullptr ? file->config.settings : ConfigSettings());
    } catch (...) {  // out of memory; the next follow() tries again
      lock.lock();
      applied_ = nullptr, applying_ = false;
      throw;
    }
    lock.lock();
    applying_ = false;
  }
}

void Rules::apply_settings(const ConfigSettings& settings) {
  loader_.require_verified(settings.plugins.require_verified.value_or(false));
  if (settings.cache.lifetime) wake_();
  write_events(settings.events.value_or(""));
  use_file("telemetry.record", settings.telemetry.record.value_or(""), recorded_, record_);
}

void Rules::write_events(const std::string& path) {
  if (core_.snapshot()->policy->reading->good.events.empty())
    use_file("events", path, events_, base::write_events_to);
}

}  // namespace yard::rules

namespace yard {

const char* to_string(ConfigEvent::Kind kind) noexcept {
  constexpr const char* kNames[] = {"reloaded", "refused", "rolled back", "rollout",
                                    "rollout aborted"};
  const auto i = static_cast<size_t>(kind);
  return i < std::size(kNames) ? kNames[i] : "?";
}

std::string to_string(const ConfigEvent& e) {
  std::string text = e.source + ": " + to_string(e.kind);
  const bool stays =
      e.kind != ConfigEvent::Kind::kReloaded && e.kind != ConfigEvent::Kind::kRolledBack;
  if (stays && e.version == 0)
    text += ", there are no rules in force";
  else
    text += fmt::format(", version {} {} in force", e.version, stays ? "stays" : "is");
  for (const ConfigProblem& p : e.problems) text += "\n  " + to_string(p);
  return text;
}

}  // namespace yard
