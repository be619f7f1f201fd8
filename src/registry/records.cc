// SPDX-License-Identifier: Apache-2.0
#include "registry/records.h"

#include <fmt/format.h>
#include <yard/detail/guard.h>

#include <tuple>

#include "base/float_state.h"
#include "base/mutex.h"
#include "base/text.h"

namespace yard::registry {
namespace {

void add(std::string& to, std::string_view difference) {
  (to += to.empty() ? "" : ", ") += difference;
}

template <class T>
void compare(std::string& to, const char* what, const T& a, const T& b) {
  if (a == b) return;
  if constexpr (std::is_same_v<T, std::string>)
    add(to, fmt::format("{} '{}' and '{}'", what, a, b));
  else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string_view>)
    add(to, fmt::format("{} {} and {}", what, a, b));
  else
    add(to, fmt::format("different {}", what));
}

}  // namespace

std::string difference(const Backend& a, const Backend& b) {
  std::string d;
  compare(d, "vendor", a.vendor, b.vendor);
  compare(d, "summary", a.summary, b.summary);
  compare(d, "switch", a.env, b.env);
  compare(d, "device type", a.d.device_type, b.d.device_type);
  compare(d, "flags", a.d.flags, b.d.flags);
  compare(d, "enable", a.d.enable, b.d.enable);
  const auto functions = [](const yard_backend_t& x) {
    return std::tuple(x.probe, x.quiesce, x.reset, x.capture, x.self);
  };
  compare(d, "functions", functions(a.d), functions(b.d));
  compare(d, "reason texts", a.reasons, b.reasons);
  return d;
}

std::string difference(const Kernel& a, const Kernel& b) {
  std::string d;
  compare(d, "backend", a.backend_name, b.backend_name);
  compare(d, "kind", std::string_view(to_string(a.kind)), std::string_view(to_string(b.kind)));
  compare(d, "priority", a.priority, b.priority);
  compare(d, "flags", a.d.flags, b.d.flags);
  compare(d, "features", a.features, b.features);
  compare(d, "summary", a.summary, b.summary);
  compare(d, "typed signature", a.typed_signature, b.typed_signature);
  const auto parts = [](const yard_limit_t& l) { return std::tuple(l.kind, l.field, l.a, l.b); };
  if (!std::ranges::equal(a.limits, b.limits, {}, parts, parts)) add(d, "different limits");
  const auto functions = [](const yard_kernel_t& x) {
    return std::tuple(x.run, x.typed, x.self, x.verify, x.cost, x.workspace, x.create, x.load,
                      x.prepare, x.trace, x.destroy, x.state_bytes);
  };
  compare(d, "functions", functions(a.d), functions(b.d));
  if (!std::ranges::equal(a.params, b.params, op::same)) add(d, "different parameters of its own");
  compare(d, "options", a.options_text, b.options_text);
  compare(d, "weights", a.weights_text, b.weights_text);
  const auto reads = [](const Kernel& k) {
    return std::tie(k.verify_reads, k.cost_reads, k.state_fields, k.reads_all);
  };
  compare(d, "fields read", reads(a), reads(b));
  compare(d, "reason texts", a.reasons, b.reasons);
  return d;
}

std::string difference(const Function& a, const Function& b) {
  std::string d;
  compare(d, "signature", a.signature, b.signature);
  compare(d, "priority", a.d.priority, b.d.priority);
  compare(d, "flags", a.d.flags, b.d.flags);
  const auto functions = [](const yard_function_t& x) {
    return std::tuple(x.function, x.verify, x.self, x.samples);
  };
  compare(d, "functions", functions(a.d), functions(b.d));
  compare(d, "reason texts", a.reasons, b.reasons);
  return d;
}

std::string difference(const Op& a, const Op& b) {
  std::string d;
  compare(d, "schema", a.schema, b.schema);
  compare(d, "summary", a.summary, b.summary);
  const auto functions = [](const yard_op_t& x) {
    return std::tuple(x.infer, x.magnitude, x.self);
  };
  compare(d, "functions", functions(a.d), functions(b.d));
  const auto numbers = [](const yard_tolerance_t& t) {
    return std::tuple(t.dtype, t.input, t.rtol, t.atol);
  };
  if (!std::ranges::equal(a.tolerances, b.tolerances, {}, numbers, numbers))
    add(d, "different tolerances");
  return d;
}

std::string fill_in(std::string_view text, const int64_t figures[3]) {
  std::string out(text);
  for (size_t at = 0; (at = out.find('{', at)) != out.npos; ++at)
    for (const char* const mark : {"{0}", "{1}", "{2}"})
      if (out.compare(at, 3, mark) == 0) out.replace(at, 3, std::to_string(figures[mark[1] - '0']));
  return out;
}

std::string Origin::shown() const {
  if (from == From::kProgram) return "the program";
  return from == From::kBuiltIn ? "a built-in backend" : fmt::format("plugin '{}'", plugin);
}

const DeviceProbe& Backend::probe(Device device, const yard_host_t* host) const {
  for (const DeviceProbe& known : *probes)
    if (known.device == device) return known;
  auto made = std::make_unique<DeviceProbe>();
  made->device = device;
  int32_t code = YARD_OK;
  if (d.probe != nullptr) {
    const base::ForeignCode inside;
    const base::FloatState restored;
    try {
      code = d.probe(d.self, host, {device.type, device.index}, &made->why);
    } catch (...) {
      code = YARD_FAULT;
      made->text = base::current_exception_text();
    }
  }
  made->available = code == YARD_OK && made->why.reason == YARD_REASON_NONE;
  if (!made->available && made->text.empty() && made->why.reason >= YARD_REASON_OWN) {
    const auto i = static_cast<size_t>(made->why.reason - YARD_REASON_OWN);
    if (i < reasons.size()) made->text = fill_in(reasons[i], made->why.figures);
  }
  if (code != YARD_OK && made->text.empty() && made->why.reason == YARD_REASON_NONE)
    made->text = fmt::format("its probe returned {} and gave no reason", code);
  // Another thread may have been faster.
  return probes->find_or_append(std::move(made),
                                [](const auto& a, const auto& b) { return a.device == b.device; });
}

Status resolve_params(Kernel& k, const op::Program& program) {
  if (k.params.empty()) return {};
  std::vector<std::string> fixed = k.verify_reads;
  for (const op::Param& p : program.schema().params)
    if (k.reads_all) fixed.push_back(p.name);
  for (const yard_limit_t& l : k.limits)
    if (l.kind == YARD_LIMIT_ABSENT || l.kind == YARD_LIMIT_EQUALS) fixed.push_back(l.field);
  auto map = op::ArgumentMap::resolve(program, k.params, fixed);
  if (!map.ok())
    return std::move(map).status().note(fmt::format("in kernel '{}' of op '{}'", k.id, k.op));
  k.map = std::make_shared<const op::ArgumentMap>(*std::move(map));
  return {};
}

// Says how the signature of a typed entry differs from the kernel's parameters, or returns "".
std::string signature_mismatch(const Kernel& k, const op::Program& program) {
  const std::string_view found = k.typed_signature;
  const std::string_view expected = k.map != nullptr ? k.map->signature : program.signature();
  if (found == expected) return {};
  std::vector<std::string> names;
  if (k.map == nullptr) names = program.schema().param_names();
  for (size_t i = 0; k.map != nullptr && i < expected.size(); ++i)
    names.push_back(k.map->params[i].name);
  const auto at = static_cast<size_t>(std::ranges::mismatch(found, expected).in1 - found.begin());
  return fmt::format("its typed entry has signature '{}', expected '{}' for ({}): {}", found,
                     expected, fmt::join(names, ", "),
                     at == expected.size() ? fmt::format("{} too many", found.size() - at)
                     : at == found.size()  ? fmt::format("'{}' is missing", names[at])
                                           : fmt::format("'{}' is {}, expected {}", names[at],
                                                         found[at], expected[at]));
}

Status check_kernel(const Kernel& k, const Backend& backend, const op::Program& program) {
  const auto bad = [&](const std::string& what) {
    return Status(Code::kInvalidArgument,
                  fmt::format("kernel '{}' of op '{}': {}", k.id, k.op, what));
  };
  if (k.kind == Kind::kVendor && backend.vendor.empty())
    return bad(fmt::format("a kernel of kind vendor needs a vendor, and backend '{}' has none",
                           backend.name));
  const bool on_host = backend.d.device_type == Device{}.type;
  if (k.map != nullptr && on_host && (k.d.flags & YARD_KERNEL_ASYNC) != 0)
    for (const op::KernelParam& p : k.map->params)
      if (!p.requirements.empty())
        return bad(
            fmt::format("its parameter '{}' may need a transform, and it is asynchronous: results "
                        "would be copied before they are there",
                        p.name));
  if (k.d.typed != nullptr)
    if (const std::string wrong = signature_mismatch(k, program); !wrong.empty()) return bad(wrong);
  const auto unknown = [&](const std::string& field, const char* where) {
    std::vector<std::string> names = program.field_names();
    for (const op::Param& p : program.schema().params) names.push_back(p.name);
    return bad(fmt::format("{} names '{}', which is not a field of the op{}", where, field,
                           base::did_you_mean(field, names)));
  };
  for (const yard_limit_t& l : k.limits) {
    if (l.field == nullptr) continue;
    const std::string field = l.field;
    const bool integer = l.kind == YARD_LIMIT_MIN || l.kind == YARD_LIMIT_MAX ||
                         l.kind == YARD_LIMIT_MULTIPLE || l.kind == YARD_LIMIT_EQUALS;
    const bool known = integer ? program.field(field).has_value() : program.index_of(field) >= 0;
    if (!known) return unknown(field, "a limit");
    if (integer) continue;
    const op::Param& p = program.schema().params[static_cast<size_t>(program.index_of(field))];
    const bool optional = l.kind == YARD_LIMIT_ABSENT || l.kind == YARD_LIMIT_PRESENT;
    if (optional ? !p.optional : !p.is_tensor())
      return bad(fmt::format("a limit needs '{}' to be {}, which it is not", field,
                             optional ? "optional" : "a tensor"));
  }
  for (const std::string& f : k.verify_reads)
    if (!program.field(f) && program.index_of(f) < 0) return unknown(f, "verify_reads");
  for (const std::string& f : k.cost_reads)
    if (!program.field(f)) return unknown(f, "cost_reads");
  for (const std::string& f : k.state_fields)
    if (!program.field(f)) return unknown(f, "state_fields");
  return {};
}

}  // namespace yard::registry
