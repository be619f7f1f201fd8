// SPDX-License-Identifier: Apache-2.0
// SHA-256, by OpenSSL's libcrypto. The first digest of a process initializes libcrypto, in about a millisecond.
#pragma once

#include <yard/result.h>

#include <string>
#include <string_view>

#include "base/file.h"

namespace yard::base {

// 64 lower-case hexadecimal digits.
Result<std::string> sha256(std::string_view bytes);
// Of a whole file; its position does not change.
Result<std::string> sha256(const File& file);

// Whether the text has the form of a digest.
bool is_sha256(std::string_view text) noexcept;

}  // namespace yard::base
