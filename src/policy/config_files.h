// SPDX-License-Identifier: Apache-2.0
// Reads rule files and the files that they include.
#pragma once

#include <yard/config.h>

#include "base/yaml.h"

namespace yard::policy {

// Returns a file's text, or why it cannot be read: kInvalidArgument if others can write the file.
using Opener = std::function<Result<std::string>(const std::string& path)>;

// Opens regular files of at most 4 MiB that only root and this user can write. Never blocks.
Result<std::string> open_file(const std::string& path);

// Like yard::read_config() and yard::parse_config(), but `open` reads the files.
ConfigReading read_config_from(const std::string& path, const Opener& open);
ConfigReading parse_config_from(std::string_view text, const std::string& name, const Opener& open);

// Adds the locks, denies and allows that code has set in Config::policy to the kernel_* lists.
Config with_sections(Config config);

// Adds problems to a reading and sorts all by place. At most 200 are kept, errors before warnings.
void add_problems(ConfigReading& reading, std::vector<ConfigProblem> more);

// Returns the place of a value in Config::sources, or of a name in the list or map at that path.
ConfigPlace place_of(const Config& config, const std::string& path, const std::string& name = {});

inline constexpr size_t kMostIncludes = 64, kDeepestInclude = 8;

// ---- config_reader.cc: one file ----

struct FileProblems {
  std::string name;
  uint32_t file;  // index into Config::sources.files
  std::vector<ConfigProblem>& to;
  // An included file may contain secrets, so its problems show only keys of rule files.
  bool included;

  void add(base::YamlMark mark, std::string path, std::string found, std::string right);
  void add_shown(base::YamlMark mark, std::string path, std::string found, std::string right);
};

struct Include {
  std::string file;
  base::YamlMark at;
  std::string path;  // "include[1]"
};

// The main file must state the version. Includes are collected, not read.
Config read_tree(const base::YamlNode& root, bool main, FileProblems& problems,
                 std::vector<Include>& includes);

}  // namespace yard::policy
