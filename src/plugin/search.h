// SPDX-License-Identifier: Apache-2.0
// Finding plugin files, and checking that they can be trusted. Nothing here runs code of a plugin.
#pragma once

#include <sys/stat.h>
#include <yard/plugins.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/dynamic_library.h"
#include "base/file.h"
#include "base/rights.h"
#include "plugin/manifest.h"

namespace yard::plugin {

using base::who_else_can_write;

// Checks the permissions of directories and all their parents, and of those with the symbolic links on the way. Caches the
// results, for one search.
class Directories {
 public:
  explicit Directories(bool allow_writable) : allow_writable_(allow_writable) {}
  Refusal check(const std::string& directory);
  // The directories on the way to a file. `real`, if given, gets the directory that the way leads to.
  Refusal check_file(const std::string& path, std::string* real = nullptr);

 private:
  // Where a path leads, without links.
  Refusal follow(const std::string& path, std::string& real);
  Refusal check_real(const std::string& directory);
  bool allow_writable_;
  std::map<std::string, Refusal> known_;  // by real path
};

// Identifies a file and its version.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  int64_t changed_s = 0, changed_ns = 0;
  FileId() = default;
  explicit FileId(const struct stat& info)
      : device(info.st_dev),
        inode(info.st_ino),
        size(info.st_size),
        changed_s(info.st_mtim.tv_sec),
        changed_ns(info.st_mtim.tv_nsec) {}
  bool operator==(const FileId&) const = default;
};

// A file that may be a plugin, opened once, so that what was checked is what is loaded.
struct PluginFile {
  std::string path;
  std::string directory;  // that the path leads to, without links
  base::File file;
  FileId id;
  base::ElfReading elf;
  Manifest manifest;  // as far as it could be read
  Refusal refusal;
  // SHA-256 of the file; an error if it has grown since it was opened.
  Result<std::string> digest() const { return base::sha256(file, static_cast<uint64_t>(id.size)); }
};

// Opens the file and checks permissions and manifest. The path must be absolute. The permissions of its directory, and
// of those that symbolic links on the way lead to, are checked, too.
// A file that is larger than the settings allow is not kept open: whatever reads all of it would take too long.
PluginFile open_plugin_file(const std::string& path, Directories& directories,
                            const PluginSettings& settings, const Process& process);

struct RefusedPath {
  std::string path;
  Refusal refusal;
};

// The files that a list of files and directories names. A directory names its *.so, in order of name.
struct Found {
  std::vector<std::string> files;
  std::vector<std::string> directories;  // of all files; lock files are looked for there
  std::vector<RefusedPath> refused;
};
Found search(const std::vector<std::string>& places, Directories& directories);

// Splits a list of paths; those that are empty or not absolute are refused. Blank text is an empty list.
std::vector<std::string> absolute_paths(std::string_view text, char separator,
                                        std::vector<RefusedPath>& refused);

// Whether the process is privileged (setuid and the like); it then ignores the environment.
bool privileged() noexcept;

// The directory of this library, or of the program that it is linked into; absolute, empty if unknown.
std::string directory_of_this_library();

// Where plugins are installed: found relative to this library, so that an installation can be moved, else as configured
// at build time. The directory may be missing.
std::string installed_directory();

}  // namespace yard::plugin
