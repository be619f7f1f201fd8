// SPDX-License-Identifier: Apache-2.0
// Completion of command lines, for shells.
//
// The scripts are thin: they ask `yard complete WORD...` what could stand for the last word, and it answers
// from the same tree of commands and options that parses them, and from the runtime's ops and kernels.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace yard::tool {

struct Completion {
  std::string word, meaning;
};

// What could stand for the last of `words`, which follow the name of the program; sorted. Nothing where
// a file or a number belongs.
std::vector<Completion> complete(const CLI::App& app, std::vector<std::string> words);

// The answer of `yard complete WORD...`: a line each, word and meaning with a tab between them.
int print_completions(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace yard::tool
