// SPDX-License-Identifier: Apache-2.0
#include "runtime/file_settings.h"

#include <fmt/format.h>

#include "base/log.h"
#include "runtime/recorder.h"

namespace yard::runtime {

void FileSettings::follow() {
  const auto file = core_.snapshot()->policy->file;
  State& s = state_.get();
  {
    const std::lock_guard lock(s.lock);
    if (s.seen == file) return;
    s.seen = file;
  }
  const Config none;
  const ConfigSettings& said = (file != nullptr ? file->config : none).settings;
  loader_.set_rules(said.plugins.probe, said.plugins.require_verified.value_or(false));
  if (said.cache.lifetime) wake_();
  follow_recording(said.telemetry.record.value_or(""));
}

// What the program or the environment has recorded is not the file's to end.
void FileSettings::follow_recording(const std::string& wanted) {
  State& s = state_.get();
  std::string before;
  {
    const std::lock_guard lock(s.lock);
    if (s.record == wanted) return;
    before = std::exchange(s.record, wanted);
  }
  const auto recorder = std::dynamic_pointer_cast<Recorder>(core_.snapshot()->policy->observer);
  const bool ours = recorder == nullptr || recorder->recording().stats().path == before;
  if (!ours) return;
  Status status;
  if (recorder != nullptr) {
    status = core_.set_observer(nullptr);
    if (status.ok()) status = recorder->recording().write();
  }
  if (status.ok() && !wanted.empty()) {
    auto recording = Recording::open(wanted);
    status = recording.ok() ? core_.set_observer(std::make_shared<Recorder>(*std::move(recording)))
                            : std::move(recording).status();
  }
  if (!status.ok())
    base::log(LogLevel::kError, "runtime",
              fmt::format("settings.telemetry.record: {}", status.to_string()));
}

}  // namespace yard::runtime
