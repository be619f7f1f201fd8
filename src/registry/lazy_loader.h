// SPDX-License-Identifier: Apache-2.0
// Interface by which the dispatcher loads plugins on demand.
#pragma once

#include <yard/plugins.h>

#include <string>
#include <string_view>
#include <vector>

namespace yard::registry {

class LazyLoader {
 public:
  // Called for an op, group or hook that is unknown or used for the first time. Loads the plugins that offer it, and
  // returns when they are registered. False if this thread is already loading something. Failures are recorded by the
  // loader. Any thread, without locks and guards held.
  virtual bool need(PluginOffer what, std::string_view name) noexcept = 0;
  // Refused plugins that may offer it, a line each: for error messages.
  virtual std::vector<std::string> refused_for(PluginOffer what, std::string_view name) = 0;

 protected:
  ~LazyLoader() = default;
};

}  // namespace yard::registry
