// SPDX-License-Identifier: Apache-2.0
// A folder for dumps that stays within its bounds.
#pragma once

#include <yard/verify.h>

#include <string>

namespace yard::tune {

// Tensors of one dump, and all dumps of a folder together.
inline constexpr uint64_t kMostDumpBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMostFolderBytes = uint64_t{1} << 30;

// Adds a file, under a name of its own; the folder is made if it is not there. Of our files the oldest go, so that
// there are at most `most` and they take at most `most_bytes`; other files are left alone. The path.
Result<std::string> add_dump(const std::string& folder, size_t most, const CanaryDump& dump,
                             uint64_t most_bytes = kMostFolderBytes);

}  // namespace yard::tune
