// SPDX-License-Identifier: Apache-2.0
// The one way by which rules come into force: checked, validated, tried in a dry run, published or put in rollout,
// remembered, announced to listeners. See yard/config.h.
#pragma once

#include <yard/config.h>
#include <yard/stats.h>

#include <future>
#include <list>
#include <memory>
#include <mutex>

#include "base/background.h"
#include "base/file_watcher.h"
#include "base/fork.h"
#include "dispatch/core.h"
#include "dispatch/policy_changes.h"
#include "plugin/loader.h"
#include "runtime/callbacks.h"

namespace yard::runtime {

// Any thread may call anything. A forked child inherits history, listeners and validators (unless another thread was
// changing them at the fork), and watches the same file as its parent from its first call on.
class Reloader {
 public:
  using Problems = std::vector<ConfigProblem>;
  // Both must outlive it.
  Reloader(detail::Core& core, plugin::Loader& loader);
  ~Reloader();

  // These set `problems`, where it is not null, to everything that was found.
  // If there are no rules yet, a refused file is watched until a version of it is accepted, where `at_start` is set or the
  // file asks to be watched.
  Status load(const std::string& path, Problems* problems, bool at_start = false);
  Status set(Config config, Problems* problems);
  // The same at once, without the rollout that the rules ask for. `source`: for the history.
  Status change(Config config, std::string source, Problems* problems);
  Status roll_back(uint64_t number, Problems* problems);
  Status watch(const std::string& path, const WatchSettings& settings, Problems* problems);
  // No rules, and no file to watch. Is not checked.
  Status clear();
  void unwatch();

  std::vector<ConfigVersion> history();
  struct Standing {
    uint64_t version = 0;           // in force; 0: none has been
    std::string source;             // of it
    bool rules = false;             // whether it has rules
    std::string watched;            // the file that is watched; empty: none
    bool watched_for_file = false;  // the file asked for it, not the program
  };
  Standing standing();
  // Of the rules that were submitted last.
  Problems problems();
  // Counts restart in a forked child.
  ReloadStats stats();
  void reset_stats();

  uint64_t add(ConfigListener f);
  uint64_t add(ConfigValidator f);
  // When this returns, the function is not called again, and is not running unless on this thread.
  void remove(uint64_t id);

 private:
  struct Version {
    uint64_t number;
    std::string sha256;  // empty: not computed yet
    std::chrono::system_clock::time_point time;
    std::string source;
    std::shared_ptr<const Config> config, before;  // null: none
  };
  enum class Origin {
    kValue,
    kChange,        // a value, in force at once
    kRollback,      // an earlier version
    kLoad,          // a file; ends the watch of a file that asked for one
    kLoadAndWatch,  // a file that asks to be watched
    kWatch,         // a file that the program watches from now on
    kWatcher,       // a change of the watched file
  };
  // Rules that apply to a share of calls until they are judged.
  struct ActiveRollout {
    std::shared_ptr<const policy::FileRules> rules;
    std::string sha256, source;
    Origin from = Origin::kValue;
    std::chrono::steady_clock::time_point end;
    std::chrono::nanoseconds interval;  // between two checks
  };
  struct State {
    base::EditMutex lock;       // all that the pipeline does not guard
    std::timed_mutex pipeline;  // one publication of rules at a time; taken before lock
    std::shared_ptr<const ActiveRollout> rollout;  // under the pipeline
    std::list<Version> history;
    uint64_t last = 0;
    Problems problems;
    ReloadStats stats;
    Callbacks<ConfigListener> listeners;
    Callbacks<ConfigValidator> validators;
    uint64_t next_id = 1;
    // The watch.
    std::string path;  // empty: none
    WatchSettings settings;
    bool by_mode = false;       // the file asked for it, not the program
    uint64_t watched_from = 0;  // the last version before
    uint64_t watches = 0;       // how many there have been
    // The last text of the file, by its digest, and the result.
    std::string seen;
    bool refused = false;
    Problems seen_problems;
    std::string good;  // the last text that was not refused

    // Watches another file from now on.
    void watch(std::string file, const WatchSettings& how, bool asked_by_file);

    // Whether the file has the text that it had before, and submitting it again would change nothing.
    bool is_known(const std::string& sha256) const;

    void inherit(State& parents);
    const Version* in_force() const { return history.empty() ? nullptr : &history.back(); }
  };

  struct Submission {
    ConfigReading reading;
    std::string source;
    Origin from = Origin::kValue;
    uint64_t watch = 0;  // of kWatcher: the number of the watch
    bool watched() const noexcept { return from == Origin::kWatch || from == Origin::kWatcher; }
  };

  // While one lives, this thread is submitting rules or ending a rollout. From enter() to leave() or its end it holds the
  // pipeline. Messages are logged at its end, without a lock: log sinks may wait for other threads. Then listeners are told.
  class InPipeline {
   public:
    static constexpr std::chrono::seconds kLongestWait{10};
    explicit InPipeline(const Reloader* of);
    ~InPipeline();
    InPipeline(const InPipeline&) = delete;
    InPipeline& operator=(const InPipeline&) = delete;
    // kWouldDeadlock after kLongestWait: plugin code that another publication runs may wait for this thread.
    Status enter(State& s);
    void leave() { lock_.unlock(); }
    void log(LogLevel level, std::string text) { messages_.emplace_back(level, std::move(text)); }

   private:
    friend class Reloader;
    const Reloader* const of_;
    InPipeline* const outer_;
    std::unique_lock<std::timed_mutex> lock_;
    std::vector<std::pair<LogLevel, std::string>> messages_;
    std::promise<void> logged_;
  };
  static thread_local InPipeline* t_inside;

  template <class F>
  uint64_t add_to(Callbacks<F> State::*to, F callback);
  static Submission submission(Config config, std::string source, Origin from);
  Status submit(Submission o, Problems* problems);
  // Null if there is an error. Validators and the dry run are outside of the pipeline: they may wait for other threads.
  std::shared_ptr<const policy::FileRules> check(ConfigReading& reading);
  void validate(ConfigReading& reading);
  // Enters the pipeline with a result that is true of the rules in force.
  Result<std::vector<dispatch::UnservedCall>> dry_run_and_enter(
      InPipeline& inside, const std::shared_ptr<const policy::FileRules>& rules);
  // kWouldDeadlock on a thread that is inside the pipeline.
  Status check_reentry() const;
  // Starts a rollout, which ends the one before. An error changes nothing. Under the pipeline lock.
  Status begin_rollout(State& s, const Submission& o,
                       std::shared_ptr<const policy::FileRules> rules);
  // On rollout_thread_: ends the rollout if its time is over or its rules do badly, else schedules the next check.
  void advance_rollout(const std::shared_ptr<const ActiveRollout>& rollout);
  // Puts the rules in force, or takes them back; returns what is wrong with them.
  Problems end_rollout(const ActiveRollout& rollout, std::string too_bad,
                       const std::vector<dispatch::UnservedCall>& unserved);
  // Whether the same text was refused for the same reasons before.
  bool repeated(const Submission& o, const State& s) const;
  // Watches a file that was refused, unless another is watched.
  void watch_refused(const std::string& path, const std::string& sha256, Problems problems);
  // Starts or ends the watch that a loaded file asks for. Under the lock.
  void watch_loaded(State& s, Origin from, const std::string& source, const std::string& sha256);
  // The next entry of the history, made before it is in force. `config` may be null. Inside the pipeline.
  static std::list<Version> new_version(const State& s, std::string sha256, std::string source,
                                        const Config* config);
  // Under the lock.
  static void remember(State& s, std::list<Version> version) noexcept;
  // Problems, the watch, the log and listeners, once it is known what became of the rules.
  void report(InPipeline& inside, Submission o, const Status& status,
              const policy::FileRules* in_rollout, Problems* problems);
  // `rollout`: what is logged about a rollout; empty: the event is no part of one. `by_program`: the program has asked
  // for the change itself.
  void notify(InPipeline& inside, ConfigEvent event, bool by_program, std::string rollout = {});

  // On the watcher's thread; false: to be called again.
  bool reread();
  // Ends a watch that the file asked for, once a version of it is in force that does not. Whether it has.
  bool stop_unwanted_watch();
  // In a forked child, or after a stop.
  void restart_watch();
  // Watches `files` if the first of them is the file to be watched, else that file alone.
  Status start_watching(const std::vector<std::string>& files);
  base::WatchHow watch_settings(const WatchSettings& settings) const;

  detail::Core& core_;
  plugin::Loader& loader_;
  base::OwnedPerProcess<State> state_;
  base::TaskThread listeners_thread_;  // listeners may block
  base::TaskThread rollout_thread_;    // calls no listener
  base::FileWatcher watcher_;
  base::FirstUse in_child_;  // last: it uses the rest
};

}  // namespace yard::runtime
