// SPDX-License-Identifier: Apache-2.0
// Rules from files, and watching a file. The watcher's thread reads, checks and publishes; callers never do.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "policy/config_files.h"
#include "rules/rules.h"

namespace yard::rules {
namespace {

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto full = std::filesystem::absolute(path, error);
  return error ? path : full.string();
}

Status check_least(const char* what, std::chrono::nanoseconds is, std::chrono::milliseconds least) {
  if (is >= least) return {};
  return Status(Code::kInvalidArgument,
                fmt::format("WatchSettings::{}: expected at least {} ms, got {} ms", what,
                            least.count(), std::chrono::duration<double, std::milli>(is).count()));
}

}  // namespace

bool Rules::wants_hot_reload(const Config& config) {
  const ConfigSettings& settings = config.settings;
  const std::string hot_reload = to_string(Mode::kHotReload);
  return settings.mode == hot_reload ||
         std::any_of(settings.modes.begin(), settings.modes.end(),
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
    set_watched({.path = absolute(path), .by_mode = true, .seen = sha256, .refused = true});
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
  // The watcher may be waiting for a validator on this thread. Without a path it does nothing.
  if (check_reentry().ok()) watcher_.stop();
}

void Rules::watch_as_asked(Origin from, const std::string& source, const std::string& sha256,
                           bool asks) {
  if (from == Origin::kValue || (!watched_.path.empty() && !watched_.by_mode)) return;
  if (!asks)
    set_watched({});
  else if (from == Origin::kFile)
    set_watched({.path = absolute(source), .by_mode = true, .seen = sha256, .good = sha256});
}

base::WatchHow Rules::watch_settings(const WatchSettings& settings) const {
  const auto file = core_.snapshot()->policy->file;
  const ConfigSettings::Reload said =
      file != nullptr ? file->config.settings.reload : ConfigSettings::Reload();
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
    else  // it reads the file at once, which may have changed since
      started = watcher_.start({now.path}, watch_settings(now.settings));
    lock.lock();
    // Another thread may have started or ended a watch meanwhile.
    if (watch_number_ != number) continue;
    if (!started.ok()) set_watched({});
    return started;
  }
}

// A text that was accepted is submitted again after another text was refused in between; but not where other rules have
// come into force since, such as an earlier version: only another text undoes that.
bool Rules::is_known(const std::string& sha256, const policy::RulesVersion* now) const {
  if (!watched_.refused) return watched_.seen == sha256;
  const bool stays = now != nullptr && now->source == watched_.path && now->sha256 == sha256;
  return watched_.good == sha256 && !stays;
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
  // Texts that change while they are read may be parts of two versions. Changes while the texts are parsed, which takes
  // much longer, do not count: they are the next change.
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
  const auto version = in_force();
  bool known = false;
  if (stable) {
    const std::lock_guard lock(lock_);
    if (watch_ended(o)) return false;
    known = o.reading.ok() && is_known(sha256, version.get());
    if (known && watched_.refused) problems_.clear();
    if (known) watched_.seen = sha256, watched_.refused = false;
  }
  if (stable && !known) {
    o.from = Origin::kWatchedFile;
    submit(std::move(o), nullptr).ignore();  // it has been reported
  }
  watcher_.set(files, watch_settings(settings));
  const std::lock_guard lock(lock_);
  return stable && watched_.seen == sha256;  // not if the watch has ended, or another one has begun
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
