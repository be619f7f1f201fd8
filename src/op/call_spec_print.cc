// SPDX-License-Identifier: Apache-2.0
// From CallSpec to its canonical text: see call_spec.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "op/call_flags.h"
#include "op/call_spec.h"

namespace yard::op {
namespace {

std::string tensor_text(const TensorSpec& t, const Device* call_device) {
  std::string out = fmt::format("{}[{}", yard::to_string(t.dtype), fmt::join(t.shape, ","));
  if (!t.strides.empty()) out += fmt::format(";{}", fmt::join(t.strides, ","));
  out += ']';
  if (t.align != YARD_MAX_ALIGN) out += fmt::format("%{}", t.align);
  if (t.device && !(call_device && *t.device == *call_device)) out += "@" + to_string(*t.device);
  return out;
}

std::string label_text(const std::string& text) {
  return base::is_bare_word(text) ? text : base::quote(text);
}

struct Printer {
  const Device* call_device;
  std::string operator()(int64_t i) const { return std::to_string(i); }
  std::string operator()(double f) const { return base::format_double(f); }
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(const std::string& s) const { return base::quote(s); }
  std::string operator()(const Word& w) const { return w.text; }
  std::string operator()(const SameAs& s) const { return "&" + s.name; }
  std::string operator()(const TensorSpec& t) const { return tensor_text(t, call_device); }
  std::string operator()(const std::vector<TensorSpec>& list) const {
    std::string out;
    for (const TensorSpec& t : list) out += (out.empty() ? "" : ", ") + tensor_text(t, call_device);
    return "[" + out + "]";
  }
};

}  // namespace

bool operator==(const SpecValue& a, const SpecValue& b) {
  const auto* x = std::get_if<double>(&a.v);
  const auto* y = std::get_if<double>(&b.v);
  if (x && y) return *x == *y ? std::signbit(*x) == std::signbit(*y) : *x != *x && *y != *y;
  return a.v == b.v;
}

std::string to_string(const TensorSpec& tensor) { return tensor_text(tensor, nullptr); }
std::string to_string(const SpecValue& value) { return std::visit(Printer{nullptr}, value.v); }

std::string to_string(const CallSpec& spec) {
  std::string out = spec.op + "(";
  bool first = true;
  for (const SpecArg& a : spec.args) {
    if (!first) out += ", ";
    first = false;
    if (!a.name.empty()) out += a.name + "=";
    out += std::visit(Printer{&spec.device}, a.value.v);
  }
  out += ")@" + to_string(spec.device);
  for (const auto& [name, bit] : kCallFlags)
    if ((spec.flags & bit) != 0) out += "+" + std::string(name);
  if (spec.labels.empty()) return out;
  out += '{';
  for (size_t i = 0; i < spec.labels.size(); ++i)
    out += (i > 0 ? ", " : "") + label_text(spec.labels[i].first) + "=" +
           label_text(spec.labels[i].second);
  return out + "}";
}

TensorSpec spec_of(const yard_tensor_t& t) {
  TensorSpec s;
  const uint64_t facts = t.facts != 0 ? t.facts : yard_facts(&t);
  s.dtype = from_dlpack(t.dtype);
  s.shape.assign(t.shape, t.shape + t.ndim);
  // Where facts say compact, strides say nothing more.
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

}  // namespace yard::op
