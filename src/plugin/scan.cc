// SPDX-License-Identifier: Apache-2.0
#include "plugin/scan.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
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

Refusal check_opened(const std::string& path, const base::File& file, bool is_folder) {
  const std::string why = base::why_untrusted(path, file);
  if (why.empty()) return {};
  return {Reason::kWritableByOthers, "{} {}", is_folder ? "directory " + path : "it", why};
}

Refusal open_file(PluginFile& to, const PluginSettings& settings) {
  // Opening a pipe must not block.
  base::File file(::open(to.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info;
  if (!file || ::fstat(file.fd(), &info) != 0) return unreadable(errno);
  if (!S_ISREG(info.st_mode)) return {Reason::kUnreadable, "it is not a regular file"};
  to.id = {info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
  if (static_cast<uint64_t>(info.st_size) > settings.max_file_bytes)
    return {Reason::kTooLarge, "the file has {} bytes: expected at most {} (max_file_bytes)",
            info.st_size, settings.max_file_bytes};
  to.file = std::move(file);
  std::error_code error;
  to.folder = fs::canonical(to.path, error).parent_path();
  if (error) to.folder = fs::path(to.path).parent_path();
  if (settings.allow_writable) return {};
  YARD_RETURN_IF_REFUSED(check_trusted(to.folder));
  return check_opened(to.path, to.file, false);
}

// If the folder is missing, others must not be able to create it.
Refusal check_run_path(const std::string& path, bool allow_writable) {
  if (!path.starts_with('/') || path.find('$') != path.npos)
    return {Reason::kRelativePath, "it looks for libraries in {}: expected an absolute path{}",
            base::excerpt(path),
            path.find("ORIGIN") != path.npos
                ? "; a plugin is opened by its descriptor, so $ORIGIN is not its folder"
                : ""};
  if (allow_writable) return {};
  fs::path at = path;
  std::error_code none;
  while (at != "/" && fs::symlink_status(at, none).type() == fs::file_type::not_found)
    at = at.parent_path();
  Refusal r = check_trusted(at.string());
  if (r.refused()) r.detail = fmt::format("it looks for libraries in {}: {}", path, r.detail);
  return r;
}

// Other users must not be able to run code through libraries that the plugin names, or through the
// folders where it looks for them. The dependencies of these libraries are not checked.
Refusal check_libraries(const base::ElfReading& elf, bool allow_writable) {
  std::error_code none;
  std::vector<std::string> run_paths;
  for (const std::string& list : elf.run_paths)
    for (std::string_view path : base::split(list, ':')) {
      run_paths.emplace_back(path);
      YARD_RETURN_IF_REFUSED(check_run_path(run_paths.back(), allow_writable));
    }
  for (const std::string& name : elf.needed) {
    const bool is_path = name.find('/') != name.npos;
    if (is_path) YARD_RETURN_IF_REFUSED(check_run_path(name, allow_writable));
    for (const std::string& folder : is_path ? std::vector<std::string>{""} : run_paths) {
      const std::string path = is_path ? name : folder + "/" + name;
      if (allow_writable || !fs::exists(path, none)) continue;
      if (const Refusal r = check_trusted(path); r.refused())
        return {r.reason, "it needs {}: {}", path, r.detail};
    }
  }
  return {};
}

void search(const std::string& place, bool allow_writable, Found& found) {
  struct stat info {};
  Refusal refusal;
  if (place.empty())
    refusal = {Reason::kRelativePath, "an entry is empty"};
  else if (!place.starts_with('/'))
    refusal = {Reason::kRelativePath, "{} does not begin with '/'", base::excerpt(place)};
  else if (::stat(place.c_str(), &info) != 0)
    refusal = unreadable(errno);
  const bool is_folder = S_ISDIR(info.st_mode);
  const std::string folder = is_folder ? place : fs::path(place).parent_path().string();
  if (!refusal.refused() && !allow_writable) refusal = check_trusted(folder);
  if (refusal.refused()) {
    found.refused.push_back({.path = place, .refusal = std::move(refusal)});
    return;
  }
  found.folders.insert(folder);
  if (!is_folder) return found.files.push_back(place);
  int error = 0;
  for (const std::string& name : base::names_in(place, &error))
    if (const fs::path path = fs::path(place) / name; path.extension() == ".so")
      found.files.push_back(path.string());
  if (error != 0) found.refused.push_back({.path = place, .refusal = unreadable(error)});
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Searches relative to this library, or to the program that it is linked into, so that an
// installation can be moved. Falls back to the folder of the build.
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

Refusal check_trusted(const std::string& path) {
  const base::File file(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat info;
  if (!file || ::fstat(file.fd(), &info) != 0) return unreadable(errno);
  return check_opened(path, file, S_ISDIR(info.st_mode));
}

PluginFile open_plugin_file(const std::string& path, const PluginSettings& settings,
                            const Process& process) {
  PluginFile to;
  to.path = path;
  to.refusal = [&]() -> Refusal {
    if (!path.starts_with('/')) return {Reason::kRelativePath, "the path does not begin with '/'"};
    YARD_RETURN_IF_REFUSED(open_file(to, settings));
    const base::ElfReading elf = base::read_elf(to.file, YARD_MANIFEST_OWNER, YARD_MANIFEST_TYPE);
    if (elf.problem != Reason::kNone) return {elf.problem, elf.detail};
    if (elf.notes.empty())
      return {Reason::kNoManifest,
              "it has no note of Switchyard; YARD_MANIFEST in plugin.h makes one"};
    if (elf.notes.size() > 1)
      return {Reason::kBadManifest, "it has {} manifests", elf.notes.size()};
    YARD_RETURN_IF_REFUSED(parse_manifest(elf.notes[0], to.manifest));
    YARD_RETURN_IF_REFUSED(check_manifest(to.manifest, process));
    return check_libraries(elf, settings.allow_writable);
  }();
  return to;
}

void PluginFile::hash() {
  if (!file) return;
  auto digest = base::sha256(file, static_cast<uint64_t>(id.size));
  if (digest.ok())
    sha256 = *std::move(digest);
  else if (!refusal.refused())
    refusal = {Reason::kUnreadable, digest.status()};
}

bool privileged() noexcept { return ::getauxval(AT_SECURE) != 0; }

Found find_plugins(const std::vector<std::string>& given, const FromEnvironment& environment,
                   const PluginSettings& settings) {
  Found found;
  std::vector<std::string> places = given, folders;
  if (!base::trim(environment.path).empty())
    for (std::string_view folder : base::split(environment.path, ':')) folders.emplace_back(folder);
  if (const std::string folder = settings.installed ? installed_folder() : ""; exists(folder))
    folders.push_back(folder);
  // Returns an empty text if there is no such file.
  const auto file_of = [&](std::string_view name) -> std::string {
    for (const std::string& folder : folders)
      for (const char* prefix : {"/", "/lib"})
        if (const std::string file = fmt::format("{}{}{}.so", folder, prefix, name);
            folder.starts_with('/') && exists(file))
          return file;
    return {};
  };
  constexpr const char* kMissing =
      "YARD_PLUGINS names it, and neither {0}.so nor lib{0}.so is in a plugin directory";
  for (std::string_view word : base::split(environment.plugins, ',')) {
    if (base::trim(environment.plugins).empty()) break;
    const bool is_name = base::is_bare_word(word);
    const std::string file = is_name ? file_of(word) : std::string(word);
    if (is_name && file.empty())
      found.refused.push_back(
          {.path = std::string(word), .refusal = {Reason::kNotFound, fmt::format(kMissing, word)}});
    else
      places.push_back(file);
  }
  places.insert(places.end(), folders.begin(), folders.end());
  for (const std::string& place : places) search(place, settings.allow_writable, found);
  return found;
}

}  // namespace yard::plugin
