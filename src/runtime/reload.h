// SPDX-License-Identifier: Apache-2.0
// The one way by which rules come into force, what it remembers, and whom it tells. See yard/reload.h.
#pragma once

#include <yard/reload.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "base/file_watcher.h"
#include "base/owned_per_process.h"
#include "base/task_thread.h"
#include "dispatch/core.h"

namespace yard::runtime {

// Any thread may call anything. A child of fork goes on with history, listeners and validators (unless another
// thread was changing them at the fork) and watches nothing.
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
  // Something of the program's that is called.
  template <class F>
  struct Callback {
    explicit Callback(F f) : call(std::move(f)) {}
    const F call;
    std::recursive_mutex running;  // it may remove itself
    bool removed = false;
  };
  template <class F>
  using Callbacks = std::map<uint64_t, std::shared_ptr<Callback<F>>>;

  struct Version {
    uint64_t number;
    std::string sha256;  // empty: not computed yet
    std::chrono::system_clock::time_point time;
    std::string source;
    std::shared_ptr<const Config> config, before;  // null: none
  };
  // Rules that some calls go by until they have proved themselves.
  struct Trial {
    std::shared_ptr<const policy::FileRules> rules;
    std::string sha256, source;
    std::chrono::steady_clock::time_point end;
    std::chrono::nanoseconds step;  // between two looks
  };
  struct State {
    std::mutex lock;
    std::mutex pipeline;                 // one change at a time; taken before lock
    std::shared_ptr<const Trial> trial;  // under the pipeline
    std::deque<Version> history;
    uint64_t last = 0;
    Problems problems;
    Callbacks<ConfigListener> listeners;
    Callbacks<ConfigValidator> validators;
    uint64_t next_id = 1;
    // The watch.
    std::string path;  // empty: none
    WatchSettings settings;
    // What was last read of the file, and what came of it.
    std::string seen;
    bool refused = false;
    Problems seen_problems;

    void inherit(State& parents);
    const Version* in_force() const { return history.empty() ? nullptr : &history.back(); }
  };

  struct Offer {
    ConfigReading reading;
    std::string source;
    bool watched = false;
    bool back = false;  // an earlier version
  };

  // The pipeline.
  Status offer(Offer o, Problems* problems);
  std::shared_ptr<const policy::FileRules> check(ConfigReading& reading, State& s);
  void validate(ConfigReading& reading, State& s);
  // Puts the rules on trial; what was on trial before is not any more. Under the pipeline.
  Status begin_trial(State& s, const Offer& o, std::shared_ptr<const policy::FileRules> rules);
  // On the thread of events: whether the trial has gone on long enough, or too badly.
  void look_at_trial(const std::shared_ptr<const Trial>& trial);
  // Whether this is the same refusal again.
  bool repeated(const Offer& o, const State& s) const;
  // Under the lock.
  void remember(State& s, std::string sha256, std::string source,
                std::shared_ptr<const Config> config);
  void tell(State& s, ConfigEvent event);

  // On the watcher's thread: false to be called again.
  bool look();
  base::WatchHow how(const WatchSettings& settings) const;

  detail::Core& core_;
  const std::function<std::vector<std::string>()> announced_;
  base::OwnedPerProcess<State> state_;
  base::TaskThread events_;
  base::FileWatcher watcher_;
};

}  // namespace yard::runtime
