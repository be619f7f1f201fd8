// SPDX-License-Identifier: Apache-2.0
// Rules that change while the program runs: watching a file, the versions there were, and the way back.
//
//   runtime.on_config([](const yard::ConfigEvent& e) { std::puts(to_string(e).c_str()); });
//   runtime.watch_config("/etc/acme/rules.yaml").or_throw();
//   ...
//   runtime.rollback_config(runtime.config_history()[0].number).or_throw();
//
// Whatever changes the rules (load_config, set_config, a watched file, rollback_config) goes one way: it is
// checked against the ops and kernels there are; validators of the program are asked; every class of calls that
// has a plan is selected again under the new rules, and one that would be left without a kernel refuses them; then
// they are published by one store and remembered. Rules that are refused change nothing. Nobody waits for calls.
#pragma once

#include <yard/config.h>
#include <yard/status.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace yard {

// How a file is watched. What settings.reload of the file in force says is stronger.
struct WatchSettings {
  // auto: inotify and, ten times less often than poll, a look at the files; poll where there is no inotify.
  Watch watch = Watch::kAuto;
  // How long the files must rest before they are read; at least 20 ms. Files that never rest are read every ten of
  // these. The last write always counts.
  std::chrono::nanoseconds debounce = std::chrono::milliseconds(100);
  // How often poll looks; at least 10 ms.
  std::chrono::nanoseconds poll_interval = std::chrono::seconds(1);
};

// Rules that are or were in force.
struct ConfigVersion {
  uint64_t number = 0;  // 1, 2, ... in the order in which they came into force
  std::string sha256;   // of the texts it was read from; of its YAML for a value
  std::chrono::system_clock::time_point time;
  std::string source;  // a path, "set_config", "rollback to 3", or "none": taken out of force
  std::vector<ConfigChange> changes;  // against the version before
  bool in_force = false;
};
// The last 32 are kept.
inline constexpr size_t kConfigHistory = 32;

struct ConfigEvent {
  enum class Kind : int {
    kReloaded,
    kRefused,
    kRolledBack,
    kRollout,    // `rollout`: some calls go by them
    kTakenBack,  // they did worse; what was in force stays
  };
  Kind kind = Kind::kReloaded;
  uint64_t version = 0;                 // in force after it; 0: none
  std::string source;                   // as in ConfigVersion
  std::vector<ConfigProblem> problems;  // all errors of what was refused; warnings
};
// "reloaded", "refused", "rolled back", "rollout", "taken back".
YARD_API const char* to_string(ConfigEvent::Kind kind) noexcept;
// `rules.yaml: refused, version 3 stays in force`, then the problems, one a line.
YARD_API std::string to_string(const ConfigEvent& event);

// Called after each change and each refusal, in their order, on a thread of the runtime and never inside a call.
// May use the runtime in every way but destroy it. What it throws is logged. A change may be over by the time its
// event comes.
using ConfigListener = std::function<void(const ConfigEvent&)>;

// Has a say before rules come into force: an error refuses them. Called on the thread that offers them, which may
// be the watcher's. Must not change the rules itself: the error would_deadlock. What it throws refuses them, too.
using ConfigValidator = std::function<Status(const Config&)>;

}  // namespace yard
