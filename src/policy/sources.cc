// SPDX-License-Identifier: Apache-2.0
// Who said what.
#include "policy/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace yard::policy {
namespace {

// Names as they are; what could be taken for punctuation in quotes, so that different policies never
// print alike.
std::string word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c == ':' || c == '*' ||
           c == '?';
  });
  return plain ? text : base::quote(text);
}

std::string words(const std::vector<std::string>& list, char between) {
  std::string out;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out += between;
    out += word(list[i]);
  }
  return out;
}

}  // namespace

Policy combine(std::span<const Source> sources) {
  Policy p;
  for (const Source& s : sources) p = merge(p, *s.policy);
  return p;
}

std::vector<PolicyNote> notes(const Policy& p, const char* source) {
  std::vector<PolicyNote> to;
  const auto add = [&](std::string field, std::string value) {
    to.push_back({std::move(field), std::move(value), source});
  };
  const auto flag = [](bool b) { return std::string(b ? "true" : "false"); };
  if (p.prefer) add("prefer", to_string(*p.prefer));
  if (p.strict) add("strict", flag(*p.strict));
  if (p.retry_inplace) add("retry_inplace", to_string(*p.retry_inplace));
  if (p.reference_only) add("reference_only", flag(*p.reference_only));
  for (const auto& [op, order] : p.per_op)
    add(fmt::format("per_op[{}]", word(op)), words(order, '|'));
  if (p.allow_vendors) add("allow_vendors", words(*p.allow_vendors, ','));
  if (!p.deny_vendors.empty()) add("deny_vendors", words(p.deny_vendors, ','));
  if (p.allow_kernels) add("allow_kernels", words(*p.allow_kernels, ','));
  if (!p.deny_kernels.empty()) add("deny_kernels", words(p.deny_kernels, ','));
  for (const auto& [op, kernel] : p.locks) add(fmt::format("locks[{}]", word(op)), word(kernel));
  for (const auto& [name, on] : p.backends)
    add(fmt::format("backends[{}]", word(name)), on ? "on" : "off");
  return to;
}

std::vector<PolicyNote> notes(std::span<const Source> sources) {
  std::vector<PolicyNote> to;
  for (const Source& s : sources) {
    for (PolicyNote& n : notes(*s.policy, s.name)) {
      const auto same = std::find_if(to.begin(), to.end(),
                                     [&](const PolicyNote& o) { return o.field == n.field; });
      if (same == to.end()) {
        to.push_back(std::move(n));
      } else if (n.field.starts_with("deny_")) {
        same->value += ',' + n.value;
        same->source += ", " + n.source;
      } else {
        *same = std::move(n);
      }
    }
  }
  return to;
}

}  // namespace yard::policy
