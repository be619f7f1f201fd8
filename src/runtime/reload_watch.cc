// SPDX-License-Identifier: Apache-2.0
// Watching a rule file. The watcher's thread reads, checks and publishes; callers never do.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "policy/config_files.h"
#include "runtime/reload.h"

namespace yard::runtime {
namespace {

std::string absolute(const std::string& path) {
  std::error_code none;
  const auto full = std::filesystem::absolute(path, none);
  return none ? path : full.string();
}

// Whether rules ask for their file to be watched.
bool wants_hot_reload(const ConfigSettings& settings) {
  const auto is = [](const std::string& mode) { return mode == to_string(Mode::kHotReload); };
  return (settings.mode && is(*settings.mode)) ||
         std::any_of(settings.modes.begin(), settings.modes.end(),
                     [&](const auto& of) { return is(of.second); });
}

// Reads files and detects changes meanwhile: the texts may then be parts of two versions. Changes while the texts are
// parsed, which takes much longer, do not count: they are the next change.
class StableRead {
 public:
  Result<std::string> open(const std::string& file) {
    std::vector<base::FileState> before = base::file_states({file});
    auto text = policy::open_file(file);
    files_.push_back(file);
    marks_.push_back(before[0]);
    stable_ = stable_ && base::file_states(files_) == marks_;
    return text;
  }
  bool is_stable() const noexcept { return stable_; }

 private:
  std::vector<std::string> files_;
  std::vector<base::FileState> marks_;
  bool stable_ = true;
};

}  // namespace

Status Reloader::load(const std::string& path, Problems* problems, bool at_start) {
  if (path.empty()) {
    if (problems != nullptr) problems->clear();
    return clear();
  }
  YARD_RETURN_IF_ERROR(check_reentry());
  ConfigReading reading = read_config(path);
  const bool asks = wants_hot_reload(reading.config.settings);
  const std::string source = asks ? absolute(path) : path;
  if (asks) reading = read_config(source);
  const std::vector<std::string> files = reading.files;
  const std::string sha256 = reading.sha256;
  Problems found;
  Status status =
      submit({std::move(reading), source, asks ? Origin::kLoadAndWatch : Origin::kLoad}, &found);
  if (problems != nullptr) *problems = found;
  if (!status.ok()) {
    const bool no_rules = core_.snapshot()->policy->file == nullptr;
    if (no_rules && (at_start || asks)) watch_refused(absolute(path), sha256, std::move(found));
    return status;
  }
  State& s = state_.get();
  std::string watched;
  {
    const std::lock_guard lock(s.lock);
    watched = s.path;
  }
  if (watched.empty()) {
    watcher_.stop();
    // Another thread may have started another watch meanwhile.
    restart_watch();
  } else if (asks && watched == source) {
    return start_watching(files);
  }
  return {};
}

Status Reloader::watch(const std::string& path, const WatchSettings& settings, Problems* problems) {
  YARD_RETURN_IF_ERROR(check_reentry());
  const auto too_short = [](const char* what, std::chrono::nanoseconds is, auto least) {
    return is >= least ? Status()
                       : Status(Code::kInvalidArgument,
                                fmt::format("WatchSettings::{}: expected at least {} ms, got {} ms",
                                            what, least.count(),
                                            std::chrono::duration<double, std::milli>(is).count()));
  };
  YARD_RETURN_IF_ERROR(too_short("debounce", settings.debounce, base::kLeastDebounce));
  YARD_RETURN_IF_ERROR(too_short("poll_interval", settings.poll_interval, base::kLeastInterval));
  const std::string full = absolute(path);
  ConfigReading reading = read_config(full);
  const std::vector<std::string> files = reading.files;
  {
    State& s = state_.get();
    const std::lock_guard lock(s.lock.for_changes);
    s.watch(full, settings, false);
  }
  Status status = submit({std::move(reading), full, Origin::kWatch}, problems);
  YARD_RETURN_IF_ERROR(start_watching(files));
  return status;
}

void Reloader::watch_refused(const std::string& path, const std::string& sha256,
                             Problems problems) {
  // As the watcher will read them, which reports them only if they are others.
  for (ConfigProblem& p : problems) p.file = absolute(p.file);
  {
    State& s = state_.get();
    const std::lock_guard lock(s.lock.for_changes);
    if (!s.path.empty()) return;
    s.watch(path, {}, true);
    s.seen = sha256, s.refused = true, s.seen_problems = std::move(problems);
  }
  restart_watch();
}

void Reloader::State::watch(std::string file, const WatchSettings& how, bool asked_by_file) {
  path = std::move(file), settings = how, by_mode = asked_by_file, watched_from = last;
  ++watches;
  seen.clear(), refused = false, seen_problems.clear(), good.clear();
}

void Reloader::watch_loaded(State& s, Origin from, const std::string& source,
                            const std::string& sha256) {
  if (from != Origin::kLoad && from != Origin::kLoadAndWatch) return;
  // A watch of the program is not ended by a file.
  if (!s.path.empty() && !s.by_mode) return;
  if (from == Origin::kLoad) return s.path.clear();
  s.watch(source, {}, true);
  s.seen = s.good = sha256;
}

void Reloader::unwatch() {
  {
    State& s = state_.get();
    const std::lock_guard lock(s.lock.for_changes);
    s.path.clear();
  }
  // Inside the pipeline the watcher may be waiting for this thread. Without a path it does nothing.
  if (check_reentry().ok()) watcher_.stop();
}

base::WatchHow Reloader::watch_settings(const WatchSettings& settings) const {
  base::WatchHow how{settings.watch, settings.debounce, settings.poll_interval};
  const auto s = core_.snapshot();
  if (s->policy->file == nullptr) return how;
  const ConfigSettings::Reload& said = s->policy->file->config.settings.reload;
  how.way = said.watch.value_or(how.way);
  how.debounce = said.debounce.value_or(how.debounce);
  how.poll_interval = said.poll_interval.value_or(how.poll_interval);
  return how;
}

Status Reloader::start_watching(const std::vector<std::string>& files) {
  State& s = state_.get();
  std::string path;
  WatchSettings settings;
  {
    const std::lock_guard lock(s.lock);
    path = s.path, settings = s.settings;
  }
  if (path.empty()) return {};
  const bool all = !files.empty() && files[0] == path;
  // The watcher starts by reading the file, which may have changed since.
  Status started = watcher_.start(all ? files : std::vector{path}, watch_settings(settings));
  if (started.ok()) return started;
  const std::lock_guard lock(s.lock.for_changes);
  if (s.path == path) s.path.clear();
  return started;
}

void Reloader::restart_watch() {
  if (const Status started = start_watching({}); !started.ok())
    base::log(LogLevel::kError, "policy",
              fmt::format("the rule file is not watched: {}", started.message()));
}

// A text that was accepted is submitted again after another text was refused in between; but not where other rules have
// come into force since, such as an earlier version: only another text undoes that.
bool Reloader::State::is_known(const std::string& sha256) const {
  if (!refused) return seen == sha256;
  const Version* now = in_force();
  const bool stays = now != nullptr && now->source == path && now->sha256 == sha256;
  return good == sha256 && !stays;
}

bool Reloader::stop_unwanted_watch() {
  State& s = state_.get();
  const auto unwanted = [&] {
    const Version* now = s.in_force();
    return s.by_mode && !s.path.empty() && now != nullptr && now->number > s.watched_from &&
           now->source == s.path && now->config != nullptr &&
           !wants_hot_reload(now->config->settings);
  };
  {
    const std::lock_guard lock(s.lock);
    if (!unwanted()) return false;
  }
  {
    const std::lock_guard lock(s.lock.for_changes);
    if (!unwanted()) return false;
    s.path.clear();
  }
  watcher_.stop();
  // Another thread may have started another watch meanwhile.
  restart_watch();
  return true;
}

bool Reloader::reread() {
  if (stop_unwanted_watch()) return true;
  State& s = state_.get();
  std::string path;
  WatchSettings settings;
  uint64_t watch = 0;
  {
    const std::lock_guard lock(s.lock);
    path = s.path, settings = s.settings, watch = s.watches;
  }
  if (path.empty()) return true;
  StableRead stable;
  ConfigReading reading =
      policy::read_config_from(path, [&](const std::string& file) { return stable.open(file); });
  const std::vector<std::string> files = reading.files;
  if (!stable.is_stable()) {
    watcher_.set(files, watch_settings(settings));
    return false;
  }
  bool known = false;
  {
    const std::lock_guard lock(s.lock);
    if (s.path != path || s.watches != watch) return true;
    known = reading.ok() && s.is_known(reading.sha256);
  }
  if (known) {
    const std::lock_guard lock(s.lock.for_changes);
    if (s.refused && s.watches == watch)
      s.seen = reading.sha256, s.refused = false, s.seen_problems.clear(), s.problems.clear();
  }
  if (!known) {
    const Status status = submit({std::move(reading), path, Origin::kWatcher, watch}, nullptr);
    if (status.code() == Code::kWouldDeadlock) return false;
  }
  if (stop_unwanted_watch()) return true;
  watcher_.set(files, watch_settings(settings));
  return true;
}

}  // namespace yard::runtime

namespace yard {

const char* to_string(ConfigEvent::Kind kind) noexcept {
  switch (kind) {
    case ConfigEvent::Kind::kReloaded: return "reloaded";
    case ConfigEvent::Kind::kRefused: return "refused";
    case ConfigEvent::Kind::kRolledBack: return "rolled back";
    case ConfigEvent::Kind::kRollout: return "rollout";
    case ConfigEvent::Kind::kAborted: return "rollout aborted";
  }
  return "?";
}

std::string to_string(const ConfigEvent& e) {
  std::string text = e.source + ": " + to_string(e.kind);
  const bool stays = e.kind == ConfigEvent::Kind::kRefused ||
                     e.kind == ConfigEvent::Kind::kRollout || e.kind == ConfigEvent::Kind::kAborted;
  if (stays && e.version == 0)
    text += ", there are no rules in force";
  else
    text += fmt::format(", version {} {} in force", e.version, stays ? "stays" : "is");
  for (const ConfigProblem& p : e.problems) text += "\n  " + to_string(p);
  return text;
}

}  // namespace yard
