// SPDX-License-Identifier: Apache-2.0
#include "plugin/lock_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/file.h"
#include "base/results.h"
#include "base/text.h"
#include "plugin/scan.h"

namespace yard::plugin {
namespace {

constexpr size_t kLargestLockFile = 4 << 20;
constexpr std::string_view kDigest = "sha256:";

}  // namespace

Result<LockFile> LockFile::parse(std::string_view text, const std::string& where) {
  LockFile file;
  size_t number = 0;
  for (std::string_view line : base::split(text, '\n')) {
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    std::vector<std::string_view> words;
    for (std::string_view w : base::split(line, ' '))
      if (!w.empty()) words.push_back(w);
    const bool good = words.size() == 3 && base::is_bare_word(words[0]) &&
                      words[2].starts_with(kDigest) &&
                      base::is_sha256(words[2].substr(kDigest.size()));
    if (!good)
      return Status(
          Code::kParse,
          fmt::format("{}:{}: invalid entry: expected `name version sha256:digest`, got {}", where,
                      number, base::excerpt(line)));
    file.add({std::string(words[0]), std::string(words[1]),
              std::string(words[2].substr(kDigest.size()))});
  }
  return file;
}

Result<LockFile> LockFile::read(const std::string& path) {
  YARD_ASSIGN_OR_RETURN(const std::string text, base::read_small_file(path, kLargestLockFile));
  return parse(text, path);
}

std::string LockFile::text() const {
  std::string text = "# Only these plugins are loaded. Written by `yard plugin lock`.\n";
  for (const LockLine& e : lines_)
    text += fmt::format("{} {} {}{}\n", e.name, e.version, kDigest, e.sha256);
  return text;
}

Status LockFile::write(const std::string& path) const { return base::write_file(path, text()); }

void LockFile::add(LockLine line) {
  const auto at = std::lower_bound(lines_.begin(), lines_.end(), line);
  if (at == lines_.end() || *at != line) lines_.insert(at, std::move(line));
}

Refusal LockFile::allows(const std::string& name, const std::string& version,
                         const std::string& sha256) const {
  std::string versions;
  bool listed = false;
  for (const LockLine& e : lines_) {
    if (e.name != name) continue;
    versions += (versions.empty() ? "" : ", ") + e.version;
    if (e.version != version) continue;
    if (sha256.empty() || e.sha256 == sha256) return {};
    listed = true;
  }
  if (listed)
    return {Reason::kDigestDiffers, "version {} is listed with another digest than {}", version,
            sha256};
  return {Reason::kNotInLockFile,
          versions.empty()
              ? fmt::format("'{}' is not listed", name)
              : fmt::format("'{}' is listed in version {}, this is {}", name, versions, version)};
}

Refusal LockFiles::allows(const Manifest& manifest, const std::string& sha256) const {
  if (problem.refused()) return problem;
  return present ? file.allows(manifest.name, manifest.version, sha256) : Refusal();
}

LockFiles LockFiles::read(const PluginSettings& settings, const std::vector<std::string>& folders) {
  std::set<std::string> paths;
  struct stat info;
  if (!settings.lock_file.empty()) {
    paths.insert(settings.lock_file);
  } else {
    for (const std::string& folder : folders)  // a dangling link is an error to report
      if (const std::string path = folder + "/" + kLockFileName; ::lstat(path.c_str(), &info) == 0)
        paths.insert(path);
  }
  LockFiles all;
  all.present = !paths.empty();
  TrustedFolders trusted(settings.allow_writable);
  for (const std::string& path : paths) {
    const Refusal refusal = trusted.check_contents(path);
    auto one = LockFile::read(path);
    if (refusal.reason == Reason::kWritableByOthers)
      all.problem = {Reason::kBadLockFile, "{}: {}", path, refusal.detail};
    else if (!one.ok())
      all.problem = {Reason::kBadLockFile, one.status()};
    else
      for (const LockLine& line : one->lines()) all.file.add(line);
  }
  return all;
}

}  // namespace yard::plugin
