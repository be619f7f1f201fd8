// SPDX-License-Identifier: Apache-2.0
// Rules come into force only through this class. It checks and validates them, makes a dry run,
// publishes them or begins their rollout, and announces them to listeners (yard/config.h).
//
// The version is part of the published policy (policy::RulesVersion), so versions are in order
// whichever thread publishes. Rules are published only if the rules in force have not changed since
// the dry run.
#pragma once

#include <yard/config.h>
#include <yard/stats.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/file_watch.h"
#include "base/mutex.h"
#include "base/tasks.h"
#include "dispatch/core.h"
#include "dispatch/policy_changes.h"
#include "plugin/loader.h"
#include "plugin/scan.h"
#include "policy/process.h"
#include "rules/callbacks.h"

namespace yard::rules {

using Problems = std::vector<ConfigProblem>;

// All functions are thread-safe. A forked child has the rules, listeners and validators of its
// parent, and watches the same file from its first call on.
class Rules {
 public:
  // `wake` is called when plans have a lifetime and must be swept. `record` records calls to a
  // file, or stops if the path is empty. Files that rules name are written below
  // `output_directory`; see RuntimeSettings for an empty one.
  using Record = std::function<Status(const std::string& path)>;
  Rules(detail::Core& core, plugin::Loader& loader, std::function<void()> wake, Record record,
        std::string output_directory);
  ~Rules();

  // These functions store all errors and warnings in `problems` unless it is null. If load()
  // refuses a file while there are no rules, it watches the file until a text is accepted, provided
  // that `at_start` is set or the file asks to be watched.
  Status load(const std::string& path, Problems* problems, bool at_start = false);
  // `source` is shown in the history. If `at_once` is set, the rollout that the rules ask for is
  // ignored.
  Status change(Config config, std::string source, Problems* problems, bool at_once = true);
  // Returns the known calls that would get another kernel, or why change() would refuse the rules:
  // kConflict if calls would have no kernel. Changes nothing.
  Result<std::vector<dispatch::MovedCall>> dry_run(Config config);
  Status roll_back(uint64_t number, Problems* problems);
  Status watch(const std::string& path, const WatchSettings& settings, Problems* problems);
  Status clear();
  void unwatch();

  // Checks a reading against the names that are registered or announced by plugins, and adds
  // problems to it. Returns null if there is an error. Otherwise moves the config out of the
  // reading.
  std::shared_ptr<const policy::FileRules> compile(ConfigReading& reading);

  std::vector<ConfigVersion> history() const;
  struct Standing {
    uint64_t version = 0;  // the version in force, or 0 before the first
    std::string source;
    bool rules = false;             // false if this version has no rules
    std::string watched;            // the file that is watched, or empty
    bool watched_for_file = false;  // the file asked for the watch, not the program
  };
  Standing standing();
  // Returns the problems of the last submission, and later problems of the rules in force.
  Problems problems();
  RuntimeStats::Reloads stats() {
    const std::lock_guard lock(lock_);
    return stats_;
  }
  void reset_stats() {
    const std::lock_guard lock(lock_);
    stats_ = {};
  }

  // Call this without locks after each change of the snapshot. Applies settings outside of the
  // dispatcher (plugins, recording, the sweep of old plans), and checks conditions on ops that were
  // registered after the rules were read.
  void follow();

  Callbacks<ConfigListener> listeners;
  Callbacks<ConfigValidator> validators;

 private:
  enum class Origin { kValue, kFile, kWatchedFile };
  struct Submission {
    ConfigReading reading;
    std::string source;
    Origin from = Origin::kValue;
    bool at_once = false;           // ignore the rollout that the rules ask for
    std::optional<uint64_t> watch;  // watch_number_ when the watched file was read again
    ConfigEvent::Kind kind = ConfigEvent::Kind::kReloaded;
    dispatch::PublishedRules version = {};  // null until the rules are in force
    std::string started = {};               // describes the rollout that began
  };
  struct ActiveRollout {
    std::shared_ptr<const policy::FileRules> rules;
    policy::RulesVersion version;
    Origin from;
    std::chrono::nanoseconds hold;
    std::chrono::steady_clock::time_point end;
  };
  struct Watched {
    std::string path = {};  // empty if no file is watched
    WatchSettings settings = {};
    bool by_mode = false;                     // the file asked for the watch, not the program
    std::string good = {};                    // the digest of the last accepted text
    std::optional<std::string> refused = {};  // the digest of the last text if it was refused
  };

  // submit.cc
  Status submit(Submission o, Problems* problems);
  std::shared_ptr<const policy::FileRules> check(ConfigReading& reading);
  Status put_in_force(Submission& o, const std::shared_ptr<const policy::FileRules>& rules);
  // Schedules the next advance_rollout(), which ends the rollout if its time is over or it does
  // badly.
  Status schedule(const std::shared_ptr<const ActiveRollout>& rollout);
  void advance_rollout(const std::shared_ptr<const ActiveRollout>& rollout);
  // Records and logs an event, and has the listeners called in the order of versions. `made` may be
  // null. A non-empty `text` replaces the text of the event.
  void tell(ConfigEvent event, const dispatch::PublishedRules& made, bool by_program,
            std::string text = {});
  // Returns kWouldDeadlock on a thread that is submitting rules or inside a selection.
  Status check_reentry() const;

  // watch.cc
  static bool wants_hot_reload(const Config& config);
  // The caller of these two functions holds the lock. A file that comes into force decides whether
  // it is watched, unless the program watches a file.
  void set_watched(Watched next) { watched_ = std::move(next), ++watch_number_; }
  void watch_as_asked(Origin from, const std::string& source, const std::string& sha256, bool asks);
  // Runs on the watcher's thread. Returns false to be called again.
  bool reread();
  // Loading another file may end the watch.
  bool watch_ended(const Submission& o) const { return o.watch && *o.watch != watch_number_; }
  Status follow_watch();
  WatchSettings watch_settings(const WatchSettings& settings) const;
  void apply_settings(const ConfigSettings& settings);
  void write_events(const std::string& path);  // unless the environment names a file

  // names.cc
  void check_later_ops();

  dispatch::PublishedRules in_force() const { return core_.snapshot()->policy->version; }
  // Returns the versions that events remember, oldest first.
  std::vector<dispatch::PublishedRules> versions() const;

  detail::Core& core_;
  plugin::Loader& loader_;
  const std::function<void()> wake_;
  const Record record_;
  const std::string output_directory_;
  base::Mutex lock_{base::Rank::kRules};  // guards the following members
  Problems problems_;
  RuntimeStats::Reloads stats_;
  Watched watched_;
  std::atomic<uint64_t> watch_number_{0};        // counts changes of watched_, and loaded files
  uint64_t told_ = 0;                            // the last version that listeners know
  std::multimap<uint64_t, ConfigEvent> untold_;  // events of later versions
  std::shared_ptr<const policy::FileRules> applied_;  // the rules whose settings were applied last
  bool applying_ = false;                             // a thread is applying settings
  std::string recorded_, events_;  // the files that the applying thread wanted last
  std::shared_ptr<const policy::FileRules> checked_;        // the next two are about these rules
  std::set<std::shared_ptr<const op::Program>> later_ops_;  // ops that were checked
  Problems later_problems_;
  base::TaskThread listeners_thread_;  // listeners may block
  base::TaskThread rollout_thread_;    // calls no listener
  base::FileWatch watcher_;
  base::InChild in_child_{[this] {
    stats_ = {};
    if (std::exchange(applying_, false)) applied_ = nullptr;
  }};
};

// ---- names.cc ----

// Returns the first error, with the others as its notes, or OK if there is none.
Status first_error(const Problems& problems);
Status first_error(const policy::ProcessPolicy& process);

// Reads the variables YARD_* and keeps the last valid value of each invalid one. Logs every problem
// and applies the log levels. `can_record` tests whether calls can be recorded to a file. In a
// privileged process (set-uid, set-gid, file capabilities), variables that name files or plugins
// are ignored and reported.
using CanRecord = std::function<Status(const std::string& path)>;
std::shared_ptr<const policy::Reading> read_environment(const policy::Reading& before,
                                                        const CanRecord& can_record,
                                                        bool privileged = plugin::privileged());
// Returns the reading with warnings about ops, vendors and backends that are neither registered nor
// announced, and logs the warnings. Returns null if there are none.
std::shared_ptr<const policy::Reading> with_unknown_names(const policy::Reading& reading,
                                                          const registry::State& state,
                                                          plugin::Loader& loader);

}  // namespace yard::rules
