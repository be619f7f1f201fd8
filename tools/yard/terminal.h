// SPDX-License-Identifier: Apache-2.0
// How the command talks: colour on terminals only, errors on stderr, suggestions for what was misspelt.
#pragma once

#include <yard/status.h>

#include <string>
#include <string_view>
#include <vector>

namespace yard::tool {

// Exit codes.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;  // the thing asked for went wrong: no kernel, a mismatch
inline constexpr int kUsage = 2;   // the question was wrong

// Whether stdout takes colour: a terminal that is not dumb, and NO_COLOR is not set.
bool colour();

enum class Paint { kPlain, kBold, kGood, kWarning, kBad, kDim };
// The text in colour where stdout takes it.
std::string paint(Paint p, std::string_view text);

// "; did you mean 'list'?" or nothing.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known);

// One message on stderr, `yard: ...`; returns `code`.
int fail(int code, std::string_view message);
// The status with its notes.
int fail(int code, const Status& status);

// 2 where the question was wrong (no such op, text that does not parse), 1 where the answer is no.
int exit_code(const Status& status);

// "830 ns", "1.24 us", "3.1 ms": three figures.
std::string duration(double ns);

}  // namespace yard::tool
