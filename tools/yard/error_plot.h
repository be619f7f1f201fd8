// SPDX-License-Identifier: Apache-2.0
// A picture of how far kernels are from their references: one strip for each kernel, one dot for each
// case, by its error in units of the tolerance.
#pragma once

#include <yard/verify.h>

#include <string>

namespace yard::tool {

// An SVG document. Kernels that ran nothing are left out.
std::string error_plot(const VerifyReport& report);

}  // namespace yard::tool
