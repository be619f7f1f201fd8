// SPDX-License-Identifier: Apache-2.0
// The one way by which rules come into force: they are checked, validated, tried in a dry run, published or put in rollout,
// and announced to listeners (yard/config.h).
//
// Versions of rules are part of the published policy (policy::RulesVersion), so that they are in order whichever thread
// publishes them. Rules are published if those in force are still the ones that the dry run saw.
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
#include "dispatch/policy_changes.h"
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
  // `wake` is called when there are plans with a lifetime to sweep. `record` makes the recording that rules ask for the
  // one at that path, or ends it if the path is empty.
  // Rules may have files written below `output_directory`; empty: see RuntimeSettings.
  using Record = std::function<Status(const std::string& path)>;
  Rules(detail::Core& core, plugin::Loader& loader, std::function<void()> wake, Record record,
        std::string output_directory);
  ~Rules();

  // The functions below set `problems`, unless it is null, to everything that was found.
  // If there are no rules yet and the file is refused, load() watches it until a version of it is accepted, provided that
  // `at_start` is set or the file asks to be watched.
  Status load(const std::string& path, Problems* problems, bool at_start = false);
  // `source` is for the history. If `at_once` is set, the rollout that the rules ask for is ignored.
  Status change(Config config, std::string source, Problems* problems, bool at_once = true);
  // Returns the known calls that the rules would give another kernel, or why change() would refuse the rules: kConflict if
  // calls would have no kernel. Changes, counts, logs and reports nothing.
  Result<std::vector<dispatch::MovedCall>> dry_run(Config config);
  Status roll_back(uint64_t number, Problems* problems);
  Status watch(const std::string& path, const WatchSettings& settings, Problems* problems);
  // Removes the rules and ends the watch.
  Status clear();
  void unwatch();

  // Checks what was read against the registry, the process and what plugins announce, and adds problems to the reading. Takes
  // its config, or returns null if there is an error.
  std::shared_ptr<const policy::FileRules> compile(ConfigReading& reading);

  std::vector<ConfigVersion> history() const;
  struct Standing {
    uint64_t version = 0;           // of the rules in force; 0 if there have been none
    std::string source;             // of this version
    bool rules = false;             // false if the version has no rules
    std::string watched;            // the file that is watched; empty if there is none
    bool watched_for_file = false;  // the file asked for it, not the program
  };
  Standing standing();
  // The problems of the rules that were submitted last, and those that were found in the rules in force later.
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
    ConfigEvent::Kind kind = ConfigEvent::Kind::kReloaded;  // what becomes of the rules
    dispatch::PublishedRules version = {};                  // null until they are in force
    std::string started = {};                               // describes the rollout that began
  };
  // Rules that apply to a share of calls until they are judged.
  struct ActiveRollout {
    std::shared_ptr<const policy::FileRules> rules;
    policy::RulesVersion version;
    Origin from;
    std::chrono::nanoseconds hold;  // how long the rollout lasts
    std::chrono::steady_clock::time_point end;
  };
  struct Watched {
    std::string path = {};  // empty if no file is watched
    WatchSettings settings = {};
    bool by_mode = false;   // the file asked for it, not the program
    std::string good = {};  // the digest of the last text that was not refused
    // The digest of the file's last text if that was refused.
    std::optional<std::string> refused = {};

    bool has_seen(const std::string& sha256) const { return refused.value_or(good) == sha256; }
  };

  // submit.cc
  Status submit(Submission o, Problems* problems);
  // compile(), and the validators of the program.
  std::shared_ptr<const policy::FileRules> check(ConfigReading& reading);
  // Does the dry run, and publishes the rules if there is no error.
  Status put_in_force(Submission& o, const std::shared_ptr<const policy::FileRules>& rules);
  // Schedules the next check.
  Status schedule(const std::shared_ptr<const ActiveRollout>& rollout);
  // Runs on rollout_thread_. Ends the rollout if its time is over or its rules do badly, else schedules the next check.
  void advance_rollout(const std::shared_ptr<const ActiveRollout>& rollout);
  // Records and logs an event and has the listeners called, in the order of the versions. `made` is the version that the
  // change made, or null. `text` says more than the event, unless it is empty.
  void tell(ConfigEvent event, const dispatch::PublishedRules& made, bool by_program,
            std::string text = {});
  // kWouldDeadlock on a thread that is submitting rules or inside a selection.
  Status check_reentry() const;

  // watch.cc
  static bool wants_hot_reload(const Config& config);
  // The caller holds the lock. Watches another file from now on, or none.
  void set_watched(Watched next) { watched_ = std::move(next), ++watch_number_; }
  // The caller holds the lock. A file that has come into force decides whether it is watched, unless the program watches one.
  void watch_as_asked(Origin from, const std::string& source, const std::string& sha256, bool asks);
  // Runs on the watcher's thread. Returns false to be called again.
  bool reread();
  // Whether the changed file of a submission is not watched any more, or another file was loaded, which may end the watch.
  bool watch_ended(const Submission& o) const { return o.watch && *o.watch != watch_number_; }
  // Makes the watcher watch the file of watched_, or none.
  Status follow_watch();
  base::WatchHow watch_settings(const WatchSettings& settings) const;
  void apply_settings(const ConfigSettings& settings);
  void write_events(const std::string& path);  // unless the environment names a file

  // names.cc
  void check_later_ops();

  dispatch::PublishedRules in_force() const { return core_.snapshot()->policy->version; }
  // Those that events remember, oldest first.
  std::vector<dispatch::PublishedRules> versions() const;

  detail::Core& core_;
  plugin::Loader& loader_;
  const std::function<void()> wake_;
  const Record record_;
  const std::string output_directory_;
  base::Mutex lock_{base::Rank::kRules};  // of the following
  Problems problems_;
  RuntimeStats::Reloads stats_;
  Watched watched_;
  std::atomic<uint64_t> watch_number_{0};        // counts changes of watched_, and loaded files
  uint64_t told_ = 0;                            // the last version that listeners know
  std::multimap<uint64_t, ConfigEvent> untold_;  // by version; their turn has not come
  std::shared_ptr<const policy::FileRules> applied_;  // the rules whose settings were applied last
  bool applying_ = false;                             // some thread applies settings
  std::string recorded_, events_;  // used by that thread: the files that were wanted last
  std::shared_ptr<const policy::FileRules> checked_;  // the rules that the next two are about
  std::map<std::string, std::shared_ptr<const op::Program>> later_ops_;  // have been checked
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

// The first error with the others as its notes; ok if there is none.
Status first_error(const Problems& problems);
// Of the variables YARD_* and of those that backends name.
Status first_error(const policy::ProcessPolicy& process);

// Reads the variables YARD_* over the last valid values. Logs every problem and applies the log levels. `can_record` says
// whether calls can be recorded to a file. In a privileged process (set-uid, set-gid, file capabilities) variables that
// name files or plugins are ignored and reported.
using CanRecord = std::function<Status(const std::string& path)>;
std::shared_ptr<const policy::Reading> read_environment(const policy::Reading& before,
                                                        const CanRecord& can_record,
                                                        bool privileged = plugin::privileged());
// Returns the reading with warnings about names of ops, vendors and backends that are neither registered nor announced,
// because these may be registered later. Logs the warnings. Returns null if there are none.
std::shared_ptr<const policy::Reading> with_unknown_names(const policy::Reading& reading,
                                                          const registry::State& state,
                                                          plugin::Loader& loader);

}  // namespace yard::rules
