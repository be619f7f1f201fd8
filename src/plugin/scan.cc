// SPDX-License-Identifier: Apache-2.0
#include "plugin/scan.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/elf.h"
#include "base/text.h"
#include "base/trusted_path.h"

namespace yard::plugin {
namespace fs = std::filesystem;
namespace {

Refusal unreadable(int error) {
  return {error == ENOENT || error == ENOTDIR ? Reason::kNotFound : Reason::kUnreadable,
          std::strerror(error)};
}

Refusal open_file(PluginFile& to, const PluginSettings& settings) {
  // Without blocking: it may be a pipe.
  base::File file(::open(to.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info;
  if (!file || ::fstat(file.fd(), &info) != 0) return unreadable(errno);
  if (!S_ISREG(info.st_mode)) return {Reason::kUnreadable, "it is not a regular file"};
  to.id = FileId(info);
  if (static_cast<uint64_t>(info.st_size) > settings.max_file_bytes)
    return {Reason::kTooLarge, "the file has {} bytes: expected at most {} (max_file_bytes)",
            info.st_size, settings.max_file_bytes};
  to.file = std::move(file);
  if (settings.allow_writable) return {};
  const std::string who = base::who_else_can_write(info, to.path);
  if (who.empty()) return {};
  return {Reason::kWritableByOthers, "the file can be written by {}", who};
}

// In the order of base::ElfProblem.
constexpr PluginReason kElfReasons[] = {Reason::kNone,         Reason::kUnreadable,
                                        Reason::kNotElf,       Reason::kDamaged,
                                        Reason::kOtherMachine, Reason::kNotALibrary};

Refusal read_manifest(const base::ElfReading& elf, Manifest& to) {
  if (elf.problem != base::ElfProblem::kNone)
    return {kElfReasons[static_cast<size_t>(elf.problem)], elf.detail};
  if (elf.notes.empty())
    return {Reason::kNoManifest,
            "it has no note of Switchyard; YARD_MANIFEST in plugin.h makes one"};
  if (elf.notes.size() > 1) return {Reason::kBadManifest, "it has {} manifests", elf.notes.size()};
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

Refusal TrustedFolders::check_contents(const std::string& path) {
  if (allow_writable_) return {};
  YARD_RETURN_IF_REFUSED(check_file(path));
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return unreadable(errno);
  const std::string who = base::who_else_can_write(info, path);
  if (who.empty()) return {};
  return {Reason::kWritableByOthers, "it can be written by {}", who};
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
      found = {Reason::kWritableByOthers, "directory {} can be written by {}", at, who};
    if (at == "/") break;
  }
  return found;
}

namespace {

// A missing folder must not be one that others can create.
Refusal check_run_path(const std::string& path, TrustedFolders& folders) {
  if (!path.starts_with('/') || path.find('$') != path.npos)
    return {Reason::kRelativePath, "it looks for libraries in {}: expected an absolute path{}",
            base::excerpt(path),
            path.find("ORIGIN") != path.npos
                ? "; a plugin is opened by its descriptor, so $ORIGIN is not its folder"
                : ""};
  fs::path at = path;
  std::error_code none;
  while (at != "/" && fs::symlink_status(at, none).type() == fs::file_type::not_found)
    at = at.parent_path();
  Refusal r = folders.check(at.string());
  if (r.refused()) r.detail = fmt::format("it looks for libraries in {}: {}", path, r.detail);
  return r;
}

// Others must not be able to run code through the libraries that the plugin names and the folders where it looks for
// them. What these libraries need in turn is not checked.
Refusal check_libraries(const base::ElfReading& elf, TrustedFolders& folders) {
  std::error_code none;
  std::vector<std::string> run_paths;
  for (const std::string& list : elf.run_paths)
    for (std::string_view path : base::split(list, ':')) {
      run_paths.emplace_back(path);
      YARD_RETURN_IF_REFUSED(check_run_path(run_paths.back(), folders));
    }
  for (const std::string& name : elf.needed) {
    const bool is_path = name.find('/') != name.npos;
    if (is_path) YARD_RETURN_IF_REFUSED(check_run_path(name, folders));
    for (const std::string& folder : is_path ? std::vector<std::string>{""} : run_paths) {
      const std::string path = is_path ? name : folder + "/" + name;
      if (!fs::exists(path, none)) continue;
      if (const Refusal r = folders.check_contents(path); r.refused())
        return {r.reason, "it needs {}: {}", path, r.detail};
    }
  }
  return {};
}

}  // namespace

PluginFile open_plugin_file(const std::string& path, TrustedFolders& folders,
                            const PluginSettings& settings, const Process& process) {
  PluginFile c;
  c.path = path;
  const auto check = [&]() -> Refusal {
    if (!path.starts_with('/')) return {Reason::kRelativePath, "the path does not begin with '/'"};
    YARD_RETURN_IF_REFUSED(folders.check_file(path, &c.folder));
    YARD_RETURN_IF_REFUSED(open_file(c, settings));
    const base::ElfReading elf = base::read_elf(c.file, YARD_MANIFEST_OWNER, YARD_MANIFEST_TYPE);
    YARD_RETURN_IF_REFUSED(read_manifest(elf, c.manifest));
    YARD_RETURN_IF_REFUSED(check_manifest(c.manifest, process));
    return check_libraries(elf, folders);
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
    refusal = {Reason::kUnreadable, digest.status()};
}

Found search(const std::vector<std::string>& places, TrustedFolders& folders) {
  Found found;
  for (const std::string& place : places) {
    struct stat info {};
    Refusal refusal;
    if (!place.starts_with('/'))
      refusal = {Reason::kRelativePath,
                 place.empty() ? std::string("an entry is empty")
                               : fmt::format("{} does not begin with '/'", base::excerpt(place))};
    else if (::stat(place.c_str(), &info) != 0)
      refusal = unreadable(errno);
    const bool is_folder = !refusal.refused() && S_ISDIR(info.st_mode);
    const std::string folder = is_folder ? place : folder_of(place);
    if (!refusal.refused()) refusal = folders.check(folder);
    if (refusal.refused()) {
      found.refused.push_back({.path = place, .refusal = std::move(refusal)});
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
    if (error) found.refused.push_back({.path = place, .refusal = unreadable(error.value())});
    std::sort(files.begin(), files.end());
    found.files.insert(found.files.end(), files.begin(), files.end());
  }
  return found;
}

std::string folder_of(const std::string& path) {
  return path.substr(0, std::max<size_t>(path.rfind('/'), 1));
}

bool privileged() noexcept { return ::getauxval(AT_SECURE) != 0; }

namespace {

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Where plugins are installed. Found relative to this library, or to the program that it is linked into, so that an
// installation can be moved; else as configured at build time.
std::string installed_folder() {
  Dl_info info;
  static const char anchor = 0;
  if (::dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return YARD_PLUGIN_DIRECTORY;
  std::error_code error;
  const fs::path here = info.dli_fname[0] == '/' ? fs::path(info.dli_fname)
                                                 : fs::read_symlink("/proc/self/exe", error);
  for (const char* from_here : {"/" YARD_PLUGINS_FROM_LIBRARY, "/" YARD_PLUGINS_FROM_PROGRAM})
    if (const auto found = fs::canonical(here.parent_path().string() + from_here, error); !error)
      return found.string();
  return YARD_PLUGIN_DIRECTORY;
}

}  // namespace

Found find_plugins(const std::vector<std::string>& given, const FromEnvironment& environment,
                   bool installed, TrustedFolders& trusted) {
  std::vector<FoundFile> refused;
  std::vector<std::string> places = given, folders;
  if (!base::trim(environment.path).empty())
    for (std::string_view folder : base::split(environment.path, ':')) folders.emplace_back(folder);
  if (const std::string folder = installed ? installed_folder() : ""; exists(folder))
    folders.push_back(folder);
  // The file of a plugin given by name; empty if there is none.
  const auto file_of = [&](std::string_view name) -> std::string {
    for (const std::string& folder : folders)
      for (const char* prefix : {"/", "/lib"})
        if (const std::string file = fmt::format("{}{}{}.so", folder, prefix, name);
            folder.starts_with('/') && exists(file))
          return file;
    return {};
  };
  if (!base::trim(environment.plugins).empty())
    for (std::string_view word : base::split(environment.plugins, ',')) {
      std::string file = base::is_bare_word(word) ? file_of(word) : std::string(word);
      if (base::is_bare_word(word) && file.empty())
        refused.push_back(
            {.path = std::string(word),
             .refusal = {Reason::kNotFound,
                         "YARD_PLUGINS names it, and neither {0}.so nor lib{0}.so is in a "
                         "plugin directory",
                         word}});
      else
        places.push_back(std::move(file));
    }
  places.insert(places.end(), folders.begin(), folders.end());
  Found found = search(places, trusted);
  std::ranges::move(refused, std::back_inserter(found.refused));
  return found;
}

}  // namespace yard::plugin
