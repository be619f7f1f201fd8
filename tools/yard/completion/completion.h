// SPDX-License-Identifier: Apache-2.0
// Completes command lines for shells. The scripts call `yard complete WORD...` to complete the last
// word. The completions come from the commands and options that are parsed, and from the runtime.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace yard::tool {

// Prints the completions of the last of `words`, which exclude the name of the program. Each line
// has a word, a tab and its meaning. Prints nothing where a file or a number is expected.
int print_completions(CLI::App& app, std::vector<std::string> words);

}  // namespace yard::tool
