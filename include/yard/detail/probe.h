// SPDX-License-Identifier: Apache-2.0
// All of the program `yard-probe` but its main(): used only by the library, which starts it.
#pragma once

#include <yard/status.h>

namespace yard::detail {

// Opens the library on descriptor 4, exercises it and says on descriptor 3 what it is about. Gives the exit
// code of the program.
YARD_API int probe_child(int argc, char** argv);

}  // namespace yard::detail
