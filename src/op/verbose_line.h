// SPDX-License-Identifier: Apache-2.0
// The line that a verbose runtime prints for a call, and the call that it is about.
//
//   yard,exec,rms_norm,default.simd,f32[8,4096] f32[4096],hit,12.4us
#pragma once

#include <string>
#include <string_view>

#include "op/call_spec.h"

namespace yard::op {

// The arguments of a call, separated by spaces; its device and what follows it only if that is not `@cpu`.
std::string verbose_arguments(const CallSpec& spec);

// The CallSpec that a line is about; kParse if it has another form.
bool is_verbose_line(std::string_view text) noexcept;
Result<std::string> call_of_verbose_line(std::string_view line);

}  // namespace yard::op
