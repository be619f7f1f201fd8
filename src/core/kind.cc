// SPDX-License-Identifier: Apache-2.0
// Names of the kinds of kernels.
#include <yard/policy.h>

namespace yard {

const char* to_string(Kind k) noexcept {
  switch (k) {
    case Kind::kDefault: return "default";
    case Kind::kVendor: return "vendor";
    case Kind::kReference: return "reference";
  }
  return "?";
}

std::optional<Kind> parse_kind(std::string_view text) noexcept {
  for (Kind k : {Kind::kDefault, Kind::kVendor, Kind::kReference})
    if (text == to_string(k)) return k;
  return std::nullopt;
}

}  // namespace yard
