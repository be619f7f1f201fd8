// SPDX-License-Identifier: Apache-2.0
// Finds plugin files and checks them. Runs no code of a plugin.
#pragma once

#include <sys/stat.h>

#include <set>

#include "base/file.h"
#include "plugin/manifest.h"

namespace yard::plugin {

// Refuses a file or folder that other users can change or replace.
Refusal check_trusted(const std::string& path);

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  int64_t changed_s = 0, changed_ns = 0;
  bool operator==(const FileId&) const = default;
};

struct FoundFile {
  std::string path = {};
  FileId id = {};
  Manifest manifest = {};   // as far as it could be read
  std::string sha256 = {};  // see PluginFile::hash()
  Refusal refusal = {};
};

// The file is opened once, so that the checked file is the one that is loaded.
struct PluginFile : FoundFile {
  std::string folder;  // the folder of the file that the path leads to
  base::File file;     // closed if too large or not regular, since it must not be hashed

  // Computes the digest. Refuses a file that has grown since it was opened.
  void hash();
};

// Opens the file and checks permissions, manifest and run paths. The path must be absolute.
PluginFile open_plugin_file(const std::string& path, const PluginSettings& settings,
                            const Process& process);

struct Found {
  std::vector<std::string> files;
  std::set<std::string> folders;  // of all files; lock files are searched there
  std::vector<FoundFile> refused;
};
struct FromEnvironment {  // empty if unset
  std::string plugins, path;
  bool operator==(const FromEnvironment&) const = default;
};
// Finds files in the given places, in the environment's, and where plugins are installed. A place
// is a file, or a folder, which stands for its *.so in order of name.
Found find_plugins(const std::vector<std::string>& given, const FromEnvironment& environment,
                   const PluginSettings& settings);

// A privileged process (setuid and the like) ignores the environment.
bool privileged() noexcept;

}  // namespace yard::plugin
