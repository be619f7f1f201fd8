// SPDX-License-Identifier: Apache-2.0
// Completion of command lines, for shells.
//
// The scripts are thin: they call `yard complete WORD...` for the completions of the last word. The
// completions come from the tree of commands and options that parses them, and from the runtime.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace yard::tool {

// Prints the completions of the last of `words`, which follow the name of the program. Each line
// has a word, a tab and its meaning. Prints nothing where a file or a number is expected.
int print_completions(CLI::App& app, std::vector<std::string> words);

}  // namespace yard::tool
