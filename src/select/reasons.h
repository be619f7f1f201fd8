// SPDX-License-Identifier: Apache-2.0
// The catalogue of reasons: a name and a meaning for each code.
#pragma once

#include <yard/plugin.h>

#include <span>
#include <string_view>

namespace yard::select {

struct ReasonInfo {
  int32_t code;
  std::string_view name;     // "denied_vendor"
  std::string_view meaning;  // one sentence for the page of reasons
  bool by_policy;            // lifting a policy could let the candidate in
};

// Every code of yard_reason_t below YARD_REASON_COUNT, in order.
std::span<const ReasonInfo> reasons() noexcept;

// A kernel's own codes are "own".
std::string_view reason_name(int32_t code) noexcept;
bool is_policy_reason(int32_t code) noexcept;

}  // namespace yard::select
