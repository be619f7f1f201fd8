// SPDX-License-Identifier: Apache-2.0
// The one way by which rules come into force, what it remembers, and whom it tells. See yard/config.h.
#pragma once

#include <yard/config.h>

#include <deque>
#include <memory>
#include <mutex>

#include "base/background.h"
#include "base/editing.h"
#include "base/file_watcher.h"
#include "base/first_use.h"
#include "base/owned_per_process.h"
#include "dispatch/core.h"
#include "runtime/callbacks.h"

namespace yard::runtime {

// Any thread may call anything. A forked child goes on with history, listeners and validators (unless another
// thread was changing them at the fork), and watches what its parent did from its first call on.
class Reloader {
 public:
  using Problems = std::vector<ConfigProblem>;
  // `announced`: ops that plugins bring which are not loaded.
  Reloader(detail::Core& core, std::function<std::vector<std::string>()> announced);
  ~Reloader();

  // These set `problems`, where it is not null, to all that was found.
  Status load(const std::string& path, Problems* problems);
  Status set(Config config, Problems* problems);
  Status roll_back(uint64_t number, Problems* problems);
  Status watch(const std::string& path, const WatchSettings& settings, Problems* problems);
  // No rules, and no file to watch. Refused by nothing.
  Status clear();
  void unwatch();

  std::vector<ConfigVersion> history();
  // Of what was last offered.
  Problems problems();

  uint64_t add(ConfigListener listener);
  uint64_t add(ConfigValidator validator);
  // Neither running, but on this thread, nor called again when this returns.
  void remove(uint64_t id);

 private:
  struct Version {
    uint64_t number;
    std::string sha256;  // empty: not computed yet
    std::chrono::system_clock::time_point time;
    std::string source;
    std::shared_ptr<const Config> config, before;  // null: none
  };
  enum class From {
    kValue,
    kEarlier,  // a version there was
    kLoad,     // a file, which takes the place of one that asked to be watched
    kLoadHot,  // the same, and it asks to be watched itself
    kWatch,    // the program watches it from now on
    kWatcher,  // its thread has seen a change
  };
  // Rules that some calls go by until they have proved themselves.
  struct ActiveRollout {
    std::shared_ptr<const policy::FileRules> rules;
    std::string sha256, source;
    From from = From::kValue;
    std::chrono::steady_clock::time_point end;
    std::chrono::nanoseconds step;  // between two looks
  };
  struct State {
    base::EditMutex lock;
    std::mutex pipeline;                           // one change at a time; taken before lock
    std::shared_ptr<const ActiveRollout> rollout;  // under the pipeline
    std::deque<Version> history;
    uint64_t last = 0;
    Problems problems;
    Callbacks<ConfigListener> listeners;
    Callbacks<ConfigValidator> validators;
    uint64_t next_id = 1;
    // The watch.
    std::string path;  // empty: none
    WatchSettings settings;
    bool by_mode = false;       // the file asked for it, not the program
    uint64_t watched_from = 0;  // the last version before
    uint64_t watches = 0;       // how many there have been
    // What was last read of the file, and what came of it.
    std::string seen;
    bool refused = false;
    Problems seen_problems;
    std::string good;  // the last of these that was not refused

    // From now on another file is watched, or none.
    void watch(std::string file, const WatchSettings& how, bool asked_by_file);

    bool is_known(const std::string& sha256) const;

    void inherit(State& parents);
    const Version* in_force() const { return history.empty() ? nullptr : &history.back(); }
  };

  struct Offer {
    ConfigReading reading;
    std::string source;
    From from = From::kValue;
    uint64_t watch = 0;  // the watcher's: which of them has seen it
    bool watched() const noexcept { return from == From::kWatch || from == From::kWatcher; }
  };

  // The pipeline.
  Status offer(Offer o, Problems* problems);
  std::shared_ptr<const policy::FileRules> check(ConfigReading& reading, State& s);
  void validate(ConfigReading& reading, State& s);
  // What a file says has been checked; what a program says may be anything.
  static void check_canary(const RolloutRule& rule, ConfigReading& reading);
  // would_deadlock on a thread that is inside the pipeline.
  Status not_here() const;
  // Puts the rules in rollout; what was in rollout before is not any more. An error changes nothing. Under the pipeline.
  Status begin_rollout(State& s, const Offer& o, std::shared_ptr<const policy::FileRules> rules);
  // On the keeper's thread: whether the rollout has gone on long enough, or too badly.
  void check_rollout(const std::shared_ptr<const ActiveRollout>& rollout);
  // Ends it one way or the other; what is wrong with its rules.
  Problems end_rollout(const ActiveRollout& rollout, std::string too_bad);
  // Whether this is the same refusal again.
  bool repeated(const Offer& o, const State& s) const;
  // What accepted rules that were loaded do to a watch that a file asked for. Under the lock.
  void watch_loaded(State& s, From from, const std::string& source, const std::string& sha256);
  // Under the lock.
  void remember(State& s, std::string sha256, std::string source,
                std::shared_ptr<const Config> config);
  void tell(State& s, ConfigEvent event);

  // On the watcher's thread: false to be called again.
  bool look();
  // Ends a watch that the file asked for, once a version of it is in force that does not.
  bool leave_if_cool();
  // In a forked child, or after a stop: what is to be watched.
  void watch_again();
  // The same, for `files` if it is the first of them that is.
  Status start_watching(const std::vector<std::string>& files);
  base::WatchHow how(const WatchSettings& settings) const;

  detail::Core& core_;
  const std::function<std::vector<std::string>()> announced_;
  base::OwnedPerProcess<State> state_;
  base::TaskThread events_;  // calls listeners, which may block
  base::TaskThread keeper_;  // looks at rules in rollout
  base::FileWatcher watcher_;
  base::FirstUse in_child_;  // last: it uses the rest
};

}  // namespace yard::runtime
