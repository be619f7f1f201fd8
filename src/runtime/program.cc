// SPDX-License-Identifier: Apache-2.0
// What a program gives its runtime beside policies and rules: a static map, modes, a file to record calls to.
#include <yard/runtime.h>

#include "dispatch/core.h"
#include "dispatch/policy_changes.h"
#include "runtime/recorder.h"

namespace yard {
namespace {

// Null: nothing is recorded.
std::shared_ptr<runtime::Recorder> recorder_of(const detail::Core& core) {
  return std::dynamic_pointer_cast<runtime::Recorder>(core.snapshot()->policy->observer);
}

}  // namespace

Status Runtime::set_static_map(StaticMap map) {
  return detail::set_static_map(core(), std::move(map));
}

StaticMap Runtime::static_map() const { return core().snapshot()->policy->mapped; }

Status Runtime::add_mode(std::string_view name, ModeProvider provider) {
  auto mode = policy::make_mode(name, std::move(provider));
  if (!mode.ok()) return std::move(mode).status();
  return detail::add_mode(core(), *std::move(mode));
}

Status Runtime::remove_mode(std::string_view name) { return detail::remove_mode(core(), name); }

Status Runtime::record_to(const std::string& path) {
  auto recording = runtime::Recording::open(path);
  if (!recording.ok()) return std::move(recording).status();
  const auto before = recorder_of(core());
  if (before != nullptr && &before->recording() == recording->get()) return {};
  YARD_RETURN_IF_ERROR(
      detail::set_observer(core(), std::make_shared<runtime::Recorder>(*std::move(recording))));
  return before != nullptr ? before->recording().write() : Status();
}

Status Runtime::stop_recording() {
  const auto recorder = recorder_of(core());
  if (recorder == nullptr) return {};
  YARD_RETURN_IF_ERROR(detail::set_observer(core(), nullptr));
  return recorder->recording().write();
}

RecordingStats Runtime::recording() const {
  const auto recorder = recorder_of(core());
  return recorder != nullptr ? recorder->recording().stats() : RecordingStats();
}

}  // namespace yard
