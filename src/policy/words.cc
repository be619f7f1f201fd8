// SPDX-License-Identifier: Apache-2.0
#include "policy/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/lists.h"
#include "base/yaml.h"

namespace yard::policy {
namespace {

Status not_a_word(std::string_view expected, std::string_view text, const Names& words) {
  // Every short word is close to a single letter.
  const std::string hint = text.size() > 1 ? base::did_you_mean(base::lower(text), words) : "";
  return Status(Code::kParse, fmt::format("expected {}{}", expected, hint));
}

struct Unit {
  const char* name;
  double ns;
};
constexpr Unit kUnits[] = {{"h", 3600e9}, {"m", 60e9}, {"s", 1e9},
                           {"ms", 1e6},   {"us", 1e3}, {"ns", 1}};

std::string bounds(const ValueForm& form) {
  const auto text = [&](double v) {
    if (form.is(shape::kWhole)) return std::to_string(static_cast<int64_t>(v));
    const std::string number = fmt::format("{}", v);
    return form.is(shape::kDuration) ? print_duration(*read_duration(number)) : number;
  };
  return fmt::format("from {} to {}", text(form.least), text(form.most));
}

template <class... A>
void add(Problems& to, fmt::format_string<A...> text, A&&... args) {
  to.push_back(fmt::format(text, std::forward<A>(args)...));
}

// Reads a token of a per-op order as Policy::per_op spells it: a kind, vendor:NAME or impl:ID.
Result<std::string> read_token(std::string_view text) {
  const auto expected = [](std::string what) { return Status(Code::kParse, "expected " + what); };
  constexpr const char* kImpl = "impl:ID, with the id of a kernel";
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    const Names kinds = {"default", "vendor", "reference"};
    for (const std::string& kind : kinds)
      if (base::same_word(text, kind)) return kind;
    if (base::same_word(text, "impl")) return expected(kImpl);
    if (base::is_bare_word(text) && base::contains(text, '.'))
      return expected(fmt::format("impl:{}", text));
    return not_a_word(shape::kTokens.expected, text, kinds);
  }
  const std::string_view head = base::trim(text.substr(0, colon));
  const std::string_view name = base::trim(text.substr(colon + 1));
  if (base::same_word(head, "vendor"))
    return is_vendor_name(name) ? Result<std::string>(fmt::format("vendor:{}", name))
                                : expected("vendor:NAME, with the name of a vendor");
  if (base::same_word(head, "impl"))
    return base::is_bare_word(name) ? Result<std::string>(fmt::format("impl:{}", name))
                                    : expected(kImpl);
  return not_a_word("vendor:NAME or impl:ID", head, {"vendor", "impl"});
}

// Reads the tokens of one op, such as `vendor|default`.
Names read_order(const std::string& op, std::string_view text, Problems& to) {
  Names order;
  for (const std::string_view word : base::split(text, '|')) {
    const auto token = read_token(word);
    if (!token.ok())
      add(to, "{} in the order of {} is not a token; {}", base::excerpt(word), op,
          token.status().message());
    else if (base::contains(order, *token))
      add(to, "the order of {} has {} twice; expected each token once", op, *token);
    else
      order.push_back(*token);
  }
  return order;
}

}  // namespace

std::string wanted(const ValueForm& form, const Names& keys) {
  if (form.shape->expected != nullptr) return form.shape->expected;
  const bool many = form.shape->many;
  if (!form.words.empty())
    return (many ? "one or several of " : "") +
           base::one_of({form.words.begin(), form.words.end()});
  if (form.is(shape::kWhole)) return "a whole number " + bounds(form);
  if (form.is(shape::kNumber)) return "a number " + bounds(form);
  if (form.is(shape::kDuration)) return "a time as 500ms or 30s, " + bounds(form);
  return "a map with " + base::one_of(keys) + (many ? ", or a list of such" : "");
}

Result<bool> read_switch(std::string_view text) {
  const auto is = [&](const char* word) { return base::same_word(text, word); };
  if (is("1") || is("on") || is("true") || is("yes")) return true;
  if (is("0") || is("off") || is("false") || is("no")) return false;
  return not_a_word("0/1, off/on, false/true or no/yes", text,
                    {"on", "off", "true", "false", "yes", "no"});
}

Result<size_t> read_word(std::string_view text, std::span<const char* const> words) {
  for (size_t i = 0; i < words.size(); ++i)
    if (base::same_word(text, words[i])) return i;
  const Names names(words.begin(), words.end());
  return not_a_word(base::one_of(names), text, names);
}

std::optional<std::chrono::nanoseconds> read_duration(std::string_view text) noexcept {
  double unit = 1e9;
  for (const Unit& u : kUnits) {
    const std::string_view name = u.name;
    if (!text.ends_with(name)) continue;
    const std::string_view head = base::trim(text.substr(0, text.size() - name.size()));
    if (!base::yaml_number(head)) continue;  // "ms" also ends with "s"
    unit = u.ns;
    text = head;
    break;
  }
  const auto number = base::yaml_number(text);
  if (!number || !std::isfinite(*number)) return std::nullopt;
  const double ns = std::round(*number * unit);
  if (std::abs(ns) > 9e18) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<int64_t>(ns));
}

std::string print_duration(std::chrono::nanoseconds d) {
  const Unit* unit = &kUnits[2];  // hours and minutes are printed in seconds
  while (d.count() % static_cast<int64_t>(unit->ns) != 0) ++unit;
  return fmt::format("{}{}", d.count() / static_cast<int64_t>(unit->ns), unit->name);
}

static Status not_wanted(const ValueForm& form) {
  return Status(Code::kParse, "expected " + wanted(form));
}
template <class N, class V>
static Status take(const std::optional<N>& number, double value, const ValueForm& form, V& to) {
  if (!number || !(value >= form.least && value <= form.most)) return not_wanted(form);
  to = *number;
  return {};
}

Status read_one(std::string_view text, const ValueForm& form, bool& to) {
  const auto on = read_switch(text);
  if (on.ok()) to = *on;
  return on.ok() ? Status() : not_wanted(form);
}
Status read_one(std::string_view text, const ValueForm& form, int64_t& to) {
  const auto n = base::yaml_whole_number(text);
  return take(n, static_cast<double>(n.value_or(0)), form, to);
}
Status read_one(std::string_view text, const ValueForm& form, double& to) {
  const auto n = base::yaml_number(text);
  return take(n, n.value_or(0), form, to);
}
Status read_one(std::string_view text, const ValueForm& form, std::chrono::nanoseconds& to) {
  const auto n = read_duration(text);
  return take(n, n ? static_cast<double>(n->count()) / 1e9 : 0, form, to);
}
Status read_one(std::string_view text, const ValueForm& form, std::string& to) {
  if (form.is(shape::kTokens)) {
    if (text.find('|') != text.npos)
      return Status(Code::kParse,
                    fmt::format("expected a list: [{}]", fmt::join(base::split(text, '|'), ", ")));
    const auto token = read_token(text);
    if (token.ok()) to = *token;
    return token.status();
  }
  if (form.words.empty() && !fits(text, *form.shape)) return not_wanted(form);
  to = text;
  if (form.words.empty()) return {};
  const auto word = read_word(text, form.words);
  if (word.ok()) to = form.words[*word];
  return word.ok() || !form.shape->many ? word.status() : not_wanted(form);
}

Names read_list(std::string_view text, const ValueForm& form, Problems& problems) {
  Names names;
  for (const std::string_view entry : base::split(text, ',')) {
    if (!fits(entry, *form.shape))
      add(problems, "expected {} with ',' between them, got {}", wanted(form),
          entry.empty() ? "an empty entry" : base::excerpt(entry));
    else if (!base::contains(names, entry))
      names.emplace_back(entry);
  }
  return names;
}

Orders read_orders(std::string_view text, Problems& problems) {
  Orders orders;
  for (const std::string_view entry : base::split(text, ';')) {
    const size_t equals = entry.find('=');
    const std::string op(base::trim(entry.substr(0, equals)));
    if (equals == std::string_view::npos || op.empty())
      add(problems, "expected OP=TOKEN|TOKEN with ';' between ops, got {}",
          entry.empty() ? "an empty entry" : base::excerpt(entry));
    else if (!fits(op, shape::kOneOp))
      add(problems, "{} is not the name of an op; expected lower-case letters, digits, '_' and '.'",
          base::excerpt(op));
    else if (orders.contains(op))
      add(problems, "{} has an order already; expected one entry for each op", op);
    else
      orders[op] = read_order(op, base::trim(entry.substr(equals + 1)), problems);
  }
  return orders;
}

static bool consists_of(std::string_view text, std::string_view chars) noexcept {
  return std::ranges::all_of(text, [&](char c) {
    for (size_t i = 0; i < chars.size(); ++i) {
      if (chars[i] == c) return true;
      if (i + 2 < chars.size() && chars[i + 1] == '-') {
        if (c >= chars[i] && c <= chars[i + 2]) return true;
        i += 2;
      }
    }
    return false;
  });
}

bool fits(std::string_view text, const Shape& shape) noexcept {
  return (shape.chars == nullptr || (!text.empty() && consists_of(text, shape.chars))) &&
         (shape.is == nullptr || shape.is(text));
}

bool is_vendor_name(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size(); i += base::utf8_length(text, i))
    if (base::utf8_length(text, i) == 0) return false;
  return !text.empty() && consists_of(text, "A-Za-z0-9_. \x80-\xff-");
}

bool is_function_glob(std::string_view text) noexcept {
  const size_t slash = text.find('/');
  return slash == text.npos ||
         (slash > 0 && slash + 1 < text.size() && text.find('/', slash + 1) == text.npos);
}

bool has_wildcard(std::string_view text) noexcept { return text.find_first_of("*?") != text.npos; }

std::string child_path(std::string parent, std::string_view key) {
  if (!fits(key, shape::kKernel) || key.size() > 120)
    return parent += "[" + base::excerpt(key) + "]";
  if (!parent.empty()) parent += '.';
  return parent += key;
}

std::string to_string(const Path& path, bool all) {
  if (path.up == nullptr) return {};
  std::string up = to_string(*path.up, all);
  if (!all && !path.known) return up;
  if (path.key.data() != nullptr) return child_path(std::move(up), path.key);
  return fmt::format("{}[{}]", up, path.index);
}

std::string suggestion(std::string_view name, const Names& known, std::string otherwise) {
  const std::string_view near = base::closest(name, known);
  return near.empty() ? std::move(otherwise) : fmt::format("did you mean '{}'?", near);
}

std::string advice(std::string_view word, const Names& known, const std::string& otherwise) {
  const bool few = !known.empty() && known.size() <= 12;
  return suggestion(word, known, few ? "expected " + base::one_of(known) : otherwise);
}

std::string_view near_miss(std::string_view word, const Names& known) {
  const std::string_view near = base::closest(word, known);
  const auto same = std::ranges::mismatch(word, near).in1 - word.begin();
  const size_t prefix = word.substr(0, static_cast<size_t>(same)).rfind('.') + 1;
  std::string a(word.substr(prefix)), b(near.substr(prefix));
  const bool similar = base::edit_distance(a, b) <= std::max<size_t>(1, a.size() / 3);
  if (!similar || a[0] != b[0]) return {};
  for (std::string* text : {&a, &b})
    std::erase_if(*text, [](char c) { return c >= '0' && c <= '9'; });
  return a != b ? near : std::string_view();
}

std::string shown(std::string_view text, bool quoted) {
  return !quoted && base::is_bare_word(text) && text.size() <= 80 ? std::string(text)
                                                                  : base::excerpt(text);
}

}  // namespace yard::policy
