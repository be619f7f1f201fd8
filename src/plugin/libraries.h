// SPDX-License-Identifier: Apache-2.0
// The libraries that a plugin needs, found as the dynamic loader finds them. Those outside of the system's directories are
// checked as the plugin is: others could run their code through them.
#pragma once

#include <yard/plugins.h>

#include <string>
#include <vector>

#include "plugin/search.h"

namespace yard::plugin {

// The digest of a file that has been read.
struct KnownDigest {
  FileId id;
  std::string sha256;
};

struct LibrarySearch {
  Directories& directories;
  const PluginSettings& settings;
  std::string environment;            // LD_LIBRARY_PATH when the process started
  std::vector<KnownDigest>* digests;  // may be null: each file is read
};

// Libraries that the plugin needs, directly or through others, with digests; without those in directories of the system
// (/usr, /lib) that belong to root. A refusal if others can write one of them, or a directory that RPATH or RUNPATH of the
// plugin or of a library leads to, or if such a path is not absolute. Libraries that are missing, or that only the cache of
// the dynamic loader names, are not listed.
Refusal find_libraries(const PluginFile& plugin, const LibrarySearch& search,
                       std::vector<PluginLibrary>& to);

}  // namespace yard::plugin
