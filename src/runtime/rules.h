// SPDX-License-Identifier: Apache-2.0
// The environment and rule files in a runtime: checking them against what is registered, and what follows from the rules
// in force besides dispatch.
#pragma once

#include <yard/config.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fork.h"
#include "dispatch/core.h"
#include "plugin/loader.h"
#include "plugin/search.h"
#include "policy/process.h"
#include "registry/changes.h"
#include "runtime/recording.h"

namespace yard::runtime {

// Names that plugins announce which are found and not loaded.
struct Announced {
  std::vector<std::string> ops;
  std::vector<std::string> plugins;  // a plugin's backend usually has its name
};
Announced announced(plugin::Loader& loader);

// Checks what was read against the registry, the modes and labels of the process and `announced` names. Problems are added
// to the reading. Null if there is an error.
std::shared_ptr<const policy::FileRules> make_rules(ConfigReading& reading,
                                                    const registry::State& state,
                                                    const policy::ProcessPolicy& process,
                                                    const Announced& announced);

// The first error with the others as its notes; ok if there is none.
Status first_error(const std::vector<ConfigProblem>& problems);
Status first_error(const policy::Reading& reading);

// Reads the variables YARD_* over the last valid values. Logs every problem and applies the log levels. In a privileged
// process (set-uid, set-gid, file capabilities) variables that name files or plugins are ignored and reported.
std::shared_ptr<const policy::Reading> read_environment(const policy::Reading& before,
                                                        bool privileged = plugin::privileged());
// The same reading with warnings about names of ops, vendors and backends that are neither registered nor announced: they
// may be registered later. Logs these. Null: there are none.
std::shared_ptr<const policy::Reading> with_unknown_names(const policy::Reading& reading,
                                                          const registry::State& state,
                                                          const Announced& announced);

// Keeps parts outside of the dispatcher up to date with the rules in force: settings of plugins and recording, the sweep
// of old plans; and checks conditions about ops that are registered after the file was read.
class RuleFollower {
 public:
  // Core and loader must outlive it. `wake`: there are plans with a lifetime to sweep.
  RuleFollower(detail::Core& core, plugin::Loader& loader, std::function<void()> wake)
      : core_(core), loader_(loader), wake_(std::move(wake)) {}

  // After each change. Any thread, holding no lock.
  void follow();
  // Problems of the rules in force that were found after they came into force.
  std::vector<ConfigProblem> problems();

 private:
  struct State {
    std::mutex lock;
    std::shared_ptr<const policy::FileRules> applied;  // the rules whose settings were applied last
    std::string wanted;                                // the file that they want calls recorded to
    std::string record;                                // the one that was switched to last
    std::weak_ptr<Recorder> recorder;                  // made for it
    bool switching = false;                            // some thread makes `record` what is wanted
    void inherit(State& parents);
  };
  // Apart from the settings, since its lock is held while conditions are checked.
  struct Conditions {
    std::mutex lock;
    std::shared_ptr<const policy::FileRules> checked;  // the rules that the rest is about
    std::map<std::string, std::shared_ptr<const op::Program>>
        later_ops;  // checked after the file was read
    std::vector<ConfigProblem> problems;
    void inherit(Conditions& parents);
  };
  void apply_settings();
  void switch_recording();
  Status record_to(const std::shared_ptr<Recorder>& mine, const std::string& path,
                   std::shared_ptr<Recorder>& made);
  void check_later_ops();
  // Under the lock: whether the rules concern an op that has not been checked.
  static bool has_later_op(Conditions& s, const registry::State& registry);

  detail::Core& core_;
  plugin::Loader& loader_;
  const std::function<void()> wake_;
  base::OwnedPerProcess<State> state_;
  base::OwnedPerProcess<Conditions> conditions_;
};

}  // namespace yard::runtime
