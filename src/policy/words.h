// SPDX-License-Identifier: Apache-2.0
// The words people write about policies, wherever they write them: in the environment and in rule files.
// Keywords may be in any case. What means nothing is reported with what was expected: as kParse, or in a
// list of problems, which leaves the result without meaning.
#pragma once

#include <yard/policy.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace yard::policy {

// 0 or 1, off or on, false or true, no or yes; nothing else.
Result<bool> read_switch(std::string_view word);

// default (also called flaggems and flagos), vendor or reference.
Result<Kind> read_kind(std::string_view word);
// When plugins are tried in a process of their own, in small letters.
Result<std::string> read_probe(std::string_view word);

// A token of a per-op order, as Policy::per_op spells it: a kind, vendor:NAME or impl:ID.
Result<std::string> read_token(std::string_view word);

using Names = std::vector<std::string>;
using Orders = decltype(Policy::per_op);
// What is wrong with a text, each with what was expected.
using Problems = std::vector<std::string>;

// Names of vendors, or globs over kernel ids, with ',' between them.
Names read_vendors(std::string_view text, Problems& problems);
Names read_globs(std::string_view text, Problems& problems);
// `rms_norm=vendor|default;softmax=reference`.
Orders read_orders(std::string_view text, Problems& problems);

// What may stand in the name of a vendor. In code it may be anything; in a list, what separates may not.
bool is_vendor_name(std::string_view text) noexcept;
// In the name of an op: lower-case letters, digits, '_', '.'.
bool is_op_name(std::string_view text) noexcept;
// In a glob over kernel ids.
bool is_kernel_glob(std::string_view text) noexcept;

}  // namespace yard::policy
