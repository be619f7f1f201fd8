// SPDX-License-Identifier: Apache-2.0
// Watching a rule file. The watcher's thread reads, checks and publishes: a caller never does.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "policy/config_files.h"
#include "runtime/reload.h"

namespace yard::runtime {
namespace {

std::string absolute(const std::string& path) {
  std::error_code none;
  const auto full = std::filesystem::absolute(path, none);
  return none ? path : full.string();
}

// Rules that ask to be followed.
bool hot(const ConfigSettings& settings) {
  const auto is = [](const std::string& mode) { return mode == to_string(Mode::kHotReload); };
  return (settings.mode && is(*settings.mode)) ||
         std::any_of(settings.modes.begin(), settings.modes.end(),
                     [&](const auto& of) { return is(of.second); });
}

// Files that change while they are read may be parts of two versions. Only the reading counts: what happens while
// the texts are parsed, which takes much longer, is the next change.
class Glance {
 public:
  Result<std::string> open(const std::string& file) {
    std::vector<base::FileMark> before = base::look_at({file});
    auto text = policy::open_file(file);
    files_.push_back(file);
    marks_.push_back(before[0]);
    whole_ = whole_ && base::look_at(files_) == marks_;
    return text;
  }
  bool whole() const noexcept { return whole_; }

 private:
  std::vector<std::string> files_;
  std::vector<base::FileMark> marks_;
  bool whole_ = true;
};

}  // namespace

Status Reloader::load(const std::string& path, Problems* problems) {
  if (path.empty()) {
    if (problems != nullptr) problems->clear();
    return clear();
  }
  ConfigReading reading = read_config(path);
  if (hot(reading.config.settings)) return watch(path, {}, problems);
  return offer({std::move(reading), path}, problems);
}

Status Reloader::watch(const std::string& path, const WatchSettings& settings, Problems* problems) {
  const std::string full = absolute(path);
  ConfigReading reading = read_config(full);
  const std::vector<std::string> files = reading.files;
  State& s = state_.get();
  {
    const std::lock_guard lock(s.lock);
    s.path = full, s.settings = settings;
    s.seen.clear(), s.refused = false, s.seen_problems.clear();
  }
  Status status = offer({std::move(reading), full, true}, problems);
  // It reads the file again, which may have changed since.
  const Status started = watcher_.start(files, how(settings));
  if (started.ok()) return status;
  const std::lock_guard lock(s.lock);
  s.path.clear();
  return started;
}

void Reloader::unwatch() {
  {
    State& s = state_.get();
    const std::lock_guard lock(s.lock);
    s.path.clear();
  }
  watcher_.stop();
}

base::WatchHow Reloader::how(const WatchSettings& settings) const {
  base::WatchHow how{settings.watch, settings.debounce, settings.poll_interval};
  const auto s = core_.snapshot();
  if (s->policy->file == nullptr) return how;
  const ConfigSettings::Reload& said = s->policy->file->config.settings.reload;
  how.way = said.watch.value_or(how.way);
  how.debounce = said.debounce.value_or(how.debounce);
  how.poll_interval = said.poll_interval.value_or(how.poll_interval);
  return how;
}

bool Reloader::look() {
  State& s = state_.get();
  std::string path;
  WatchSettings settings;
  {
    const std::lock_guard lock(s.lock);
    path = s.path, settings = s.settings;
  }
  if (path.empty()) return true;
  Glance glance;
  ConfigReading reading =
      policy::read_config_from(path, [&](const std::string& file) { return glance.open(file); });
  const std::vector<std::string> files = reading.files;
  if (!glance.whole()) {
    watcher_.set(files, how(settings));
    return false;
  }
  bool known = false;
  {
    const std::lock_guard lock(s.lock);
    if (s.path != path) return true;
    known = s.seen == reading.sha256 && !s.refused && reading.ok();
  }
  if (!known) offer({std::move(reading), path, true}, nullptr).ignore();
  watcher_.set(files, how(settings));
  return true;
}

}  // namespace yard::runtime

namespace yard {

const char* to_string(ConfigEvent::Kind kind) noexcept {
  switch (kind) {
    case ConfigEvent::Kind::kReloaded: return "reloaded";
    case ConfigEvent::Kind::kRefused: return "refused";
    case ConfigEvent::Kind::kRolledBack: return "rolled back";
    case ConfigEvent::Kind::kOnTrial: return "on trial";
    case ConfigEvent::Kind::kTakenBack: return "taken back";
  }
  return "?";
}

std::string to_string(const ConfigEvent& e) {
  std::string text = e.source + ": " + to_string(e.kind);
  const bool stays = e.kind == ConfigEvent::Kind::kRefused ||
                     e.kind == ConfigEvent::Kind::kOnTrial ||
                     e.kind == ConfigEvent::Kind::kTakenBack;
  if (stays && e.version == 0)
    text += ", there are no rules in force";
  else
    text += fmt::format(", version {} {} in force", e.version, stays ? "stays" : "is");
  for (const ConfigProblem& p : e.problems) text += "\n  " + to_string(p);
  return text;
}

}  // namespace yard
