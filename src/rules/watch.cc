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
  std::error_code none;
  const auto full = std::filesystem::absolute(path, none);
  return none ? path : full.string();
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

bool Rules::wants_hot_reload(const Config& config) {
  const ConfigSettings& settings = config.settings;
  const auto is = [](const std::string& mode) { return mode == to_string(Mode::kHotReload); };
  return (settings.mode && is(*settings.mode)) ||
         std::any_of(settings.modes.begin(), settings.modes.end(),
                     [&](const auto& of) { return is(of.second); });
}

Status Rules::load(const std::string& path, Problems* problems, bool at_start) {
  if (path.empty()) {
    if (problems != nullptr) problems->clear();
    return clear();
  }
  YARD_RETURN_IF_ERROR(check_reentry());
  ConfigReading reading = read_config(path);
  const bool asks = wants_hot_reload(reading.config);
  const std::string source = asks ? absolute(path) : path;
  if (asks) reading = read_config(source);
  const std::vector<std::string> files = reading.files;
  const std::string sha256 = reading.sha256;
  Submission o;
  o.reading = std::move(reading), o.source = source, o.from = Origin::kFile;
  Status status = submit(std::move(o), problems);
  std::string watched;
  {
    const std::lock_guard lock(lock_);
    const bool refused_first = !status.ok() && core_.snapshot()->policy->file == nullptr;
    if (refused_first && (at_start || asks) && watched_.path.empty()) {
      set_watched(absolute(path), {}, true);
      watched_.seen = sha256, watched_.refused = true;
    } else if (!status.ok()) {
      return status;
    }
    watched = watched_.path;
  }
  if (asks && watched == source) {
    Status started = start_watching(files);
    return status.ok() ? started : status;
  }
  // Another thread may have started another watch meanwhile.
  if (watched.empty()) watcher_.stop();
  if (watched.empty() || !status.ok()) restart_watch();
  return status;
}

Status Rules::watch(const std::string& path, const WatchSettings& settings, Problems* problems) {
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
  Submission o;
  o.source = absolute(path), o.from = Origin::kWatchedFile;
  o.reading = read_config(o.source);
  const std::vector<std::string> files = o.reading.files;
  {
    const std::lock_guard lock(lock_);
    set_watched(o.source, settings, false);
    o.watch = watched_.number;
  }
  Status status = submit(std::move(o), problems);
  YARD_RETURN_IF_ERROR(start_watching(files));
  return status;
}

void Rules::set_watched(std::string path, const WatchSettings& settings, bool by_mode) {
  const auto now = in_force();
  Watched next;
  next.path = std::move(path), next.settings = settings, next.by_mode = by_mode;
  next.number = watched_.number + 1;
  next.after = now != nullptr ? now->number : 0;
  watched_ = std::move(next);
}

void Rules::watch_loaded(const std::string& source, const std::string& sha256, bool asks) {
  // A watch of the program is not ended by a file.
  if (!watched_.path.empty() && !watched_.by_mode) return;
  if (!asks) return watched_.path.clear();
  set_watched(source, {}, true);
  watched_.seen = watched_.good = sha256;
}

void Rules::unwatch() {
  {
    const std::lock_guard lock(lock_);
    watched_.path.clear();
  }
  // The watcher may be waiting for a validator on this thread. Without a path it does nothing.
  if (check_reentry().ok()) watcher_.stop();
}

base::WatchHow Rules::watch_settings(const WatchSettings& settings) const {
  base::WatchHow how{settings.debounce, settings.poll_interval};
  const auto file = core_.snapshot()->policy->file;
  if (file == nullptr) return how;
  const ConfigSettings::Reload& said = file->config.settings.reload;
  how.debounce = said.debounce.value_or(how.debounce);
  how.poll_interval = said.poll_interval.value_or(how.poll_interval);
  return how;
}

Status Rules::start_watching(const std::vector<std::string>& files) {
  Watched now;
  {
    const std::lock_guard lock(lock_);
    now = watched_;
  }
  if (now.path.empty()) return {};
  const bool all = !files.empty() && files[0] == now.path;
  // The watcher starts by reading the file, which may have changed since.
  Status started =
      watcher_.start(all ? files : std::vector{now.path}, watch_settings(now.settings));
  if (started.ok()) return started;
  const std::lock_guard lock(lock_);
  if (watched_.number == now.number) watched_.path.clear();
  return started;
}

void Rules::restart_watch() {
  if (const Status started = start_watching({}); !started.ok())
    base::log(LogLevel::kError, "policy",
              fmt::format("the rule file is not watched: {}", started.message()));
}

// A text that was accepted is submitted again after another text was refused in between; but not where other rules have
// come into force since, such as an earlier version: only another text undoes that.
bool Rules::is_known(const std::string& sha256) const {
  if (!watched_.refused) return watched_.seen == sha256;
  const auto now = in_force();
  const bool stays = now != nullptr && now->source == watched_.path && now->sha256 == sha256;
  return watched_.good == sha256 && !stays;
}

bool Rules::watch_ended(const Submission& o) {
  const std::lock_guard lock(lock_);
  return o.from == Origin::kWatchedFile &&
         (watched_.path != o.source || watched_.number != o.watch || (!o.by_program && loads_ > 0));
}

bool Rules::stop_unwanted_watch() {
  {
    const std::lock_guard lock(lock_);
    const auto now = in_force();
    const bool unwanted = watched_.by_mode && !watched_.path.empty() && now != nullptr &&
                          now->number > watched_.after && now->source == watched_.path &&
                          now->config != nullptr && !wants_hot_reload(*now->config);
    if (!unwanted) return false;
    watched_.path.clear();
  }
  watcher_.stop();
  // Another thread may have started another watch meanwhile.
  restart_watch();
  return true;
}

bool Rules::reread() {
  if (stop_unwanted_watch()) return true;
  Watched now;
  {
    const std::lock_guard lock(lock_);
    now = watched_;
  }
  if (now.path.empty()) return true;
  StableRead stable;
  Submission o;
  o.reading = policy::read_config_from(now.path,
                                       [&](const std::string& file) { return stable.open(file); });
  const std::vector<std::string> files = o.reading.files;
  const std::string sha256 = o.reading.sha256;
  if (!stable.is_stable()) {
    watcher_.set(files, watch_settings(now.settings));
    return false;
  }
  bool known = false;
  {
    const std::lock_guard lock(lock_);
    if (watched_.number != now.number || watched_.path.empty()) return true;
    known = o.reading.ok() && is_known(o.reading.sha256);
    if (known && watched_.refused) {
      watched_.seen = o.reading.sha256, watched_.refused = false;
      problems_.clear();
    }
  }
  if (!known) {
    o.source = now.path, o.from = Origin::kWatchedFile, o.by_program = false;
    o.watch = now.number;
    submit(std::move(o), nullptr).ignore();  // it has been reported
  }
  if (stop_unwanted_watch()) return true;
  watcher_.set(files, watch_settings(now.settings));
  // While another file is being loaded, the text is not submitted. If the load does not end the watch, it is read again.
  const std::lock_guard lock(lock_);
  return known || watched_.number != now.number || watched_.path.empty() || watched_.seen == sha256;
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
