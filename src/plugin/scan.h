// SPDX-License-Identifier: Apache-2.0
// Finding plugin files, and checking them. Nothing here runs code of a plugin.
#pragma once

#include <sys/stat.h>
#include <yard/plugins.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "plugin/manifest.h"

namespace yard::plugin {

// Refuses a file or folder that others than root and this user can write, or put another in the place of.
Refusal check_trusted(const std::string& path);

// Identifies a file and its version.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  int64_t changed_s = 0, changed_ns = 0;
  bool operator==(const FileId&) const = default;
};

// What is known of a file that may be a plugin.
struct FoundFile {
  std::string path = {};
  FileId id = {};
  Manifest manifest = {};   // as far as it could be read
  std::string sha256 = {};  // see PluginFile::hash()
  Refusal refusal = {};
};

// Opened once, so that what was checked is what is loaded.
struct PluginFile : FoundFile {
  std::string folder;  // the one that holds the file that the path leads to
  base::File file;     // closed if it is too large or not regular, since it must not be hashed

  // Computes the digest of the whole file. Refuses a file that has grown since it was opened.
  void hash();
};

// Opens the file and checks permissions, manifest and run paths. The path must be absolute.
PluginFile open_plugin_file(const std::string& path, const PluginSettings& settings,
                            const Process& process);

struct Found {
  std::vector<std::string> files;
  std::vector<std::string> folders;  // of all files; lock files are looked for there
  std::vector<FoundFile> refused;
};
// Finds the files that a list of files and folders names. A folder stands for its *.so, in order of name.
Found search(const std::vector<std::string>& places, bool allow_writable);

// Settings from the environment; empty where unset.
struct FromEnvironment {
  std::string plugins, path;
  bool operator==(const FromEnvironment&) const = default;
};
// Searches the places that are given in code, those of the environment, and the folder where plugins are installed.
Found find_plugins(const std::vector<std::string>& given, const FromEnvironment& environment,
                   const PluginSettings& settings);

// Whether the process is privileged (setuid and the like); it then ignores the environment.
bool privileged() noexcept;

}  // namespace yard::plugin
