// SPDX-License-Identifier: Apache-2.0
#include "op/bind.h"

#include <fmt/format.h>

#include "base/results.h"
#include "base/text.h"

namespace yard::op {
namespace {

Status fail(const Schema& s, const std::string& message) {
  return Status(Code::kInvalidArgument, s.name + ": " + message);
}

// Converts integers to floats, and enumerators to their indices.
Result<yard_value_t> converted(const Schema& s, const Param& p, const yard_value_t& v) {
  if (p.kind == Kind::kFloat && v.tag == YARD_TAG_INT) return scalar(static_cast<double>(v.u.i));
  if (p.kind != Kind::kEnum || (v.tag != YARD_TAG_STRING && v.tag != YARD_TAG_NONE)) return v;
  // In a CallSpec, the enumerator `none` looks like an absent argument.
  const std::string_view text =
      v.tag == YARD_TAG_NONE ? std::string_view("none") : std::string_view(v.u.string, v.count);
  const auto e = std::ranges::find(p.enumerators, text);
  if (e != p.enumerators.end()) return scalar(int64_t{e - p.enumerators.begin()});
  return fail(
      s, fmt::format("invalid argument '{}': expected {}, got '{}'{}", p.name,
                     base::one_of(p.enumerators), text, base::did_you_mean(text, p.enumerators)));
}

}  // namespace

yard_value_t default_value(const Param& p) noexcept {
  const auto value = [](const auto& v) {
    if constexpr (std::is_constructible_v<Value, decltype(v)>)
      return scalar(v);
    else
      return yard_value_t{};
  };
  return std::visit(value, p.fallback);
}

Result<Arguments> bind(const Program& program, std::span<const Given> given,
                       Positional positional) {
  const Schema& s = program.schema();
  const auto skipped = [&](const Param& p) {
    return positional == Positional::kInputs && p.is_output();
  };
  Arguments to;
  to.count = program.arg_count();
  bool set[YARD_MAX_ARGS] = {};
  size_t next = 0;
  for (const Given& g : given) {
    while (next < s.params.size() && skipped(s.params[next])) ++next;
    const Param* const p = g.name.empty() ? s.params.data() + next++ : s.find(g.name);
    if (p == nullptr)
      return fail(s, fmt::format("has no parameter '{}'{}", g.name,
                                 base::did_you_mean(g.name, s.param_names())));
    const auto i = static_cast<size_t>(p - s.params.data());
    if (i >= s.params.size()) {
      std::vector<std::string> names = s.param_names();
      std::erase_if(names, [&](const std::string& name) { return skipped(*s.find(name)); });
      return fail(s, fmt::format("too many arguments: takes ({}), got {} by position",
                                 fmt::join(names, ", "),
                                 std::ranges::count(given, std::string_view(), &Given::name)));
    }
    if (set[i]) return fail(s, "argument '" + p->name + "' is given twice");
    set[i] = true;
    to.index_of[&g - given.data()] = static_cast<uint8_t>(i);
    YARD_ASSIGN_OR_RETURN(to.values[i], converted(s, *p, g.value));
  }
  for (size_t i = 0; i < s.params.size(); ++i) {
    const Param& p = s.params[i];
    if (set[i] || p.optional || skipped(p)) continue;
    to.values[i] = default_value(p);
    if (to.values[i].tag == YARD_TAG_NONE)
      return fail(s, fmt::format("argument '{}' ({}) is missing", p.name, type_text(p)));
  }
  return to;
}

}  // namespace yard::op
