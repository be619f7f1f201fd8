// SPDX-License-Identifier: Apache-2.0
// Policy values: merging, validation, text and notes of sources. Names of modes.
#include <fmt/format.h>
#include <yard/policy.h>

#include "policy/config_rows.h"
#include "policy/process.h"

namespace yard {

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

namespace {

// Indexed by Mode. All modes of the program are Mode::kProgram.
constexpr const char* kModeNames[] = {"auto",   "static",     "dynamic",
                                      "config", "hot_reload", "program"};
constexpr size_t kProgramMode = static_cast<size_t>(Mode::kProgram);
static_assert(std::size(kModeNames) == kProgramMode + 1);

template <class Enum>
const char* word_of(std::span<const char* const> words, Enum value) noexcept {
  const auto index = static_cast<size_t>(value);
  return index < words.size() ? words[index] : "?";
}

Status bad(std::string text) {
  return Status(Code::kInvalidArgument, "policy: " + std::move(text));
}

Status check_token(const std::string& op, const std::string& token) {
  const auto colon = token.find(':');
  const std::string head = token.substr(0, colon);
  if (colon == std::string::npos ? parse_kind(token).has_value()
                                 : (head == "vendor" || head == "impl") && colon + 1 < token.size())
    return {};
  return bad(fmt::format("per_op['{}'] holds '{}'; expected {}{}", op, token,
                         policy::shape::kTokens.expected,
                         base::did_you_mean(token, {"default", "vendor", "reference"})));
}

}  // namespace

const char* to_string(Policy::RetryInplace r) noexcept { return word_of(policy::kRetryWords, r); }
const char* to_string(CanaryRule::Check check) noexcept {
  return word_of(policy::kCheckWords, check);
}
const char* to_string(Mode m) noexcept { return word_of(kModeNames, m); }
std::optional<Mode> parse_mode(std::string_view text) noexcept {
  for (size_t i = 0; i < kProgramMode; ++i)
    if (text == kModeNames[i]) return static_cast<Mode>(i);
  return std::nullopt;
}

Policy merge(const Policy& weaker, const Policy& stronger) {
  Policy weak = weaker, strong = stronger;
  policy::merge_weaker(strong, weak);
  return strong;
}

Status validate(const Policy& p) {
  for (const auto& [op, order] : p.per_op) {
    if (op.empty()) return bad("per_op holds an order for no op");
    if (order.empty())
      return bad(fmt::format("per_op['{}'] is empty, which would leave no kernel", op));
    for (const std::string& token : order) YARD_RETURN_IF_ERROR(check_token(op, token));
  }
  for (const auto& [op, kernel] : p.locks)
    if (op.empty() || kernel.empty())
      return bad(fmt::format("the lock '{}' → '{}' lacks an op or a kernel", op, kernel));
  const std::pair<const char*, policy::Names> lists[] = {
      {"allow_vendors", p.allow_vendors.value_or(policy::Names())},
      {"deny_vendors", p.deny_vendors},
      {"allow_kernels", p.allow_kernels.value_or(policy::Names())},
      {"deny_kernels", p.deny_kernels},
      {"backends", base::keys(p.backends)},
      {"transforms", base::keys(p.transforms)}};
  for (const auto& [field, names] : lists)
    if (base::contains(names, "")) return bad(fmt::format("{} holds an empty name", field));
  return {};
}

std::string to_string(const Policy& policy) {
  std::string text;
  for (const Explanation::PolicyNote& n : policy::notes(policy, ""))
    text += (text.empty() ? "" : " ") + n.field + '=' + n.value;
  return text.empty() ? "nothing set" : text;
}

}  // namespace yard

// ---- Sources ----

namespace yard::policy {
namespace {

// Quotes text that looks like punctuation, so that only equal policies have equal text.
std::string quoted_word(const std::string& text) {
  return fits(text, {nullptr, "A-Za-z0-9_.:*?-"}) ? text : base::quote(text);
}

template <class M>
std::string note_text(const M& v, const ValueForm& form) {
  if constexpr (IsOptional<M>) {
    return note_text(*v, form);
  } else if constexpr (std::is_same_v<M, bool>) {
    return form.is(shape::kSwitches) ? (v ? "on" : "off") : (v ? "true" : "false");
  } else if constexpr (IsEnum<M>) {
    return to_string(v);
  } else if constexpr (IsList<M>) {
    std::string out;
    for (const std::string& word : v)
      out += (&word == v.data() ? "" : form.is(shape::kOpOrders) ? "|" : ",") + quoted_word(word);
    return out;
  } else {
    return quoted_word(v);
  }
}

}  // namespace

std::vector<Explanation::PolicyNote> notes(const Policy& p, const char* source) {
  std::vector<Explanation::PolicyNote> to;
  visit_fields<Policy>([&](const auto& row) {
    const auto& value = p.*row.member;
    if (!is_set(value)) return;
    using M = typename std::decay_t<decltype(row)>::Type;
    if constexpr (IsMap<M>) {
      for (const auto& [key, part] : value)
        to.push_back(
            {fmt::format("{}[{}]", row.name, quoted_word(key)), note_text(part, row.form), source});
    } else {
      to.push_back({row.name, note_text(value, row.form), source});
    }
  });
  return to;
}

std::vector<Explanation::PolicyNote> notes(std::span<const Source> sources) {
  std::vector<Explanation::PolicyNote> to;
  for (const Source& s : sources) {
    for (Explanation::PolicyNote& n : notes(*s.policy, s.name)) {
      const auto same = std::ranges::find(to, n.field, &Explanation::PolicyNote::field);
      if (same == to.end()) {
        to.push_back(std::move(n));
      } else if (n.field.starts_with("deny_")) {  // deny lists add up
        same->value += ',' + n.value;
        same->source += ", " + n.source;
      } else {
        *same = std::move(n);
      }
    }
  }
  return to;
}

Result<std::shared_ptr<const ProgramMode>> make_mode(std::string_view name, ModeProvider provider) {
  constexpr size_t kLongestName = 64;
  if (!fits(name, shape::kOneOp) || name.size() > kLongestName || name[0] < 'a' ||
      base::contains(name, '.'))
    return Status(Code::kInvalidArgument,
                  fmt::format("{} cannot be the name of a mode; expected at most {} lower-case "
                              "letters, digits and '_', a letter first",
                              base::excerpt(name), kLongestName));
  if (parse_mode(name) || name == to_string(Mode::kProgram))
    return Status(Code::kConflict,
                  fmt::format("'{}' is the name of a mode already; expected another", name));
  if (!provider.plan && !provider.kernel)
    return Status(
        Code::kInvalidArgument,
        fmt::format("mode '{}' has neither plan nor kernel; expected at least one", name));
  return std::make_shared<const ProgramMode>(
      ProgramMode{base::interned(name), std::move(provider)});
}

std::vector<std::string> mode_names(const Modes* modes) {
  std::vector<std::string> names(kModeNames, kModeNames + kProgramMode);
  if (modes != nullptr)
    for (const auto& [name, mode] : *modes) names.push_back(name);
  return names;
}

Status check_mode_name(std::string_view name, const Modes* modes) {
  if (parse_mode(name) || (modes != nullptr && modes->find(name) != modes->end())) return {};
  const std::vector<std::string> names = mode_names(modes);
  return Status(Code::kInvalidArgument,
                fmt::format("no mode is called {}; {}", base::excerpt(name),
                            suggestion(name, names, "expected " + base::one_of(names))));
}

}  // namespace yard::policy
