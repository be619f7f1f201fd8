// SPDX-License-Identifier: Apache-2.0
#include "announced.h"

#include <fmt/format.h>

#include <algorithm>

namespace yard::tool {

std::vector<Announced> announced(const Runtime& runtime, Announcement what) {
  std::vector<Announced> to;
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.state == PluginState::kFound)
      for (const std::string& name : p.*what) to.push_back({name, p.name, p.path});
  return to;
}

Status none_refused(const Runtime& runtime, const std::vector<std::string>& paths) {
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.state == PluginState::kRefused &&
        std::find(paths.begin(), paths.end(), p.path) != paths.end())
      return Status(Code::kInvalidArgument,
                    fmt::format("{} is refused: {}: {}", p.path, to_string(p.reason), p.detail));
  return {};
}

Status open_announced(Runtime& runtime, Announcement what) {
  for (const Announced& a : announced(runtime, what))
    YARD_RETURN_IF_ERROR(runtime.plugins().load(a.path));
  return {};
}

}  // namespace yard::tool
