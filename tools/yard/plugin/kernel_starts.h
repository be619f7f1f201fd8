// SPDX-License-Identifier: Apache-2.0
// What `yard plugin new --for-op` starts from: the signature of an op's kernels, and simple kernels of some built-in ops
// that are correct as they are.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace yard::tool {

// Words of templates, and the texts that replace them.
using Words = std::map<std::string, std::string, std::less<>>;

// The text with every @WORD@ replaced.
std::string fill_in(std::string_view text, const Words& words);

// Whether there is a kernel to start from.
bool has_kernel_start(std::string_view op);

// The words of the templates kernel.cc and kernel.md, or kernel.c, for an op with this schema. Without a start the
// kernel declines every call.
Words kernel_words(std::string_view op, const std::string& schema, bool c);

}  // namespace yard::tool
