// SPDX-License-Identifier: Apache-2.0
// From a YAML tree to a Config. Whatever is wrong becomes a problem with its place and its path, and reading goes on,
// so that all problems of a file are found at once.
#pragma once

#include <yard/config.h>

#include <string>
#include <vector>

#include "base/yaml.h"

namespace yard::policy {

// Beyond these a file has one more problem: that there are more.
inline constexpr size_t kMostProblems = 200;
ConfigProblem more_problems(std::string file, Severity severity);
bool is_more(const ConfigProblem& problem) noexcept;

// The problems of one file.
struct FileProblems {
  std::string name;
  uint32_t file;  // index into Config::sources.files
  std::vector<ConfigProblem>& to;

  void add(base::YamlMark mark, std::string path, std::string found, std::string right);
};

// Another file that a file includes.
struct Include {
  std::string file;
  base::YamlMark at;
  std::string path;  // "include[1]"
};

// `main`: the file must state the version. Includes are collected, not read.
Config read_tree(const base::YamlNode& root, bool main, FileProblems& problems,
                 std::vector<Include>& includes);

}  // namespace yard::policy
