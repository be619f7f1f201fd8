// SPDX-License-Identifier: Apache-2.0
// A file that may be a plugin: opened once, looked at, and judged by what its manifest says. No code of it
// runs.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <string>

#include "base/file.h"
#include "plugin/manifest.h"
#include "plugin/refusal.h"
#include "plugin/search.h"

namespace yard::plugin {

// Which file it was, and in which state.
struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  int64_t changed_s = 0, changed_ns = 0;
  bool operator==(const FileId&) const = default;
};

struct Candidate {
  std::string path;
  base::File file;
  FileId id;
  Manifest manifest;  // as far as it could be read
  Refusal refusal;
};

// The path is absolute. The rights of its directory, and of those where links lead, are checked, too.
Candidate look_at(const std::string& path, Directories& directories, bool allow_writable,
                  const Process& process);

}  // namespace yard::plugin
