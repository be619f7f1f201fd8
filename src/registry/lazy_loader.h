// SPDX-License-Identifier: Apache-2.0
// How the dispatcher asks for what has been found and not yet been loaded, without knowing plugins.
#pragma once

#include <yard/plugins.h>

#include <string>
#include <string_view>
#include <vector>

namespace yard::registry {

class LazyLoader {
 public:
  // An op, group or hook is asked for that is not known, or for the first time. Loads whatever offers it and
  // returns when that is part of the registry. False if it cannot be done now, since this thread is loading something
  // already. Problems are the loader's to remember. Any thread, holding no lock and no guard.
  virtual bool need(PluginOffer what, std::string_view name) noexcept = 0;
  // What was refused and might have brought it, a line each: for the answer to who asked in vain.
  virtual std::vector<std::string> refused_for(PluginOffer what, std::string_view name) = 0;

 protected:
  ~LazyLoader() = default;
};

}  // namespace yard::registry
