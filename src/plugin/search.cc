// SPDX-License-Identifier: Apache-2.0
#include "plugin/search.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/lists.h"
#include "base/text.h"

namespace yard::plugin {
namespace fs = std::filesystem;
namespace {

Refusal relative(std::string_view path) {
  return {PluginReason::kRelativePath,
          path.empty() ? std::string("an entry is empty")
                       : fmt::format("{} does not begin with '/'", base::excerpt(path))};
}

Refusal unreadable(int error) {
  return {error == ENOENT || error == ENOTDIR ? PluginReason::kNotFound : PluginReason::kUnreadable,
          std::strerror(error)};
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

Refusal open_file(PluginFile& c, const PluginSettings& settings) {
  // Without blocking: it may be a pipe.
  c.file = base::File(::open(c.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!c.file) return unreadable(errno);
  struct stat info;
  if (::fstat(c.file.fd(), &info) != 0) return {PluginReason::kUnreadable, std::strerror(errno)};
  if (!S_ISREG(info.st_mode)) {
    c.file = base::File();  // it may have no end, and must not be hashed
    return {PluginReason::kUnreadable, "it is not a regular file"};
  }
  c.id = FileId(info);
  if (static_cast<uint64_t>(info.st_size) > settings.max_file_bytes) {
    c.file = base::File();
    return {PluginReason::kTooLarge,
            fmt::format("the file has {} bytes: expected at most {} (max_file_bytes)", info.st_size,
                        settings.max_file_bytes)};
  }
  if (settings.allow_writable) return {};
  const std::string who = who_else_can_write(info, c.path);
  if (who.empty()) return {};
  return {PluginReason::kWritableByOthers, fmt::format("the file can be written by {}", who)};
}

Refusal read_manifest(PluginFile& c) {
  c.elf = base::read_elf_notes(c.file, YARD_MANIFEST_OWNER, YARD_MANIFEST_TYPE);
  const base::ElfReading& elf = c.elf;
  switch (elf.problem) {
    case base::ElfProblem::kNone: break;
    case base::ElfProblem::kUnreadable: return {PluginReason::kUnreadable, elf.detail};
    case base::ElfProblem::kNotElf: return {PluginReason::kNotElf, elf.detail};
    case base::ElfProblem::kDamaged: return {PluginReason::kDamaged, elf.detail};
    case base::ElfProblem::kOtherMachine: return {PluginReason::kOtherMachine, elf.detail};
    case base::ElfProblem::kNotSharedLibrary: return {PluginReason::kNotALibrary, elf.detail};
  }
  if (elf.notes.empty())
    return {PluginReason::kNoManifest,
            "it has no note of Switchyard; YARD_MANIFEST in plugin.h makes one"};
  if (elf.notes.size() > 1)
    return {PluginReason::kBadManifest, fmt::format("it has {} manifests", elf.notes.size())};
  return parse_manifest(elf.notes[0], c.manifest);
}

}  // namespace

Refusal Directories::check(const std::string& directory) {
  if (allow_writable_) return {};
  std::string real;
  YARD_RETURN_IF_REFUSED(follow(directory, real));
  return check_real(real);
}

Refusal Directories::check_file(const std::string& path, std::string* real) {
  if (allow_writable_ && real == nullptr) return {};
  std::string at;
  YARD_RETURN_IF_REFUSED(follow(path, at));
  at = directory_of(at);
  if (real != nullptr) *real = at;
  return check_real(at);
}

Refusal Directories::follow(const std::string& path, std::string& real) {
  Refusal refusal;
  const int error = base::follow(path, real, [&](const base::PathEntry& at) {
    if (S_ISLNK(at.info.st_mode)) refusal = check_real(at.directory);
    return !refusal.refused();
  });
  return error != 0 ? unreadable(error) : refusal;
}

Refusal Directories::check_real(const std::string& directory) {
  if (allow_writable_) return {};
  const auto known = known_.find(directory);
  if (known != known_.end()) return known->second;
  Refusal& found = known_[directory];
  for (std::string at = directory; !found.refused(); at = directory_of(at)) {
    struct stat info;
    if (::stat(at.c_str(), &info) != 0) return found = unreadable(errno);
    // Of parents it is enough that others cannot rename entries of root and this user.
    const bool ours = info.st_uid == 0 || info.st_uid == ::geteuid();
    const bool sticky = at != directory && ours && (info.st_mode & S_ISVTX) != 0;
    const std::string who = sticky ? std::string() : who_else_can_write(info, at);
    if (!who.empty())
      found = {PluginReason::kWritableByOthers,
               fmt::format("directory {} can be written by {}", at, who)};
    if (at == "/") break;
  }
  return found;
}

namespace {

// A missing folder must not be one that others can create.
Refusal check_run_path(const std::string& path, Directories& directories) {
  if (path.find("$ORIGIN") != path.npos || path.find("${ORIGIN}") != path.npos)
    return {PluginReason::kRelativePath,
            fmt::format("it looks for libraries in {}: expected an absolute path; a plugin is "
                        "opened by its descriptor, so $ORIGIN is not its folder",
                        base::excerpt(path))};
  if (!path.starts_with('/') || path.find('$') != path.npos)
    return {PluginReason::kRelativePath,
            fmt::format("it looks for libraries in {}: expected an absolute path",
                        base::excerpt(path))};
  fs::path at = path;
  std::error_code none;
  while (at != "/" && fs::symlink_status(at, none).type() == fs::file_type::not_found)
    at = at.parent_path();
  Refusal r = directories.check(at.string());
  if (r.refused()) r.detail = fmt::format("it looks for libraries in {}: {}", path, r.detail);
  return r;
}

Refusal check_library(const std::string& path, Directories& directories, bool allow_writable) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return {};
  Refusal r = directories.check_file(path);
  if (const std::string who = who_else_can_write(info, path); !who.empty() && !allow_writable)
    r = {PluginReason::kWritableByOthers, fmt::format("it can be written by {}", who)};
  if (r.refused()) r.detail = fmt::format("it needs {}: {}", path, r.detail);
  return r;
}

// Others must not be able to run code through the libraries that the plugin names and the folders where it looks for
// them. What these libraries need in turn is not checked.
Refusal check_libraries(const base::ElfReading& elf, Directories& directories,
                        const PluginSettings& settings) {
  std::vector<std::string> folders;
  for (const std::string& list : elf.search_paths)
    for (std::string_view path : base::split(list, ':')) {
      folders.emplace_back(path);
      YARD_RETURN_IF_REFUSED(check_run_path(folders.back(), directories));
    }
  for (const std::string& name : elf.needed) {
    if (name.find('/') != name.npos) {
      YARD_RETURN_IF_REFUSED(check_run_path(name, directories));
      YARD_RETURN_IF_REFUSED(check_library(name, directories, settings.allow_writable));
      continue;
    }
    for (const std::string& folder : folders)
      YARD_RETURN_IF_REFUSED(
          check_library(folder + "/" + name, directories, settings.allow_writable));
  }
  return {};
}

}  // namespace

PluginFile open_plugin_file(const std::string& path, Directories& directories,
                            const PluginSettings& settings, const Process& process) {
  PluginFile c;
  c.path = path;
  c.refusal = path.starts_with('/')
                  ? directories.check_file(path, &c.directory)
                  : Refusal(PluginReason::kRelativePath, "the path does not begin with '/'");
  if (!c.refusal.refused()) c.refusal = open_file(c, settings);
  if (!c.refusal.refused()) c.refusal = read_manifest(c);
  if (!c.refusal.refused()) c.refusal = check_manifest(c.manifest, process);
  if (!c.refusal.refused()) c.refusal = check_libraries(c.elf, directories, settings);
  return c;
}

Found search(const std::vector<std::string>& places, Directories& directories) {
  Found found;
  const auto add_directory = [&](const std::string& path) {
    if (!base::contains(found.directories, path)) found.directories.push_back(path);
  };
  for (const std::string& place : places) {
    struct stat info {};
    Refusal refusal = !place.starts_with('/')             ? relative(place)
                      : ::stat(place.c_str(), &info) != 0 ? unreadable(errno)
                                                          : Refusal();
    const bool is_directory = !refusal.refused() && S_ISDIR(info.st_mode);
    const std::string directory = is_directory ? place : directory_of(place);
    if (!refusal.refused()) refusal = directories.check(directory);
    if (refusal.refused()) {
      found.refused.push_back({place, std::move(refusal)});
      continue;
    }
    add_directory(directory);
    if (!is_directory) {
      found.files.push_back(place);
      continue;
    }
    std::error_code error;
    std::vector<std::string> files;
    for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error))
      if (it->path().extension() == ".so") files.push_back(it->path().string());
    if (error) found.refused.push_back({place, unreadable(error.value())});
    std::sort(files.begin(), files.end());
    found.files.insert(found.files.end(), files.begin(), files.end());
  }
  return found;
}

std::vector<std::string> absolute_paths(std::string_view text, char separator,
                                        std::vector<RefusedPath>& refused) {
  std::vector<std::string> paths;
  if (base::trim(text).empty()) return paths;
  for (std::string_view path : base::split(text, separator)) {
    if (path.starts_with('/'))
      paths.emplace_back(path);
    else
      refused.push_back({std::string(path), relative(path)});
  }
  return paths;
}

bool privileged() noexcept { return ::getauxval(AT_SECURE) != 0; }

std::string directory_of_this_library() {
  Dl_info info;
  static const char anchor = 0;
  if (::dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return {};
  std::string path = info.dli_fname;
  if (!path.starts_with('/')) {  // linked into the program
    char real[PATH_MAX];
    const ssize_t n = ::readlink("/proc/self/exe", real, sizeof real);
    if (n <= 0) return {};
    path.assign(real, static_cast<size_t>(n));
  }
  return path.substr(0, std::max<size_t>(path.rfind('/'), 1));
}

std::string installed_directory() {
  const std::string here = directory_of_this_library();
  char real[PATH_MAX];
  if (!here.empty())
    for (const char* from_here : {YARD_PLUGINS_FROM_LIBRARY, YARD_PLUGINS_FROM_PROGRAM})
      if (::realpath((here + "/" + from_here).c_str(), real) != nullptr) return real;
  return YARD_PLUGIN_DIRECTORY;
}

}  // namespace yard::plugin
