// SPDX-License-Identifier: Apache-2.0
#include "plugin/lock_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/digest.h"
#include "base/file.h"
#include "base/text.h"

namespace yard::plugin {
namespace {

constexpr size_t kLargestLockFile = 4 << 20;
constexpr std::string_view kDigest = "sha256:";

Status failed(const std::string& path, const char* what) {
  return Status(Code::kNotFound, fmt::format("{}: {}: {}", path, what, std::strerror(errno)));
}

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
  const base::File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (!file || ::fstat(file.fd(), &info) != 0) return failed(path, "cannot be read");
  if (!S_ISREG(info.st_mode) || static_cast<size_t>(info.st_size) > kLargestLockFile)
    return Status(Code::kInvalidArgument, fmt::format("{}: not a lock file", path));
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t n = file.read_at(text.data(), text.size(), 0);
  if (n < 0) return failed(path, "cannot be read");
  text.resize(static_cast<size_t>(n));
  return parse(text, path);
}

std::string LockFile::text() const {
  std::string text = "# Only these plugins are loaded. Written by `yard plugin lock`.\n";
  for (const LockEntry& e : entries_)
    text += fmt::format("{} {} {}{}\n", e.name, e.version, kDigest, e.sha256);
  return text;
}

Status LockFile::write(const std::string& path) const { return base::write_file(path, text()); }

void LockFile::add(LockEntry entry) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), entry);
  if (at == entries_.end() || *at != entry) entries_.insert(at, std::move(entry));
}

void LockFile::add(const LockFile& other) {
  for (const LockEntry& e : other.entries_) add(e);
}

Refusal LockFile::allows(const std::string& name, const std::string& version,
                         const std::string& sha256) const {
  std::string versions;
  bool listed = false;
  for (const LockEntry& e : entries_) {
    if (e.name != name) continue;
    versions += (versions.empty() ? "" : ", ") + e.version;
    if (e.version != version) continue;
    if (sha256.empty() || e.sha256 == sha256) return {};
    listed = true;
  }
  if (listed)
    return {PluginReason::kDigestDiffers,
            fmt::format("version {} is listed with another digest than {}", version, sha256)};
  return {PluginReason::kNotInLockFile,
          versions.empty()
              ? fmt::format("'{}' is not listed", name)
              : fmt::format("'{}' is listed in version {}, this is {}", name, versions, version)};
}

}  // namespace yard::plugin
