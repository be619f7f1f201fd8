// SPDX-License-Identifier: Apache-2.0
// Switches, kinds, tokens, names and lists of them.
#include "policy/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace yard::policy {
namespace {

Status wrong(std::string_view right, std::string_view word, const std::vector<std::string>& words) {
  // Every short word is near to a single letter, which says nothing.
  const std::string hint = word.size() > 1 ? base::did_you_mean(base::lower(word), words) : "";
  return Status(Code::kParse, fmt::format("expected {}{}", right, hint));
}

template <class F>
bool all_of(std::string_view text, F f) noexcept {
  return !text.empty() && std::all_of(text.begin(), text.end(), f);
}

Names read_list(std::string_view value, bool (*is_name)(std::string_view) noexcept,
                std::string_view what, std::string_view right, Problems& problems) {
  Names names;
  size_t number = 0;
  for (std::string_view entry : base::split(value, ',')) {
    ++number;
    if (entry.empty())
      problems.push_back(
          fmt::format("entry {} is empty; expected one ',' between entries", number));
    else if (!is_name(entry))
      problems.push_back(
          fmt::format("{} is no {}; expected {}", base::excerpt(entry), what, right));
    else if (std::find(names.begin(), names.end(), entry) == names.end())
      names.emplace_back(entry);
  }
  return names;
}

// The tokens of one op, `vendor|default`.
Names read_order(const std::string& op, std::string_view text, Problems& problems) {
  Names order;
  if (text.empty()) {
    problems.push_back(fmt::format(
        "the order of {} is empty, which would leave no kernel; expected {}=vendor|default", op,
        op));
    return order;
  }
  for (std::string_view word : base::split(text, '|')) {
    if (word.empty()) {
      problems.push_back(
          fmt::format("the order of {} has an empty token; expected one '|' between tokens", op));
      continue;
    }
    const auto token = read_token(word);
    if (!token.ok())
      problems.push_back(fmt::format("{} in the order of {} is no token; {}", base::excerpt(word),
                                     op,
                                     word.find_first_of(", =") == std::string_view::npos
                                         ? token.status().message()
                                         : "expected '|' between tokens and ';' between ops"));
    else if (std::find(order.begin(), order.end(), *token) != order.end())
      problems.push_back(
          fmt::format("the order of {} has {} twice; expected each token once", op, *token));
    else
      order.push_back(*token);
  }
  return order;
}

}  // namespace

Result<bool> read_switch(std::string_view word) {
  for (const char* on : {"1", "on", "true", "yes"})
    if (base::same_word(word, on)) return true;
  for (const char* off : {"0", "off", "false", "no"})
    if (base::same_word(word, off)) return false;
  return wrong("0/1, off/on, false/true or no/yes", word,
               {"on", "off", "true", "false", "yes", "no"});
}

Result<Kind> read_kind(std::string_view word) {
  const std::string small = base::lower(word);
  if (const auto kind = parse_kind(small)) return *kind;
  if (small == "flaggems" || small == "flagos") return Kind::kDefault;
  return wrong("default, vendor or reference", word, {"default", "vendor", "reference"});
}

Result<std::string> read_probe(std::string_view word) {
  const std::string small = base::lower(word);
  if (small == "never" || small == "changed" || small == "always") return small;
  return wrong("never, changed or always", word, {"never", "changed", "always"});
}

Result<std::string> read_token(std::string_view word) {
  const size_t colon = word.find(':');
  if (colon == std::string_view::npos) {
    if (const auto kind = read_kind(word); kind.ok()) return std::string(to_string(*kind));
    if (base::same_word(word, "impl"))
      return Status(Code::kParse, "expected impl:ID, with the id of a kernel");
    if (base::is_bare_word(word) && word.find('.') != std::string_view::npos)
      return Status(Code::kParse, fmt::format("expected impl:{}", word));
    return wrong("default, vendor, reference, vendor:NAME or impl:ID", word,
                 {"default", "vendor", "reference"});
  }
  const std::string_view head = base::trim(word.substr(0, colon));
  const std::string_view name = base::trim(word.substr(colon + 1));
  if (base::same_word(head, "vendor")) {
    if (is_vendor_name(name)) return fmt::format("vendor:{}", name);
    return Status(Code::kParse, "expected vendor:NAME, with the name of a vendor");
  }
  if (base::same_word(head, "impl")) {
    if (base::is_bare_word(name)) return fmt::format("impl:{}", name);
    return Status(Code::kParse, "expected impl:ID, with the id of a kernel");
  }
  return wrong("vendor:NAME or impl:ID", head, {"vendor", "impl"});
}

Names read_vendors(std::string_view value, Problems& problems) {
  return read_list(value, is_vendor_name, "name of a vendor", "names with ',' between them",
                   problems);
}

Names read_globs(std::string_view value, Problems& problems) {
  return read_list(value, is_kernel_glob, "id or glob of kernels", "default.simd,vendor.*",
                   problems);
}

Orders read_orders(std::string_view value, Problems& problems) {
  Orders orders;
  constexpr const char* kRight = "expected OP=TOKEN|TOKEN";
  size_t number = 0;
  for (std::string_view entry : base::split(value, ';')) {
    ++number;
    const size_t equals = entry.find('=');
    const std::string op(base::trim(entry.substr(0, equals)));
    if (entry.empty()) {
      problems.push_back(
          fmt::format("entry {} is empty; expected one ';' between entries", number));
    } else if (equals == std::string_view::npos) {
      problems.push_back(fmt::format("{} has no '='; {}", base::excerpt(entry), kRight));
    } else if (op.empty()) {
      problems.push_back(fmt::format("{} names no op; {}", base::excerpt(entry), kRight));
    } else if (!is_op_name(op)) {
      problems.push_back(
          fmt::format("{} is no name of an op; expected lower-case letters, digits, '_' and '.'",
                      base::excerpt(op)));
    } else {
      Names order = read_order(op, base::trim(entry.substr(equals + 1)), problems);
      if (!orders.emplace(op, std::move(order)).second)
        problems.push_back(
            fmt::format("{} has an order already; expected one entry for each op", op));
    }
  }
  return orders;
}

bool is_vendor_name(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size(); i += base::utf8_length(text, i))
    if (base::utf8_length(text, i) == 0) return false;
  return all_of(text, [](char c) {
    return base::is_bare_word({&c, 1}) || c == ' ' || static_cast<unsigned char>(c) >= 0x80;
  });
}

bool is_op_name(std::string_view text) noexcept {
  return all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

bool is_kernel_glob(std::string_view text) noexcept {
  return all_of(text, [](char c) { return base::is_bare_word({&c, 1}) || c == '*' || c == '?'; });
}

}  // namespace yard::policy
