// SPDX-License-Identifier: Apache-2.0
// Settings of the rule file in force that are not the dispatcher's: plugins, recording, the sweep of old plans.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/owned_per_process.h"
#include "dispatch/core.h"
#include "plugin/loader.h"
#include "runtime/recorder.h"

namespace yard::runtime {

class FileSettings {
 public:
  // `wake`: there are plans to sweep out.
  FileSettings(detail::Core& core, plugin::Loader& loader, std::function<void()> wake)
      : core_(core), loader_(loader), wake_(std::move(wake)) {}

  // After each change: does nothing where the rules are the same.
  void follow();

 private:
  void follow_recording();
  Status record_instead(const std::shared_ptr<Recorder>& mine, const std::string& path,
                        std::shared_ptr<Recorder>& made);

  struct State {
    std::mutex lock;
    std::shared_ptr<const policy::FileRules> seen;
    std::string wanted;  // what that says is to be recorded
    std::string record;  // what was last done about it
    std::weak_ptr<Recorder> mine;
    bool switching = false;  // some thread makes `record` what is wanted
    void inherit(State& parents) {
      seen = parents.seen, wanted = parents.wanted, record = parents.record, mine = parents.mine;
      if (parents.switching) seen = nullptr, record.clear();  // nobody does it here: once more
    }
  };

  detail::Core& core_;
  plugin::Loader& loader_;
  const std::function<void()> wake_;
  base::OwnedPerProcess<State> state_;
};

}  // namespace yard::runtime
