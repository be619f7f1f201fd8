// SPDX-License-Identifier: Apache-2.0
// Policy values: merging, checking, printing.
#include <fmt/format.h>
#include <yard/options.h>
#include <yard/policy.h>

#include <algorithm>

#include "base/text.h"
#include "policy/sources.h"

namespace yard {

namespace {
constexpr Mode kModes[] = {Mode::kAuto, Mode::kStatic, Mode::kDynamic, Mode::kConfig,
                           Mode::kHotReload};
}

const char* to_string(Mode m) noexcept {
  switch (m) {
    case Mode::kAuto: return "auto";
    case Mode::kStatic: return "static";
    case Mode::kDynamic: return "dynamic";
    case Mode::kConfig: return "config";
    case Mode::kHotReload: return "hot_reload";
    case Mode::kProgram: return "program";
  }
  return "?";
}

std::optional<Mode> parse_mode(std::string_view text) noexcept {
  for (Mode m : kModes)
    if (text == to_string(m)) return m;
  return std::nullopt;
}

bool glob_matches(std::string_view pattern, std::string_view text) noexcept {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

const char* to_string(RetryInplace r) noexcept {
  return r == RetryInplace::kSave ? "save" : "never";
}

std::optional<RetryInplace> parse_retry_inplace(std::string_view text) noexcept {
  for (const RetryInplace r : {RetryInplace::kNever, RetryInplace::kSave})
    if (text == to_string(r)) return r;
  return std::nullopt;
}

Policy merge(const Policy& weaker, const Policy& stronger) {
  Policy p = weaker;
  if (stronger.prefer) p.prefer = stronger.prefer;
  if (stronger.strict) p.strict = stronger.strict;
  if (stronger.retry_inplace) p.retry_inplace = stronger.retry_inplace;
  if (stronger.reference_only) p.reference_only = stronger.reference_only;
  if (stronger.allow_vendors) p.allow_vendors = stronger.allow_vendors;
  if (stronger.allow_kernels) p.allow_kernels = stronger.allow_kernels;
  for (const auto& [op, order] : stronger.per_op) p.per_op[op] = order;
  for (const auto& [op, kernel] : stronger.locks) p.locks[op] = kernel;
  for (const auto& [name, on] : stronger.backends) p.backends[name] = on;
  const auto add = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
    for (const std::string& s : from)
      if (std::find(to.begin(), to.end(), s) == to.end()) to.push_back(s);
  };
  add(p.deny_vendors, stronger.deny_vendors);
  add(p.deny_kernels, stronger.deny_kernels);
  return p;
}

namespace {

Status bad(std::string text) { return Status(Code::kInvalidArgument, std::move(text)); }

Status check_names(const std::vector<std::string>& list, const char* field) {
  for (const std::string& s : list)
    if (s.empty()) return bad(fmt::format("policy: {} holds an empty name", field));
  return {};
}

Status check_token(const std::string& op, const std::string& token) {
  const auto colon = token.find(':');
  const std::string_view head = std::string_view(token).substr(0, colon);
  if (colon == std::string::npos) {
    if (parse_kind(token)) return {};
    return bad(fmt::format(
        "policy: per_op['{}'] holds '{}'; expected default, vendor, reference, vendor:NAME "
        "or impl:ID{}",
        op, token, base::did_you_mean(token, {"default", "vendor", "reference"})));
  }
  if ((head != "vendor" && head != "impl") || colon + 1 == token.size())
    return bad(
        fmt::format("policy: per_op['{}'] holds '{}'; expected vendor:NAME or impl:ID", op, token));
  return {};
}

}  // namespace

Status validate(const Policy& p) {
  for (const auto& [op, order] : p.per_op) {
    if (op.empty()) return bad("policy: per_op holds an order for no op");
    if (order.empty())
      return bad(fmt::format("policy: per_op['{}'] is empty, which would leave no kernel", op));
    for (const std::string& token : order) YARD_RETURN_IF_ERROR(check_token(op, token));
  }
  for (const auto& [op, kernel] : p.locks)
    if (op.empty() || kernel.empty())
      return bad(fmt::format("policy: the lock '{}' → '{}' lacks an op or a kernel", op, kernel));
  for (const auto& [name, on] : p.backends)
    if (name.empty()) return bad("policy: backends holds an empty name");
  YARD_RETURN_IF_ERROR(check_names(p.deny_vendors, "deny_vendors"));
  YARD_RETURN_IF_ERROR(check_names(p.deny_kernels, "deny_kernels"));
  if (p.allow_vendors) YARD_RETURN_IF_ERROR(check_names(*p.allow_vendors, "allow_vendors"));
  if (p.allow_kernels) YARD_RETURN_IF_ERROR(check_names(*p.allow_kernels, "allow_kernels"));
  return {};
}

std::string to_string(const Policy& policy) {
  std::string text;
  for (const PolicyNote& n : policy::notes(policy, "")) {
    if (!text.empty()) text += ' ';
    text += n.field + '=' + n.value;
  }
  return text.empty() ? "nothing set" : text;
}

}  // namespace yard
