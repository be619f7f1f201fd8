// SPDX-License-Identifier: Apache-2.0
// SHA-256, by OpenSSL's libcrypto. The first digest of a process makes libcrypto ready, which takes about a
// millisecond.
#pragma once

#include <yard/result.h>

#include <string>
#include <string_view>

#include "base/file.h"

namespace yard::base {

// 64 small hexadecimal digits.
Result<std::string> sha256(std::string_view bytes);
// Of a whole file, whatever its current position, which stays.
Result<std::string> sha256(const File& file);

// Whether text is what sha256() gives.
bool is_sha256(std::string_view text) noexcept;

}  // namespace yard::base
