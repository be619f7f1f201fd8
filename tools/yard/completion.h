// SPDX-License-Identifier: Apache-2.0
// Completion of command lines, for shells.
//
// The scripts are thin: they call `yard complete WORD...` for the completions of the last word. These come
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

// Completions of the last of `words`, which follow the name of the program; sorted. Empty where
// a file or a number is expected.
std::vector<Completion> complete(const CLI::App& app, std::vector<std::string> words);

// Prints the completions, one a line: the word, a tab, its meaning.
int print_completions(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace yard::tool
