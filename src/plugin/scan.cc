// SPDX-License-Identifier: Apache-2.0
#include "plugin/scan.h"

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

#include "base/elf.h"
#include "base/text.h"
#include "base/trusted_path.h"

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
  const std::string who = base::who_else_can_write(info, c.path);
  if (who.empty()) return {};
  return {PluginReason::kWritableByOthers, fmt::format("the file can be written by {}", who)};
}

PluginReason reason_of(base::ElfProblem problem) {
  switch (problem) {
    case base::ElfProblem::kNone: break;
    case base::ElfProblem::kUnreadable: return PluginReason::kUnreadable;
    case base::ElfProblem::kNotElf: return PluginReason::kNotElf;
    case base::ElfProblem::kDamaged: return PluginReason::kDamaged;
    case base::ElfProblem::kOtherMachine: return PluginReason::kOtherMachine;
    case base::ElfProblem::kNotSharedLibrary: return PluginReason::kNotALibrary;
  }
  return PluginReason::kNone;
}

Refusal read_manifest(const base::ElfReading& elf, Manifest& to) {
  if (elf.problem != base::ElfProblem::kNone) return {reason_of(elf.problem), elf.detail};
  if (elf.notes.empty())
    return {PluginReason::kNoManifest,
            "it has no note of Switchyard; YARD_MANIFEST in plugin.h makes one"};
  if (elf.notes.size() > 1)
    return {PluginReason::kBadManifest, fmt::format("it has {} manifests", elf.notes.size())};
  return parse_manifest(elf.notes[0], to);
}

}  // namespace

Refusal TrustedFolders::check(const std::string& folder) {
  if (allow_writable_) return {};
  std::string real;
  YARD_RETURN_IF_REFUSED(follow(folder, real));
  return check_real(real);
}

Refusal TrustedFolders::check_file(const std::string& path, std::string* real) {
  if (allow_writable_ && real == nullptr) return {};
  std::string at;
  YARD_RETURN_IF_REFUSED(follow(path, at));
  at = folder_of(at);
  if (real != nullptr) *real = at;
  return check_real(at);
}

Refusal TrustedFolders::follow(const std::string& path, std::string& real) {
  Refusal refusal;
  const int error = base::follow(path, real, [&](const base::PathEntry& at) {
    if (S_ISLNK(at.info.st_mode)) refusal = check_real(at.directory);
    return !refusal.refused();
  });
  return error != 0 ? unreadable(error) : refusal;
}

Refusal TrustedFolders::check_real(const std::string& folder) {
  if (allow_writable_) return {};
  const auto known = known_.find(folder);
  if (known != known_.end()) return known->second;
  Refusal& found = known_[folder];
  for (std::string at = folder; !found.refused(); at = folder_of(at)) {
    struct stat info;
    if (::stat(at.c_str(), &info) != 0) return found = unreadable(errno);
    // Of parents it is enough that others cannot rename entries of root and this user.
    const bool ours = info.st_uid == 0 || info.st_uid == ::geteuid();
    const bool sticky = at != folder && ours && (info.st_mode & S_ISVTX) != 0;
    const std::string who = sticky ? std::string() : base::who_else_can_write(info, at);
    if (!who.empty())
      found = {PluginReason::kWritableByOthers,
               fmt::format("directory {} can be written by {}", at, who)};
    if (at == "/") break;
  }
  return found;
}

namespace {

// A missing folder must not be one that others can create.
Refusal check_run_path(const std::string& path, TrustedFolders& folders) {
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
  Refusal r = folders.check(at.string());
  if (r.refused()) r.detail = fmt::format("it looks for libraries in {}: {}", path, r.detail);
  return r;
}

Refusal check_library(const std::string& path, TrustedFolders& folders, bool allow_writable) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return {};
  Refusal r = folders.check_file(path);
  if (const std::string who = base::who_else_can_write(info, path); !who.empty() && !allow_writable)
    r = {PluginReason::kWritableByOthers, fmt::format("it can be written by {}", who)};
  if (r.refused()) r.detail = fmt::format("it needs {}: {}", path, r.detail);
  return r;
}

// Others must not be able to run code through the libraries that the plugin names and the folders where it looks for
// them. What these libraries need in turn is not checked.
Refusal check_libraries(const base::ElfReading& elf, TrustedFolders& folders,
                        const PluginSettings& settings) {
  std::vector<std::string> run_paths;
  for (const std::string& list : elf.run_paths)
    for (std::string_view path : base::split(list, ':')) {
      run_paths.emplace_back(path);
      YARD_RETURN_IF_REFUSED(check_run_path(run_paths.back(), folders));
    }
  for (const std::string& name : elf.needed) {
    if (name.find('/') != name.npos) {
      YARD_RETURN_IF_REFUSED(check_run_path(name, folders));
      YARD_RETURN_IF_REFUSED(check_library(name, folders, settings.allow_writable));
      continue;
    }
    for (const std::string& folder : run_paths)
      YARD_RETURN_IF_REFUSED(check_library(folder + "/" + name, folders, settings.allow_writable));
  }
  return {};
}

}  // namespace

PluginFile open_plugin_file(const std::string& path, TrustedFolders& folders,
                            const PluginSettings& settings, const Process& process) {
  PluginFile c;
  c.path = path;
  const auto check = [&]() -> Refusal {
    if (!path.starts_with('/'))
      return {PluginReason::kRelativePath, "the path does not begin with '/'"};
    YARD_RETURN_IF_REFUSED(folders.check_file(path, &c.folder));
    YARD_RETURN_IF_REFUSED(open_file(c, settings));
    const base::ElfReading elf = base::read_elf(c.file, YARD_MANIFEST_OWNER, YARD_MANIFEST_TYPE);
    YARD_RETURN_IF_REFUSED(read_manifest(elf, c.manifest));
    YARD_RETURN_IF_REFUSED(check_manifest(c.manifest, process));
    return check_libraries(elf, folders, settings);
  };
  c.refusal = check();
  return c;
}

void PluginFile::hash() {
  if (!file) return;
  auto digest = base::sha256(file, static_cast<uint64_t>(id.size));
  if (digest.ok())
    sha256 = *std::move(digest);
  else if (!refusal.refused())
    refusal = {PluginReason::kUnreadable, std::string(digest.status().message())};
}

Found search(const std::vector<std::string>& places, TrustedFolders& folders) {
  Found found;
  for (const std::string& place : places) {
    struct stat info {};
    Refusal refusal = !place.starts_with('/')             ? relative(place)
                      : ::stat(place.c_str(), &info) != 0 ? unreadable(errno)
                                                          : Refusal();
    const bool is_folder = !refusal.refused() && S_ISDIR(info.st_mode);
    const std::string folder = is_folder ? place : folder_of(place);
    if (!refusal.refused()) refusal = folders.check(folder);
    if (refusal.refused()) {
      found.refused.push_back({place, std::move(refusal)});
      continue;
    }
    if (!contains(found.folders, folder)) found.folders.push_back(folder);
    if (!is_folder) {
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

std::string folder_of(const std::string& path) {
  return path.substr(0, std::max<size_t>(path.rfind('/'), 1));
}

bool privileged() noexcept { return ::getauxval(AT_SECURE) != 0; }

namespace {

// Of this library, or of the program that it is linked into; absolute, empty if unknown.
std::string folder_of_this_library() {
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
  return folder_of(path);
}

}  // namespace

std::string installed_folder() {
  const std::string here = folder_of_this_library();
  char real[PATH_MAX];
  if (!here.empty())
    for (const char* from_here : {YARD_PLUGINS_FROM_LIBRARY, YARD_PLUGINS_FROM_PROGRAM})
      if (::realpath((here + "/" + from_here).c_str(), real) != nullptr) return real;
  return YARD_PLUGIN_DIRECTORY;
}

Found find_plugins(const std::vector<std::string>& given, const FromEnvironment& environment,
                   bool installed, TrustedFolders& trusted) {
  std::vector<RefusedPath> refused;
  std::vector<std::string> places = given;
  std::vector<std::string> folders = absolute_paths(environment.path, ':', refused);
  const auto exists = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  if (installed && exists(installed_folder())) folders.push_back(installed_folder());
  // The file of a plugin given by name; empty if there is none.
  const auto file_of = [&](const std::string& name) -> std::string {
    for (const std::string& folder : folders)
      for (const std::string& file : {folder + "/" + name + ".so", folder + "/lib" + name + ".so"})
        if (exists(file)) return file;
    return {};
  };
  if (!base::trim(environment.plugins).empty())
    for (std::string_view word : base::split(environment.plugins, ',')) {
      const std::string file =
          base::is_bare_word(word) ? file_of(std::string(word)) : std::string(word);
      if (base::is_bare_word(word) && file.empty())
        refused.push_back({std::string(word),
                           {PluginReason::kNotFound,
                            fmt::format("YARD_PLUGINS names it, and neither {0}.so nor lib{0}.so "
                                        "is in a plugin directory",
                                        word)}});
      else
        places.push_back(file);
    }
  places.insert(places.end(), folders.begin(), folders.end());
  Found found = search(places, trusted);
  std::ranges::move(refused, std::back_inserter(found.refused));
  return found;
}

}  // namespace yard::plugin
