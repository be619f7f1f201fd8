// SPDX-License-Identifier: Apache-2.0
// Binding arguments to parameters: see bind.h.
#include "op/bind.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace yard::op {
namespace {

class Binder {
 public:
  Binder(const Program& program, Positional positional)
      : s_(program.schema()), positional_(positional) {
    out_.count = program.arg_count();
  }

  Result<Arguments> run(std::span<const Given> given) {
    size_t next = 0;
    for (const Given& g : given) {
      size_t i;
      if (g.name.empty()) {
        while (next < s_.params.size() && skipped(s_.params[next])) ++next;
        if (next == s_.params.size()) return surplus(given);
        i = next++;
      } else {
        const int found = s_.index_of(g.name);
        if (found < 0) return unknown(g.name);
        i = static_cast<size_t>(found);
      }
      if (set_[i]) return fail("argument '" + s_.params[i].name + "' is given twice");
      set_[i] = true;
      out_.index_of[static_cast<size_t>(&g - given.data())] = static_cast<uint8_t>(i);
      YARD_RETURN_IF_ERROR(put(i, g.value));
    }
    YARD_RETURN_IF_ERROR(fill());
    return out_;
  }

 private:
  Status fail(const std::string& message) const {
    return Status(Code::kInvalidArgument, s_.name + ": " + message);
  }
  bool skipped(const Param& p) const { return positional_ == Positional::kInputs && p.is_output(); }

  Status surplus(std::span<const Given> given) const {
    std::string names;
    for (const Param& p : s_.params)
      if (!skipped(p)) names += (names.empty() ? "" : ", ") + p.name;
    const auto n = std::ranges::count(given, std::string_view(), &Given::name);
    return fail(fmt::format("too many arguments: takes ({}), got {} by position", names, n));
  }

  Status unknown(std::string_view name) const {
    return fail(
        fmt::format("has no parameter '{}'{}", name, base::did_you_mean(name, s_.param_names())));
  }

  Status put(size_t i, yard_value_t v) {
    const Param& p = s_.params[i];
    if (p.kind == Kind::kFloat && v.tag == YARD_TAG_INT) v = scalar(static_cast<double>(v.u.i));
    if (p.kind == Kind::kEnum && (v.tag == YARD_TAG_STRING || v.tag == YARD_TAG_NONE)) {
      // The enumerator `none` is parsed as an absent argument.
      const std::string_view text =
          v.tag == YARD_TAG_NONE ? std::string_view("none") : std::string_view(v.u.string, v.count);
      const auto e = std::find(p.enumerators.begin(), p.enumerators.end(), text);
      if (e == p.enumerators.end())
        return fail(fmt::format("invalid argument '{}': expected {}, got '{}'{}", p.name,
                                base::one_of(p.enumerators), text,
                                base::did_you_mean(text, p.enumerators)));
      v = scalar(int64_t{e - p.enumerators.begin()});
    }
    out_.values[i] = v;
    return {};
  }

  Status fill() {
    for (size_t i = 0; i < s_.params.size(); ++i) {
      const Param& p = s_.params[i];
      if (set_[i] || p.optional || skipped(p)) continue;
      out_.values[i] = default_value(p);
      if (out_.values[i].tag == YARD_TAG_NONE)
        return fail(fmt::format("argument '{}' ({}) is missing", p.name, type_text(p)));
    }
    return {};
  }

  const Schema& s_;
  Positional positional_;
  Arguments out_;
  bool set_[YARD_MAX_ARGS]{};
};

}  // namespace

yard_value_t default_value(const Param& p) noexcept {
  if (const auto* i = std::get_if<int64_t>(&p.fallback)) return scalar(*i);
  if (const auto* f = std::get_if<double>(&p.fallback)) return scalar(*f);
  if (const auto* b = std::get_if<bool>(&p.fallback)) return scalar(*b);
  const auto* s = std::get_if<std::string>(&p.fallback);
  return s != nullptr ? scalar(std::string_view(*s)) : yard_value_t{};
}

Result<Arguments> bind(const Program& program, std::span<const Given> given,
                       Positional positional) {
  return Binder(program, positional).run(given);
}

}  // namespace yard::op
