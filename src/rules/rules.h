// SPDX-License-Identifier: Apache-2.0
// The one way by which rules come into force: they are checked, validated, tried in a dry run, published or put in rollout,
// and announced to listeners (yard/config.h).
//
// Versions of rules are part of the published policy (policy::RulesVersion), so that they are in order whichever thread
// publishes them. Rules are published if those in force are still the ones that the dry run saw. No lock is held while
// validators, verifiers, listeners or log sinks run.
#pragma once

#include <yard/config.h>
#include <yard/stats.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/file_watch.h"
#include "base/mutex.h"
#include "base/tasks.h"
#include "dispatch/core.h"
#include "plugin/loader.h"
#include "plugin/scan.h"
#include "policy/process.h"
#include "rules/callbacks.h"

namespace yard::rules {

using Problems = std::vector<ConfigProblem>;

// Any thread may call anything. A forked child has the same rules, listeners and validators as its parent, and watches the
// same file from its first call on.
class Rules {
 public:
  // Core and loader must outlive it. `wake` is called when there are plans with a lifetime to sweep. `record` makes the
  // recording that rules ask for the one at that path, or ends it if the path is empty.
  using Record = std::function<Status(const std::string& path)>;
  Rules(detail::Core& core, plugin::Loader& loader, std::function<void()> wake, Record record);
  ~Rules();

  // These set `problems`, where it is not null, to everything that was found.
  // If there are no rules yet and the file is refused, it is watched until a version of it is accepted, if `at_start` is
  // set or the file asks to be watched.
  Status load(const std::string& path, Problems* problems, bool at_start = false);
  // `source` is for the history. If `at_once` is set, the rollout that the rules ask for is ignored.
  Status change(Config config, std::string source, Problems* problems, bool at_once = true);
  Status set(Config config, Problems* problems) {
    return change(std::move(config), "Rules::set", problems, false);
  }
  Status roll_back(uint64_t number, Problems* problems);
  Status watch(const std::string& path, const WatchSettings& settings, Problems* problems);
  // Removes the rules and ends the watch.
  Status clear();
  void unwatch();

  std::vector<ConfigVersion> history();
  struct Standing {
    uint64_t version = 0;           // in force; 0 if there has been none
    std::string source;             // of it
    bool rules = false;             // whether it has rules
    std::string watched;            // the file that is watched; empty if there is none
    bool watched_for_file = false;  // the file asked for it, not the program
  };
  Standing standing();
  // Of the rules that were submitted last, and those that were found in the rules in force later.
  Problems problems();
  RuntimeStats::Reloads stats() {
    const std::lock_guard lock(lock_);
    return stats_;
  }
  void reset_stats() {
    const std::lock_guard lock(lock_);
    stats_ = {};
  }

  // To be called after each change of the snapshot, without locks. Applies settings outside of the dispatcher (plugins,
  // recording, the sweep of old plans), and checks conditions about ops that were registered after the rules were read.
  void follow();

  Callbacks<ConfigListener> listeners;
  Callbacks<ConfigValidator> validators;

 private:
  enum class Origin { kValue, kFile, kWatchedFile };
  struct Submission {
    ConfigReading reading;
    std::string source;
    Origin from = Origin::kValue;
    bool at_once = false;           // without the rollout that the rules ask for
    std::optional<uint64_t> watch;  // watch_number_ when the watched file was read again
    // What becomes of it: kReloaded, kRolledBack, kRollout or kRefused; the version is 0 until it is in force.
    ConfigEvent::Kind kind = ConfigEvent::Kind::kReloaded;
    uint64_t version = 0;
    std::string started = {};  // of a rollout, in words
  };
  // Rules that apply to a share of calls until they are judged.
  struct ActiveRollout {
    std::shared_ptr<const policy::FileRules> rules;
    policy::RulesVersion version;
    Origin from;
    std::chrono::steady_clock::time_point end;
    std::chrono::nanoseconds interval;  // between two checks
  };
  struct Watched {
    std::string path = {};  // empty if no file is watched
    WatchSettings settings = {};
    bool by_mode = false;   // the file asked for it, not the program
    std::string seen = {};  // the digest of the file's last text
    bool refused = false;   // that text
    std::string good = {};  // the digest of the last text that was not refused
  };

  // submit.cc
  Status submit(Submission o, Problems* problems);
  // Takes the config of the reading, or returns null if there is an error.
  std::shared_ptr<const policy::FileRules> check(ConfigReading& reading);
  // Dry run, and publication if there is no error.
  Status put_in_force(Submission& o, const std::shared_ptr<const policy::FileRules>& rules);
  Status schedule(const std::shared_ptr<const ActiveRollout>& rollout,
                  std::chrono::steady_clock::time_point when);
  // On rollout_thread_. Ends the rollout if its time is over or its rules do badly, else schedules the next check.
  void advance_rollout(const std::shared_ptr<const ActiveRollout>& rollout);
  void report(Submission o, const Status& status, Problems* problems);
  // Logs an event and has the listeners called, in the order of the versions. The event's version is the one that it made,
  // or 0. `text` is logged instead of the event unless it is empty.
  void tell(ConfigEvent event, bool by_program, std::string text = {});
  // kWouldDeadlock on a thread that is submitting rules or inside a selection.
  Status check_reentry() const;

  // watch.cc
  static bool wants_hot_reload(const Config& config);
  // Under the lock. Watches another file from now on, or none.
  void set_watched(Watched next) { watched_ = std::move(next), ++watch_number_; }
  // Under the lock. Rules have come into force: a file decides whether it is watched, unless the program watches one.
  void watch_as_asked(Origin from, const std::string& source, const std::string& sha256, bool asks);
  // On the watcher's thread. Returns false to be called again.
  bool reread();
  // Whether the changed file of a submission is not watched any more, or another file was loaded, which may end the watch.
  bool watch_ended(const Submission& o) const { return o.watch && *o.watch != watch_number_; }
  // Under the lock. Whether submitting the file's text again would change nothing.
  bool is_known(const std::string& sha256, const policy::RulesVersion* now) const;
  // Has the watcher watch the file that is to be watched, or none.
  Status follow_watch();
  base::WatchHow watch_settings(const WatchSettings& settings) const;

  // follow.cc
  void apply_settings(const ConfigSettings& settings);
  void check_later_ops();

  std::shared_ptr<const policy::RulesVersion> in_force() const;

  detail::Core& core_;
  plugin::Loader& loader_;
  const std::function<void()> wake_;
  const Record record_;
  base::Mutex lock_{base::Rank::kRules};  // of the following
  Problems problems_;
  RuntimeStats::Reloads stats_;
  Watched watched_;
  std::atomic<uint64_t> watch_number_{0};             // counts changes of it, and loaded files
  uint64_t told_ = 0;                                 // the last version that listeners know
  std::map<uint64_t, ConfigEvent> untold_;            // events whose turn has not come
  std::shared_ptr<const policy::FileRules> applied_;  // the rules whose settings were applied last
  bool applying_ = false;                             // some thread applies settings
  std::string recorded_;  // of that thread: the file that was wanted last
  std::shared_ptr<const policy::FileRules> checked_;  // the rules that the next two are about
  std::map<std::string, std::shared_ptr<const op::Program>> later_ops_;  // that were checked
  Problems later_problems_;
  base::TaskThread listeners_thread_;  // listeners may block
  base::TaskThread rollout_thread_;    // calls no listener
  base::FileWatch watcher_;
  base::InChild in_child_{[this] {
    stats_ = {};
    if (std::exchange(applying_, false)) applied_ = nullptr;
  }};
};

// ---- names.cc: what is registered, for checks of rules and environment ----

// Checks what was read against the registry, the modes and labels of the process, and names that plugins announce which are
// found and not loaded. Adds problems to the reading. Takes its config, or returns null if there is an error.
std::shared_ptr<const policy::FileRules> make_rules(ConfigReading& reading,
                                                    const registry::State& state,
                                                    const policy::ProcessPolicy& process,
                                                    plugin::Loader& loader);
// Checks conditions about ops that were registered after the rules were read.
Problems check_conditions(const policy::FileRules& rules, const registry::State& state,
                          const policy::ProcessPolicy& process, plugin::Loader& loader);

// The first error with the others as its notes; ok if there is none.
Status first_error(const Problems& problems);
Status first_error(const policy::Reading& reading);

// Reads the variables YARD_* over the last valid values. Logs every problem and applies the log levels. `can_record` says
// whether calls can be recorded to a file. In a privileged process (set-uid, set-gid, file capabilities) variables that
// name files or plugins are ignored and reported.
using CanRecord = std::function<Status(const std::string& path)>;
std::shared_ptr<const policy::Reading> read_environment(const policy::Reading& before,
                                                        const CanRecord& can_record,
                                                        bool privileged = plugin::privileged());
// The same reading with warnings about names of ops, vendors and backends that are neither registered nor announced: they
// may be registered later. Logs these. Null if there are none.
std::shared_ptr<const policy::Reading> with_unknown_names(const policy::Reading& reading,
                                                          const registry::State& state,
                                                          plugin::Loader& loader);

}  // namespace yard::rules
