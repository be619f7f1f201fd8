// SPDX-License-Identifier: Apache-2.0
#include "runtime/file_settings.h"

#include <fmt/format.h>

#include "base/log.h"

namespace yard::runtime {

void FileSettings::follow() {
  State& s = state_.get();
  bool news = false, sweep = false;
  {
    const std::lock_guard lock(s.lock);
    // Here: another thread may have been told of a later one.
    const auto file = core_.snapshot()->policy->file;
    news = s.seen != file;
    if (news) {
      s.seen = file;
      const Config none;
      const ConfigSettings& said = (file != nullptr ? file->config : none).settings;
      loader_.set_rules(said.plugins.probe, said.plugins.require_verified.value_or(false));
      s.wanted = said.telemetry.record.value_or("");
      sweep = said.cache.lifetime.has_value();
    }
  }
  if (sweep) wake_();
  if (news) follow_recording();
  loader_.enforce_rules();
}

// Without the lock while something is published, which leads here again; by one thread until what it did is what is
// wanted, so that nothing older comes last.
void FileSettings::follow_recording() {
  State& s = state_.get();
  std::unique_lock lock(s.lock);
  if (s.switching) return;
  s.switching = true;
  while (s.record != s.wanted) {
    const std::string wanted = s.record = s.wanted;
    const std::shared_ptr<Recorder> mine = s.mine.lock();
    lock.unlock();
    std::shared_ptr<Recorder> made;
    const Status status = record_instead(mine, wanted, made);
    if (!status.ok())
      base::log(LogLevel::kError, "runtime",
                fmt::format("settings.telemetry.record: {}", status.to_string()));
    lock.lock();
    if (made != nullptr) s.mine = made;
  }
  s.switching = false;
}

// What the program or the environment has recorded is not the file's to end.
Status FileSettings::record_instead(const std::shared_ptr<Recorder>& mine, const std::string& path,
                                    std::shared_ptr<Recorder>& made) {
  const auto now = std::dynamic_pointer_cast<Recorder>(core_.snapshot()->policy->observer);
  if (now != nullptr && now != mine) return {};
  if (now != nullptr) {
    YARD_RETURN_IF_ERROR(core_.set_observer(nullptr));
    YARD_RETURN_IF_ERROR(now->recording().write());
  }
  if (path.empty()) return {};
  auto recording = Recording::open(path);
  if (!recording.ok()) return std::move(recording).status();
  made = std::make_shared<Recorder>(*std::move(recording));
  return core_.set_observer(made);
}

}  // namespace yard::runtime
