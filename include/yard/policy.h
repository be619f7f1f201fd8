// SPDX-License-Identifier: Apache-2.0
// Policy: what is preferred, allowed and forced. A plain value: make one, change it, compare it.
//
// An unset field says nothing, and a weaker source has its say. When two policies meet, the stronger
// one replaces scalars, per-op entries, locks and allow lists; deny lists add up; deny beats allow.
//
//   yard::Policy p;
//   p.prefer = yard::Kind::kVendor;
//   p.deny_vendors = {"acme"};
//   p.per_op["softmax"] = {"vendor:onednn", "reference"};   // exhaustive: what is not listed is out
//   yard::Runtime::shared().set_policy(p).or_throw();
#pragma once

#include <yard/status.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace yard {

enum class Kind : int {
  kDefault = YARD_KIND_DEFAULT,
  kVendor = YARD_KIND_VENDOR,
  kReference = YARD_KIND_REFERENCE,
};
YARD_API const char* to_string(Kind k) noexcept;
YARD_API std::optional<Kind> parse_kind(std::string_view text) noexcept;

// What happens to calls that write over their inputs, when a kernel fails that may already have done so.
enum class RetryInplace : int {
  kNever,  // its error is the call's
  kSave,   // inputs are copied before such a kernel runs, and put back for the next one
};
YARD_API const char* to_string(RetryInplace r) noexcept;
YARD_API std::optional<RetryInplace> parse_retry_inplace(std::string_view text) noexcept;

struct Policy {
  // Order of kinds: default → default, vendor, reference; vendor → vendor, default, reference;
  // reference → reference, default, vendor. Unset: default and vendor compete, reference comes last.
  std::optional<Kind> prefer;
  // The first choice or its error: no fallback.
  std::optional<bool> strict;
  // Kernels that promise to fail before they write need no copy. Unset: never.
  std::optional<RetryInplace> retry_inplace;
  // Only reference kernels.
  std::optional<bool> reference_only;
  // Op name → tokens `default`, `vendor`, `reference`, `vendor:NAME`, `impl:ID`, best first.
  std::map<std::string, std::vector<std::string>, std::less<>> per_op;
  // Vendor lists touch only kernels that have a vendor.
  std::optional<std::vector<std::string>> allow_vendors;
  std::vector<std::string> deny_vendors;
  // Globs (`*`, `?`) over kernel ids.
  std::optional<std::vector<std::string>> allow_kernels;
  std::vector<std::string> deny_kernels;
  // Op name or glob → kernel id. A lock bypasses neither deny nor capability.
  std::map<std::string, std::string, std::less<>> locks;
  // Backend name → on or off.
  std::map<std::string, bool, std::less<>> backends;

  bool operator==(const Policy&) const = default;
  bool empty() const { return *this == Policy(); }
};

// `stronger` over `weaker`, by the rules above.
YARD_API Policy merge(const Policy& weaker, const Policy& stronger);
// Whether every token, glob and name is well formed; the message names the field and what was expected.
YARD_API Status validate(const Policy& policy);
// One line, `prefer=vendor deny_vendors=acme`; "nothing set" when empty. Equal policies, equal text, and only those.
YARD_API std::string to_string(const Policy& policy);
// `*` any run of characters, `?` one.
YARD_API bool glob_matches(std::string_view pattern, std::string_view text) noexcept;

}  // namespace yard
