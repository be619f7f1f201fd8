// SPDX-License-Identifier: Apache-2.0
// yard run --from: runs a call again that a canary found wrong.
#pragma once

#include <string>

namespace yard::tool {

// The kernel of the dump unless another is named. The exit code: 1 if its results are still wrong.
int run_dump(const std::string& path, const std::string& kernel, bool json);

}  // namespace yard::tool
