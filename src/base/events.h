// SPDX-License-Identifier: Apache-2.0
// A bounded list of events of rules, breakers, plugins and live control. Reports, histories and
// lists of changes are views of this list.
//
//   base::record({.kind = &event::kRulesRefused, .runtime = id, .subject = path, .reason = why});
//
// One kind of event does not displace another. Any thread may call these functions, but a call
// whose plan is known must not.
#pragma once

#include <yard/config.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace yard::base {

// Kinds are compared by their addresses.
struct EventKind {
  const char* name;
  const char* group;             // the category of traces
  bool error = false;            // something does not work as intended
  size_t most = 256;             // how many events of a runtime are kept
  size_t most_of_subject = 256;  // lower for subjects that may flap and displace others
};
namespace event {
inline constexpr EventKind kRules{"rules", "reload", false, kConfigHistory},  // new rules in force
    kRulesRefused{"rules_refused", "reload", true}, kRollout{"rollout_started", "rollout"},
    kAborted{"rollout_aborted", "rollout", true},
    kBreakerOpened{"breaker_opened", "breaker", true, 256, 16},
    kBreakerHalfOpen{"breaker_half_open", "breaker", false, 256, 16},
    kBreakerClosed{"breaker_closed", "breaker", false, 256, 16},
    kDeviceLost{"device_lost", "breaker", true}, kDeviceBack{"device_back", "breaker"},
    kPluginLoaded{"plugin_loaded", "plugin"}, kPluginRefused{"plugin_refused", "plugin", true},
    kPluginReplaced{"plugin_replaced", "plugin"}, kPluginUnloaded{"plugin_unloaded", "plugin"},
    kChange{"change", "change"},  // by a client of live control
    kUndo{"undo", "change"}, kChangeRefused{"change_refused", "change"};
}  // namespace event

struct Event {
  const EventKind* kind;
  uint64_t runtime = 0;  // Core::id
  std::string subject;   // a file, a kernel, a plugin or a command
  std::string reason{};
  std::string who{};    // who caused the event; if empty, the thread's Actor, or nobody
  uint64_t number = 0;  // the version of the rules, or the id of the change that was undone
  // Lives as long as the runtime. Its destructor must not call foreign code.
  std::shared_ptr<const void> detail{};
  // record() sets the following members.
  uint64_t id = 0;  // 1, 2, ...
  std::chrono::system_clock::time_point at{};
  int64_t process = 0;  // a forked child inherits the parent's events
};
std::string to_json(const Event& event);

// Adds the event to the list and to the file, with its texts cut and made printable. Returns the
// event's id, or 0 if memory runs out. The caller holds no Mutex of rank kOutput or higher.
uint64_t record(Event event) noexcept;
// Oldest first.
std::vector<Event> events(uint64_t after = 0);
void forget_details(uint64_t runtime) noexcept;

// Makes a background thread append events to this file, or to none if the path is empty. A full
// file is renamed to PATH.1. Changes nothing if the file cannot be written.
Status write_events_to(const std::string& path);
inline constexpr size_t kMostEventBytes = size_t{4} << 20;  // the size of a full file

// While it lives, events of this thread have `who` as their cause, unless an outer Actor exists.
class Actor {
 public:
  explicit Actor(std::string who);
  ~Actor();
  Actor& operator=(Actor&&) = delete;

  static std::string current();  // empty if there is none

 private:
  const std::string who_;
  const Actor* const outer_;
};

}  // namespace yard::base
