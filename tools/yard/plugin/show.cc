// SPDX-License-Identifier: Apache-2.0
#include "plugin/show.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>

namespace yard::tool {
namespace {

std::vector<std::string>& device_features() {
  static std::vector<std::string> features;
  return features;
}

}  // namespace

void add_feature_option(CLI::App& command) {
  command
      .add_option("--device-feature", device_features(),
                  "A feature that a device has, for example cuda:sm_90 or cuda:1:sm_90; repeatable")
      ->type_name("DEVICE:NAME")
      ->allow_extra_args(false);
}

Status check_features() {
  RuntimeSettings s = looks_for_nothing();
  s.device_features.clear();
  return Runtime(s).plugins().state_device_features(device_features());
}

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
          {"verified", p.verified}};
}

std::string why_refused(const PluginInfo& p) {
  if (p.state != PluginState::kRefused) return p.detail;
  return fmt::format("{}: {}", to_string(p.reason), p.detail);
}

std::string joined(const std::vector<std::string>& words) {
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, ", "));
}

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

RuntimeSettings looks_also_at(const std::vector<std::string>& paths) {
  RuntimeSettings s = as_the_environment_has_it();
  for (const std::string& p : paths) s.plugins.paths.push_back(absolute(p));
  return s;
}

RuntimeSettings as_the_environment_has_it() {
  RuntimeSettings s;
  s.device_features = device_features();
  return s;
}

RuntimeSettings looks_for_nothing() {
  RuntimeSettings s = as_the_environment_has_it();
  s.builtin_backends = false, s.environment = false, s.plugins.installed = false;
  return s;
}

std::vector<Announced> announced(const Runtime& runtime, Announcement what) {
  std::vector<Announced> to;
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.state == PluginState::kFound)
      for (const std::string& name : p.*what) to.push_back({name, p.name, p.path});
  return to;
}

Status none_refused(const Runtime& runtime, const std::vector<std::string>& paths) {
  for (const PluginInfo& p : runtime.plugins().list())
    if (p.state == PluginState::kRefused && std::ranges::find(paths, p.path) != paths.end())
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
