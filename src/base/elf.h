// SPDX-License-Identifier: Apache-2.0
// Reads a shared library without running its code: whether this process can map it, its notes, the
// libraries that it needs and where it looks for them. Files are untrusted. They are read and not
// mapped, so that truncating a file meanwhile causes an error and not a signal.
#pragma once

#include <yard/plugins.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace yard::base {

struct ElfReading {
  PluginReason problem = PluginReason::kNone;
  std::string detail;                  // describes the problem
  std::vector<std::string> notes;      // texts of the matching notes
  bool never_unloads = false;          // DF_1_NODELETE
  std::vector<std::string> needed;     // names of the libraries that it loads
  std::vector<std::string> run_paths;  // RPATH and RUNPATH: lists of folders, separated by ':'
};

// Reads notes of an owner and type. The file must hold everything that the loader would map.
ElfReading read_elf(const File& file, std::string_view owner, uint32_t type);

// Returns at most `most` symbols that keep the library from being unloaded (STB_GNU_UNIQUE).
std::vector<std::string> unique_symbols(const File& file, size_t most);

}  // namespace yard::base
