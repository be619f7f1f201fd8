// SPDX-License-Identifier: Apache-2.0
// Where things lie that were installed together with this library. An installation may be moved: its parts are
// looked for from the library's own place, and only then where they were meant to be.
#pragma once

#include <string>

namespace yard::plugin {

// Absolute; of the program where that holds the library itself. Empty if it cannot be told.
std::string directory_of_this_library();

// Where this library's plugins are installed. It need not be there.
std::string installed_directory();

}  // namespace yard::plugin
