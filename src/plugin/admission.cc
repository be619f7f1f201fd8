// SPDX-License-Identifier: Apache-2.0
#include "plugin/admission.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <yard/version.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/results.h"
#include "base/text.h"
#include "plugin/scan.h"

namespace yard::plugin {
namespace {

constexpr std::string_view kDigest = "sha256:";
constexpr const char* kHead =
    "# What is known about plugins, by digest. Written by Switchyard; may be deleted.\n";

Result<std::string> read_trusted(const std::string& path, bool allow_writable) {
  const Refusal refusal = allow_writable ? Refusal() : check_trusted(path);
  if (refusal.reason == Reason::kWritableByOthers)
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is not trusted: {}", path, refusal.detail));
  return base::read_small_file(path, kLargestList);
}

std::string line_start(std::string_view sha256) {
  return fmt::format("verify {} {} ", YARD_VERSION, sha256);
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
  std::vector<std::string> versions;
  for (const LockLine& l : lines) {
    if (l.name != m.name) continue;
    versions.push_back(l.version);
    if (l.version == m.version && (sha256.empty() || l.sha256 == sha256)) return {};
  }
  if (contains(versions, m.version))
    return {Reason::kDigestDiffers, "version {} is listed with another digest than {}", m.version,
            sha256};
  if (versions.empty()) return {Reason::kNotInLockFile, "'{}' is not listed", m.name};
  return {Reason::kNotInLockFile, "'{}' is listed in version {}, this is {}", m.name,
          fmt::join(versions, ", "), m.version};
}

LockFiles LockFiles::read(const PluginSettings& settings, const std::set<std::string>& folders) {
  std::set<std::string> paths;
  struct stat info;
  for (const std::string& folder : folders)  // a dangling link is an error to report
    if (const std::string path = folder + "/yard.lock"; ::lstat(path.c_str(), &info) == 0)
      paths.insert(path);
  if (!settings.lock_file.empty()) paths = {settings.lock_file};
  LockFiles all{.present = !paths.empty()};
  for (const std::string& path : paths) {
    const auto text = read_trusted(path, settings.allow_writable);
    auto one = text.ok() ? parse_lock_file(*text, path) : text.status();
    if (one.ok())
      all.lines.merge(*one);
    else
      all.problem = {Reason::kBadLockFile, one.status()};
  }
  return all;
}

// ---- Results of `yard verify` ----

std::string ResultStore::default_folder() {
  if (privileged()) return {};
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/yard";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.local/state/yard";
  return {};
}

Result<std::vector<std::string>> ResultStore::read() const {
  if (folder_.empty())
    return Status(Code::kInvalidArgument,
                  "there is no place to store it: neither XDG_STATE_HOME nor HOME names a folder");
  if (!folder_.starts_with('/'))
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is not an absolute path", base::excerpt(folder_)));
  YARD_ASSIGN_OR_RETURN(const std::string text, read_trusted(path(), false));
  std::vector<std::string> lines;
  for (std::string_view line : base::split(text, '\n'))
    if (!line.empty() && !line.starts_with('#')) lines.emplace_back(line);
  return lines;
}

std::optional<bool> ResultStore::find(std::string_view sha256, std::string* why) const {
  const auto lines = read();
  if (!lines.ok() && why != nullptr) *why = lines.status().message();
  if (!lines.ok()) return std::nullopt;
  const std::string start = line_start(sha256);
  for (auto line = lines->rbegin(); line != lines->rend(); ++line)
    if (*line == start + "passed" || *line == start + "failed") return line->ends_with("passed");
  return std::nullopt;
}

Status ResultStore::save(std::string_view sha256, bool passed) const {
  if (!base::is_sha256(sha256))
    return Status(Code::kInvalidArgument,
                  fmt::format("{} is not a SHA-256 digest", base::excerpt(sha256)));
  if (folder_.starts_with('/')) {
    // Only this user may read the folder.
    const std::filesystem::path at(folder_);
    std::error_code error;
    std::filesystem::create_directories(at.parent_path(), error);
    ::mkdir(at.c_str(), 0700);
  }
  // Processes take turns. If one holds the lock for long, a result may be lost and computed again.
  const base::File lock(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int i = 0; i < 1000 && ::flock(lock.fd(), LOCK_EX | LOCK_NB) != 0; ++i) {
    if (errno != EWOULDBLOCK) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto add = [&]() -> Status {
    auto known = read();
    if (!known.ok() && known.status().code() != Code::kNotFound) return known.status();
    std::vector<std::string> lines = known.ok() ? *std::move(known) : std::vector<std::string>();
    const std::string start = line_start(sha256);
    std::erase_if(lines, [&](const std::string& line) { return line.starts_with(start); });
    lines.push_back(start + (passed ? "passed" : "failed"));
    if (lines.size() > kMost) lines.erase(lines.begin(), lines.end() - kMost);
    YARD_RETURN_IF_ERROR(
        base::write_file(path(), fmt::format("{}{}\n", kHead, fmt::join(lines, "\n")), 0600));
    return read().status();  // fails if the folder is not trusted
  };
  Status saved = add();
  ::flock(lock.fd(), LOCK_UN);  // closing is not enough: a forked child may keep the folder open
  return saved;
}

}  // namespace yard::plugin
