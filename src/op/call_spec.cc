// SPDX-License-Identifier: Apache-2.0
// Parses CallSpecs by recursive descent, and writes their canonical text.
#include "op/call_spec.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"
#include "op/facts.h"
#include "op/scanner.h"

namespace yard::op {
namespace {

// More than any op needs. Limits the memory that untrusted text can allocate.
constexpr size_t kMaxArgs = 64;
constexpr size_t kMaxList = 4096;

class CallSpecParser {
 public:
  explicit CallSpecParser(Scanner& in) : in_(in) {}

  bool call(CallSpec& c) {
    if (!in_.op_name(c.op) || !in_.expect('(', "after the name of the op")) return false;
    if (!in_.accept(')') &&
        !(in_.list([&] { return arg(c); }) && in_.expect(')', "or ',' after an argument")))
      return false;
    if (!tail(c)) return false;
    return in_.at_end() || in_.expected("'@device', '{labels}' or the end");
  }

  // Reads the line that a verbose runtime prints: yard,exec,OP,KERNEL,ARGUMENTS,hit,TIME
  bool verbose_line(CallSpec& c) {
    if (!skip_field() || !skip_field() || !in_.op_name(c.op) || !in_.accept(',') || !skip_field())
      return in_.expected(
          "the line of a verbose runtime, 'yard,exec,OP,KERNEL,ARGUMENTS,hit,TIME'");
    while (!in_.at_end() && in_.peek() != ',' && in_.peek() != '@')
      if (!arg(c)) return false;
    if (!tail(c)) return false;
    return (in_.accept(',') && skip_field()) || in_.expected("',hit,TIME' after the arguments");
  }

 private:
  // Skips the text before the next comma, and the comma.
  bool skip_field() {
    while (in_.peek() != ',' && !in_.at_end()) in_.advance(1);
    return in_.accept(',');
  }

  bool tail(CallSpec& c) {
    if (in_.accept('@') && !(device(c.device) && flags(c.flags))) return false;
    if (in_.accept('{') && !labels(c.labels)) return false;
    // A tensor keeps its device only if it differs from the call's device.
    for (SpecArg& a : c.args)
      for (TensorSpec& t : tensors_of(a.value))
        if (t.device == c.device) t.device.reset();
    return true;
  }

  bool arg(CallSpec& c) {
    const size_t start = in_.at();
    if (c.args.size() == kMaxArgs) return in_.fail("more than {} arguments", kMaxArgs);
    SpecArg a;
    const bool named = !in_.word().empty() && in_.accept('=');
    in_.seek(start);
    if (named) {
      if (!in_.name("a parameter name", a.name) || !in_.accept('=')) return false;
      for (const SpecArg& other : c.args)
        if (other.name == a.name) return in_.fail_at(start, "argument '{}' is given twice", a.name);
    } else if (!c.args.empty() && !c.args.back().name.empty()) {
      return in_.fail("a positional argument cannot follow one given by name");
    }
    if (!value(a.value)) return false;
    c.args.push_back(std::move(a));
    return true;
  }

  bool value(SpecValue& v) {
    if (in_.at_number()) {
      Scanner::Number n;
      if (!in_.number(n)) return false;
      if (n.is_float)
        v.v = n.f;
      else
        v.v = n.i;
      return true;
    }
    if (in_.peek() == '"') return in_.quoted(v.v.emplace<std::string>());
    if (in_.accept('&')) return in_.name("a parameter name after '&'", v.v.emplace<SameAs>().name);
    if (in_.accept('[')) return list(v);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const size_t start = in_.at();
    const bool minus = in_.accept('-');
    const std::string_view w = in_.word();
    if (w == "inf") {
      v.v = minus ? -kInfinity : kInfinity;
    } else if (minus || w.empty()) {
      in_.seek(start);
      return in_.expected("a tensor (f32[2,3]), a number, a string, a word, '[' or '&'");
    } else if (in_.peek() == '[') {
      in_.seek(start);
      return tensor(v.v.emplace<TensorSpec>());
    } else if (w == "nan") {
      v.v = std::numeric_limits<double>::quiet_NaN();
    } else if (w == "true" || w == "false") {
      v.v = w == "true";
    } else {
      v.v = Word{std::string(w)};
    }
    return true;
  }

  bool list(SpecValue& v) {
    auto& tensors = v.v.emplace<std::vector<TensorSpec>>();
    if (in_.accept(']')) return true;
    const auto item = [&] {
      if (tensors.size() == kMaxList) return in_.fail("more than {} tensors", kMaxList);
      return tensor(tensors.emplace_back());
    };
    return in_.list(item) && in_.expect(']', "or ',' after a tensor of a list");
  }

  bool tensor(TensorSpec& t) {
    if (!in_.dtype(t.dtype) || !in_.expect('[', "and a shape after the dtype")) return false;
    if (in_.peek() != ']' && !sizes(t.shape, false)) return false;
    const size_t semicolon = in_.at();
    if (in_.accept(';')) {
      if (!sizes(t.strides, true)) return false;
      if (t.strides.size() != t.shape.size())
        return in_.fail_at(semicolon, "{} sizes, but {} strides", t.shape.size(), t.strides.size());
    }
    if (!in_.expect(']', "or ',' after a size")) return false;
    if (in_.raw() == '%' && !align(t)) return false;
    return in_.raw() != '@' || (in_.accept('@') && device(t.device.emplace()));
  }

  bool sizes(std::vector<int64_t>& out, bool strides) {
    return in_.list([&] {
      const size_t start = in_.at();
      if (out.size() == YARD_MAX_RANK) return in_.fail("more than {} dimensions", YARD_MAX_RANK);
      int64_t& n = out.emplace_back();
      if (!in_.integer(strides ? "a stride" : "a size", n)) return false;
      return n >= 0 || strides || in_.fail_at(start, "a size is not negative");
    });
  }

  bool align(TensorSpec& t) {
    in_.accept('%');
    const size_t start = in_.at();
    int64_t n = 0;
    if (!in_.integer("an alignment in bytes", n)) return false;
    if (n < 1 || n > YARD_MAX_ALIGN || (n & (n - 1)) != 0)
      return in_.fail_at(start, "an alignment is 1, 2, 4, 8, 16, 32 or 64");
    t.align = static_cast<uint32_t>(n);
    return true;
  }

  bool device(Device& d) {
    const size_t start = in_.at();
    std::string text(in_.word());
    if (!text.empty() && in_.raw() == ':') do {
        text += in_.raw();
        in_.advance(1);
      } while (in_.raw() >= '0' && in_.raw() <= '9');
    if (const auto parsed = parse_device(text)) {
      d = *parsed;
      return true;
    }
    in_.seek(start);
    return in_.expected("a device (cpu, cuda:1)",
                        base::did_you_mean(text.substr(0, text.find(':')),
                                           {"cpu", "cuda", "cuda_host", "vulkan", "metal",
                                            "cuda_managed", "rocm", "oneapi"}));
  }

  bool flags(uint32_t& out) {
    while (in_.raw() == '+') {
      in_.advance(1);
      const std::string_view w = in_.peek_word();
      const auto* const flag =
          std::ranges::find(kCallFlags, w, &std::pair<std::string_view, uint32_t>::first);
      if (flag == std::end(kCallFlags)) {
        std::vector<std::string> known;
        for (const auto& f : kCallFlags) known.emplace_back(f.first);
        return in_.expected("a flag (" + base::one_of(known) + ")", base::did_you_mean(w, known));
      }
      if ((out & flag->second) != 0) return in_.fail("flag '{}' is repeated", w);
      out |= flag->second;
      in_.word();
    }
    return true;
  }

  bool labels(Labels& out) {
    const auto label = [&] {
      std::string name, value;
      const size_t start = in_.at();
      if (!label_text(name) || !in_.expect('=', "after the name of a label") || !label_text(value))
        return false;
      if (base::contains(base::keys(out), name))
        return in_.fail_at(start, "label '{}' is given twice", name);
      out.emplace_back(std::move(name), std::move(value));
      return true;
    };
    return in_.list(label) && in_.expect('}', "or ',' after a label");
  }

  bool label_text(std::string& out) {
    if (in_.peek() == '"') return in_.quoted(out);
    for (char c = in_.raw(); base::is_bare_word({&c, 1}); c = in_.raw()) {
      out += c;
      in_.advance(1);
    }
    return !out.empty() || in_.expected("a word or a string");
  }

  Scanner& in_;
};

std::string tensor_text(const TensorSpec& t, const Device* call_device) {
  std::string out = fmt::format("{}[{}", yard::to_string(t.dtype), fmt::join(t.shape, ","));
  if (!t.strides.empty()) out += fmt::format(";{}", fmt::join(t.strides, ","));
  out += ']';
  if (t.align != YARD_MAX_ALIGN) out += fmt::format("%{}", t.align);
  if (t.device && !(call_device && *t.device == *call_device)) out += "@" + to_string(*t.device);
  return out;
}

struct Printer {
  const Device* call_device = nullptr;
  std::string operator()(int64_t i) const { return std::to_string(i); }
  std::string operator()(double f) const { return base::format_double(f); }
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(const std::string& s) const { return base::quote(s); }
  std::string operator()(const Word& w) const { return w.text; }
  std::string operator()(const SameAs& s) const { return "&" + s.name; }
  std::string operator()(const TensorSpec& t) const { return tensor_text(t, call_device); }
  std::string operator()(const std::vector<TensorSpec>& list) const {
    std::vector<std::string> tensors;
    for (const TensorSpec& t : list) tensors.push_back((*this)(t));
    return fmt::format("[{}]", fmt::join(tensors, ", "));
  }
};

}  // namespace

Result<CallSpec> parse_call_spec(std::string_view text) {
  Scanner in(text, "call");
  CallSpecParser parser(in);
  CallSpec c;
  const bool good = text.starts_with("yard,") ? parser.verbose_line(c) : parser.call(c);
  if (!good) return in.take_status();
  return c;
}

bool operator==(const SpecValue& a, const SpecValue& b) {
  const auto* x = std::get_if<double>(&a.v);
  const auto* y = std::get_if<double>(&b.v);
  if (x && y) return *x == *y ? std::signbit(*x) == std::signbit(*y) : *x != *x && *y != *y;
  return a.v == b.v;
}

std::string to_string(const TensorSpec& tensor) { return tensor_text(tensor, nullptr); }
std::string to_string(const SpecValue& value) { return std::visit(Printer(), value.v); }

std::string to_string(const CallSpec& spec) {
  std::vector<std::string> args, labels;
  for (const SpecArg& a : spec.args)
    args.push_back(a.name + (a.name.empty() ? "" : "=") +
                   std::visit(Printer{&spec.device}, a.value.v));
  std::string out =
      fmt::format("{}({})@{}", spec.op, fmt::join(args, ", "), to_string(spec.device));
  for (const auto& [name, bit] : kCallFlags)
    if ((spec.flags & bit) != 0) out += fmt::format("+{}", name);
  const auto word = [](const std::string& text) {
    return base::is_bare_word(text) ? text : base::quote(text);
  };
  for (const auto& [name, value] : spec.labels) labels.push_back(word(name) + "=" + word(value));
  return labels.empty() ? out : out + fmt::format("{{{}}}", fmt::join(labels, ", "));
}

double shortest_float(double v) {
  if (!(std::abs(v) <= double{std::numeric_limits<float>::max()})) return v;
  const auto narrow = static_cast<float>(v);
  if (double{narrow} != v) return v;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, narrow).ptr;
  std::from_chars(text, end, v);
  return v;
}

TensorSpec spec_of(const yard_tensor_t& t) {
  const uint64_t facts = t.facts != 0 ? t.facts : facts_of(&t);
  TensorSpec s{from_dlpack(t.dtype), {t.shape, t.shape + t.ndim}};
  // Strides of a compact tensor follow from its shape.
  if ((facts & YARD_FACTS_COMPACT) == 0 && t.strides)
    s.strides.assign(t.strides, t.strides + t.ndim);
  s.align = 1u << ((facts & YARD_FACTS_ALIGN) >> YARD_FACTS_ALIGN_SHIFT);
  s.device = Device{t.device.type, t.device.index};
  return s;
}

std::string brief(const yard_tensor_t& t) {
  std::string out = yard::to_string(from_dlpack(t.dtype));
  if (t.ndim < 0 || t.ndim > YARD_MAX_RANK || (t.ndim > 0 && !t.shape))
    return out + fmt::format("[rank {}]", t.ndim);
  return out + fmt::format("[{}]", fmt::join(t.shape, t.shape + t.ndim, ","));
}

std::string brief(const yard_value_t& v) {
  switch (v.tag) {
    case YARD_TAG_NONE: return "nothing";
    case YARD_TAG_TENSOR: return v.u.tensor ? "a tensor " + brief(*v.u.tensor) : "a null tensor";
    case YARD_TAG_INT: return fmt::format("the integer {}", v.u.i);
    case YARD_TAG_FLOAT: return "the number " + base::format_double(v.u.f);
    case YARD_TAG_BOOL: return v.u.i ? "true" : "false";
    case YARD_TAG_STRING: return v.u.string || v.count == 0 ? "a string" : "a null string";
    case YARD_TAG_LIST: return fmt::format("a list of {} tensors", v.count);
    default: return fmt::format("a value of unknown tag {}", v.tag);
  }
}

std::string verbose_arguments(const CallSpec& spec) {
  std::vector<std::string> words;
  for (const SpecArg& a : spec.args)
    words.push_back(a.name + (a.name.empty() ? "" : "=") + to_string(a.value));
  CallSpec rest = spec;
  rest.args.clear();
  words.push_back(to_string(rest).substr(spec.op.size() + 2));  // without the name and "()"
  if (words.back() == "@cpu") words.pop_back();
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace yard::op
