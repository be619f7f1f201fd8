// SPDX-License-Identifier: Apache-2.0
// yard plugin lock: writes the list of plugins that may be loaded.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "output.h"
#include "plugin/show.h"
#include "terminal.h"

namespace yard::tool {
namespace {

namespace fs = std::filesystem;
struct LockQuestion {
  std::vector<std::string> paths;
  std::string output;
  bool json = false;
};

struct LockContents {
  std::vector<PluginInfo> listed, refused;
};

// Returns the .so files of a directory, sorted by name, or the path itself if it is a file.
std::vector<std::string> files_of(const std::string& path, std::error_code& error) {
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".so") files.push_back(it->path().string());
  std::ranges::sort(files);
  return files;
}

// Returns the path of the lock file, which belongs in the directory of all plugins. Returns an
// empty path if there are several directories.
std::string place_for(const std::vector<std::string>& paths) {
  fs::path place;
  for (const std::string& p : paths) {
    std::error_code ignored;
    const fs::path at = fs::is_directory(p, ignored) ? absolute(p) + "/" : absolute(p);
    const fs::path directory = at.lexically_normal().parent_path();
    if (!place.empty() && place != directory) return {};
    place = directory;
  }
  return (place / "yard.lock").string();
}

// Only a lock file with the usual name in a searched directory is found automatically.
std::string when_it_counts(const std::string& output) {
  const fs::path at(output);
  if (at.filename() == "yard.lock")
    return fmt::format("where {} is searched, no others are loaded from now on.",
                       at.parent_path().string());
  return "it applies to programs that name it: PluginSettings::lock_file.";
}

int report_lock(const LockQuestion& q, const std::string& output, const LockContents& c) {
  if (q.json) {
    Json j = {{"file", output}, {"plugins", Json::array()}, {"refused", Json::array()}};
    for (const PluginInfo& p : c.listed)
      j["plugins"].push_back(
          {{"name", p.name}, {"version", p.version}, {"sha256", p.sha256}, {"path", p.path}});
    for (const PluginInfo& p : c.refused)
      j["refused"].push_back(
          {{"path", p.path}, {"reason", to_string(p.reason)}, {"detail", p.detail}});
    print_json(j);
    return kOk;
  }
  Table table("name|version|sha256|file");
  for (const PluginInfo& p : c.listed)
    table.add({{p.name, Paint::kBold}, {p.version}, {p.sha256, Paint::kDim}, {p.path}});
  std::set<std::tuple<std::string, std::string, std::string>> distinct;
  for (const PluginInfo& p : c.listed) distinct.emplace(p.name, p.version, p.sha256);
  print_out("{}\n{} lists {} plugin{}{}; {}\n", table.text(), output, distinct.size(),
            distinct.size() == 1 ? "" : "s",
            distinct.size() == c.listed.size() ? "" : fmt::format(" in {} files", c.listed.size()),
            when_it_counts(output));
  for (const PluginInfo& p : c.refused)
    print_err("yard: {} is skipped: {}\n", p.path, why_refused(p));
  return kOk;
}

int lock(const LockQuestion& q) {
  const std::string output = q.output.empty() ? place_for(q.paths) : absolute(q.output);
  if (output.empty())
    return fail(kUsage,
                "these are in several directories; give the path of the lock file: "
                "--output FILE");
  need(check_features(), kUsage);
  const Runtime runtime(looks_for_nothing());
  LockContents c;
  for (const std::string& path : q.paths) {
    std::error_code error;
    const bool directory = fs::is_directory(path, error);
    for (const std::string& file : files_of(absolute(path), error)) {
      PluginInfo info = runtime.plugins().inspect(file);
      const bool refused = info.state == PluginState::kRefused;
      // A file that the user names must be listed. A directory may contain others.
      if (refused && !directory)
        return fail(
            info.reason == PluginReason::kNotFound ? kUsage : kFailed,
            fmt::format("{} would be refused: {}; nothing was written", path, why_refused(info)));
      (refused ? c.refused : c.listed).push_back(std::move(info));
    }
    if (error && directory) return fail(kUsage, fmt::format("{}: {}", path, error.message()));
  }
  if (c.listed.empty())
    return fail(kFailed, "there is no plugin to list; an empty lock file would admit none");
  need(write_plugin_lock(output, c.listed), kFailed);
  return report_lock(q, output, c);
}

}  // namespace

void add_plugin_lock(CLI::App& plugin, Action& action) {
  const auto [c, q] = add_command<LockQuestion>(
      plugin, action, "lock", "Write the list of plugins that may be loaded, by digest", lock);
  c->add_option("PATH", q->paths, "Plugins, or directories of them")->required()->type_name("PATH");
  add_value(*c, "--output", q->output, "FILE",
            "Where to write it; otherwise yard.lock beside the plugins");
  add_feature_option(*c);
}

}  // namespace yard::tool
