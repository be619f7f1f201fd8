// SPDX-License-Identifier: Apache-2.0
#include "plugin/lock_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/results.h"
#include "base/text.h"
#include "plugin/scan.h"

namespace yard::plugin {
namespace {

constexpr size_t kLargestLockFile = 4 << 20;
constexpr std::string_view kDigest = "sha256:";

Result<LockLines> read_lock_file(const std::string& path, const PluginSettings& settings) {
  const Refusal refusal = settings.allow_writable ? Refusal() : check_trusted(path);
  if (refusal.reason == Reason::kWritableByOthers)
    return Status(Code::kInvalidArgument, fmt::format("{}: {}", path, refusal.detail));
  YARD_ASSIGN_OR_RETURN(const std::string text, base::read_small_file(path, kLargestLockFile));
  return parse_lock_file(text, path);
}

}  // namespace

Result<LockLines> parse_lock_file(std::string_view text, const std::string& where) {
  LockLines lines;
  size_t number = 0;
  for (std::string_view line : base::split(text, '\n')) {
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    std::vector<std::string_view> words = base::split(line, ' ');
    std::erase(words, "");
    const bool good = words.size() == 3 && base::is_bare_word(words[0]) &&
                      words[2].starts_with(kDigest) &&
                      base::is_sha256(words[2].substr(kDigest.size()));
    if (!good)
      return Status(
          Code::kParse,
          fmt::format("{}:{}: invalid entry: expected `name version sha256:digest`, got {}", where,
                      number, base::excerpt(line)));
    lines.insert({std::string(words[0]), std::string(words[1]),
                  std::string(words[2].substr(kDigest.size()))});
  }
  return lines;
}

std::string to_text(const LockLines& lines) {
  std::string text = "# Only these plugins are loaded. Written by `yard plugin lock`.\n";
  for (const LockLine& l : lines)
    text += fmt::format("{} {} {}{}\n", l.name, l.version, kDigest, l.sha256);
  return text;
}

Refusal LockFiles::allows(const Manifest& m, const std::string& sha256) const {
  if (problem.refused() || !present) return problem;
  std::string versions;
  bool listed = false;
  for (const LockLine& l : lines) {
    if (l.name != m.name) continue;
    versions += (versions.empty() ? "" : ", ") + l.version;
    if (l.version != m.version) continue;
    if (sha256.empty() || l.sha256 == sha256) return {};
    listed = true;
  }
  if (listed)
    return {Reason::kDigestDiffers, "version {} is listed with another digest than {}", m.version,
            sha256};
  if (versions.empty()) return {Reason::kNotInLockFile, "'{}' is not listed", m.name};
  return {Reason::kNotInLockFile, "'{}' is listed in version {}, this is {}", m.name, versions,
          m.version};
}

LockFiles LockFiles::read(const PluginSettings& settings, const std::vector<std::string>& folders) {
  std::set<std::string> paths;
  struct stat info;
  if (!settings.lock_file.empty()) {
    paths.insert(settings.lock_file);
  } else {
    for (const std::string& folder : folders)  // a dangling link is an error to report
      if (const std::string path = folder + "/yard.lock"; ::lstat(path.c_str(), &info) == 0)
        paths.insert(path);
  }
  LockFiles all{.present = !paths.empty()};
  for (const std::string& path : paths) {
    auto one = read_lock_file(path, settings);
    if (one.ok())
      all.lines.merge(*one);
    else
      all.problem = {Reason::kBadLockFile, one.status()};
  }
  return all;
}

}  // namespace yard::plugin
