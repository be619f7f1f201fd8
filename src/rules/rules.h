// SPDX-License-Identifier: Apache-2.0
// The one way by which rules come into force: they are checked, validated, tried in a dry run, published or put in rollout,
// and announced to listeners (yard/config.h). Also the names that rules and the environment may use, and what follows
// from the rules in force outside of the dispatcher.
//
// Versions of rules are part of the published policy (policy::RulesVersion), so that they are in order whichever thread
// publishes them. Rules are published if those in force are still the ones that the dry run saw. No lock is held while
// validators, verifiers, listeners or log sinks run.
#pragma once

#include <yard/config.h>
#include <yard/stats.h>

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
  // Both must outlive it.
  Rules(detail::Core& core, plugin::Loader& loader);
  ~Rules();

  // These set `problems`, where it is not null, to everything that was found.
  // If there are no rules yet and the file is refused, it is watched until a version of it is accepted, if `at_start` is
  // set or the file asks to be watched.
  Status load(const std::string& path, Problems* problems, bool at_start = false);
  Status set(Config config, Problems* problems);
  // Like set(), but ignores the rollout that the rules ask for. `source` is for the history.
  Status change(Config config, std::string source, Problems* problems);
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
  // Of the rules that were submitted last.
  Problems problems();
  ReloadStats stats();
  void reset_stats();

  Callbacks<ConfigListener> listeners;
  Callbacks<ConfigValidator> validators;

 private:
  enum class Origin { kValue, kFile, kWatchedFile };
  struct Submission {
    ConfigReading reading;
    std::string source;
    Origin from = Origin::kValue;
    bool at_once = false;  // without the rollout that the rules ask for
    bool rollback = false;
    bool by_program = true;  // false if the watched file has changed
    uint64_t watch = 0;      // of kWatchedFile: the number of the watch
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
    std::string path;  // empty if no file is watched
    WatchSettings settings;
    bool by_mode = false;  // the file asked for it, not the program
    uint64_t number = 0;   // of the watch; each has another
    uint64_t after = 0;    // the version that was in force before
    std::string seen;      // the digest of the file's last text
    bool refused = false;  // that text
    std::string good;      // the digest of the last text that was not refused
  };
  // What became of rules without errors.
  struct Done {
    uint64_t version = 0;      // in force; 0 if they are not, or not yet
    bool rollout = false;      // they are in rollout
    bool watch_ended = false;  // nothing, since their file is not watched any more
  };
  class Inside;
  class Loading;

  // submit.cc
  static Submission submission(Config config, std::string source);
  Status submit(Submission o, Problems* problems);
  // Null if there is an error.
  std::shared_ptr<const policy::FileRules> check(ConfigReading& reading);
  // Dry run, and publication if there is no error.
  Result<Done> put_in_force(Submission& o, const std::shared_ptr<const policy::FileRules>& rules);
  Status follow_rollout(const Submission& o, const policy::RulesVersion& version,
                        const std::shared_ptr<const policy::FileRules>& rules);
  // On rollout_thread_. Ends the rollout if its time is over or its rules do badly, else schedules the next check.
  void advance_rollout(const std::shared_ptr<const ActiveRollout>& rollout);
  Status schedule(const std::shared_ptr<const ActiveRollout>& rollout,
                  std::chrono::steady_clock::time_point when);
  void report(Submission o, const Status& status, const Done& done, const policy::FileRules* rules,
              Problems* problems);
  // Logs an event and has the listeners called, in the order of the versions. `version` is the one that the event made,
  // or 0. `text` is logged instead of the event unless it is empty.
  void tell(ConfigEvent event, uint64_t version, bool by_program, std::string text = {});
  // kWouldDeadlock on a thread that is submitting rules or inside a selection.
  Status check_reentry() const;

  // watch.cc
  static bool wants_hot_reload(const Config& config);
  // Under the lock. Watches another file from now on.
  void set_watched(std::string path, const WatchSettings& settings, bool by_mode);
  // Under the lock. Starts or ends the watch that a loaded file asks for.
  void watch_loaded(const std::string& source, const std::string& sha256, bool asks);
  // On the watcher's thread. Returns false to be called again.
  bool reread();
  // Whether the file of a submission is not watched any more, or another file is being loaded, which may end the watch.
  bool watch_ended(const Submission& o);
  // Under the lock. Whether submitting the file's text again would change nothing.
  bool is_known(const std::string& sha256) const;
  // Ends a watch that the file asked for, once a version of it is in force that does not. Returns whether it has.
  bool stop_unwanted_watch();
  // Watches `files` if the first of them is the file to be watched, else that file alone.
  Status start_watching(const std::vector<std::string>& files);
  void restart_watch();
  base::WatchHow watch_settings(const WatchSettings& settings) const;

  std::shared_ptr<const policy::RulesVersion> in_force() const;

  detail::Core& core_;
  plugin::Loader& loader_;
  base::Mutex lock_{base::Rank::kRules};  // of the following
  Problems problems_;
  ReloadStats stats_;
  Watched watched_;
  int loads_ = 0;                           // files that are being loaded
  uint64_t told_ = 0;                       // the last version that listeners know
  std::map<uint64_t, ConfigEvent> untold_;  // events whose turn has not come
  base::TaskThread listeners_thread_;       // listeners may block
  base::TaskThread rollout_thread_;         // calls no listener
  base::FileWatch watcher_;
  base::FirstUse restart_;  // in a forked child: the watch
  base::InChild in_child_{[this] {
    stats_ = {};
    loads_ = 0;
  }};
};

// ---- names.cc: what is registered, for checks of rules and environment ----

// Names that plugins announce which are found and not loaded.
struct Announced {
  std::vector<std::string> ops;
  std::vector<std::string> plugins;  // a plugin's backend usually has its name
};
Announced announced(plugin::Loader& loader);

// Checks what was read against the registry, the modes and labels of the process and announced names. Problems are added to
// the reading. Null if there is an error.
std::shared_ptr<const policy::FileRules> make_rules(ConfigReading& reading,
                                                    const registry::State& state,
                                                    const policy::ProcessPolicy& process,
                                                    const Announced& announced);
// Checks conditions about ops that were registered after the rules were read.
Problems check_later_ops(const policy::FileRules& rules, const registry::State& state,
                         const policy::ProcessPolicy& process, const Announced& announced);

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
                                                          const Announced& announced);

// ---- follow.cc ----

// Keeps parts outside of the dispatcher up to date with the rules in force: settings of plugins, recording, the sweep of old
// plans; and checks conditions about ops that are registered after the file was read.
class Follower {
 public:
  // Core and loader must outlive it. `wake` is called when there are plans with a lifetime to sweep. `record` makes the
  // recording that rules ask for the one at that path, or ends it if the path is empty.
  using Record = std::function<Status(const std::string& path)>;
  Follower(detail::Core& core, plugin::Loader& loader, std::function<void()> wake, Record record);

  // After each change. Any thread, holding no lock.
  void follow();
  // Problems of the rules in force that were found after they came into force.
  Problems problems();

 private:
  void apply_settings();
  void apply(const ConfigSettings& settings);
  void check_later_ops();

  detail::Core& core_;
  plugin::Loader& loader_;
  const std::function<void()> wake_;
  const Record record_;
  base::Mutex lock_{base::Rank::kRules};              // of the following
  std::shared_ptr<const policy::FileRules> applied_;  // the rules whose settings were applied last
  bool applying_ = false;                             // some thread applies settings
  std::string recorded_;  // of that thread: the file that was wanted last
  std::shared_ptr<const policy::FileRules> checked_;  // the rules that the rest is about
  std::map<std::string, std::shared_ptr<const op::Program>> later_ops_;  // that were checked
  Problems problems_;
  base::InChild in_child_{[this] {
    if (std::exchange(applying_, false)) applied_ = nullptr;
  }};
};

}  // namespace yard::rules
