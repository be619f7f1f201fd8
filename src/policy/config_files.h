// SPDX-License-Identifier: Apache-2.0
// Rule files and the files they include, from any store of texts.
#pragma once

#include <yard/config.h>

#include "base/yaml.h"

namespace yard::policy {

// The text of a file; the message of a failure says why there is none ("cannot be opened: ..."). kInvalidArgument:
// others can write it.
using Opener = std::function<Result<std::string>(const std::string& path)>;

// Regular files of at most 4 MiB that others than root and this user cannot write; never waits for a pipe.
Result<std::string> open_file(const std::string& path);

// yard::read_config() and yard::parse_config() over another store of files.
ConfigReading read_config_from(const std::string& path, const Opener& open);
ConfigReading parse_config_from(std::string_view text, const std::string& name, const Opener& open);

// The sections of these names, and what code has set in Config::policy instead of them.
struct KernelSections {
  Config::KernelMap locks;
  std::vector<KernelRef> denies;
  std::optional<std::vector<KernelRef>> allows;
};
KernelSections kernel_sections(const Config& config);

// Adds problems to those of a reading and sorts all by file and line. A reading has at most 200 problems, and then one more:
// that there are more. Warnings are cut first.
void add_problems(ConfigReading& reading, std::vector<ConfigProblem> more);

// Of a value whose own has no place, by its path, and by its name in a list or map; see Config::sources.
ConfigPlace place_of(const Config& config, const std::string& path, const std::string& name = {});

inline constexpr size_t kMostIncludes = 64, kDeepestInclude = 8;

// ---- config_reader.cc: one file ----

struct FileProblems {
  std::string name;
  uint32_t file;  // index into Config::sources.files
  std::vector<ConfigProblem>& to;
  // Any file can be included, one with secrets, too: only keys of rule files are shown of what it holds. Paths that are
  // added must have no others.
  bool included;

  void add(base::YamlMark mark, std::string path, std::string found, std::string right);
  void add_shown(base::YamlMark mark, std::string path, std::string found, std::string right);
};

struct Include {
  std::string file;
  base::YamlMark at;
  std::string path;  // "include[1]"
};

// Whatever is wrong becomes a problem with its place and its path, and reading goes on, so that all problems of a file
// are found at once. `main`: the file must state the version. Includes are collected, not read.
Config read_tree(const base::YamlNode& root, bool main, FileProblems& problems,
                 std::vector<Include>& includes);

}  // namespace yard::policy
