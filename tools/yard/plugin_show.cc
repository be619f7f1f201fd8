// SPDX-License-Identifier: Apache-2.0
#include "plugin_show.h"

#include <fmt/format.h>

#include <filesystem>

namespace yard::tool {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& s) { return s.empty() ? Json() : Json(s); }

}  // namespace

Json to_json(const PluginInfo& p) {
  const bool refused = p.state == PluginState::kRefused;
  return {{"path", p.path},
          {"name", text_or_null(p.name)},
          {"version", text_or_null(p.version)},
          {"state", to_string(p.state)},
          {"reason", refused ? Json(to_string(p.reason)) : Json()},
          {"detail", text_or_null(p.detail)},
          {"sha256", text_or_null(p.sha256)},
          {"abi", p.abi},
          {"arch", text_or_null(p.arch)},
          {"sanitizer", text_or_null(p.sanitizer)},
          {"build", text_or_null(p.build)},
          {"devices", p.devices},
          {"features", p.features},
          {"ops", p.ops},
          {"groups", p.groups},
          {"hooks", p.hooks},
          {"probed", !p.probed ? Json() : Json(*p.probed ? "passed" : "failed")},
          {"verified", p.verified}};
}

std::string why_refused(const PluginInfo& p) {
  if (p.state != PluginState::kRefused) return p.detail;
  return fmt::format("{}: {}", to_string(p.reason), p.detail);
}

std::string joined(const std::vector<std::string>& words) {
  std::string to;
  for (const std::string& w : words) to += (to.empty() ? "" : ", ") + w;
  return to.empty() ? "-" : to;
}

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

RuntimeSettings looks_for_nothing() {
  RuntimeSettings s;
  s.builtin_backends = false, s.environment = false, s.plugins.installed = false;
  return s;
}

}  // namespace yard::tool
