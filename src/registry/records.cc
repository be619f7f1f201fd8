// SPDX-License-Identifier: Apache-2.0
#include "registry/records.h"
#include "base/text.h"

#include <fmt/format.h>
#include <yard/detail/guard.h>

#include <algorithm>

#include "base/float_state.h"

namespace yard::registry {
namespace {

template <class T>
void add_difference(std::string& to, const char* what, const T& a, const T& b) {
  if (!to.empty()) to += ", ";
  to += fmt::format("{} {} and {}", what, a, b);
}

void add_text(std::string& to, const char* what, const std::string& a, const std::string& b) {
  if (a != b) add_difference(to, what, "'" + a + "'", "'" + b + "'");
}

// For members without text: functions, tables.
void add_note(std::string& to, const char* what, bool differs) {
  if (!differs) return;
  if (!to.empty()) to += ", ";
  to += what;
}

bool same_limits(const Kernel& a, const Kernel& b) {
  if (a.limits.size() != b.limits.size()) return false;
  for (size_t i = 0; i < a.limits.size(); ++i) {
    const yard_limit_t &x = a.limits[i], &y = b.limits[i];
    if (x.kind != y.kind || x.a != y.a || x.b != y.b || a.limit_fields[i] != b.limit_fields[i])
      return false;
  }
  return true;
}

}  // namespace

std::string difference(const Backend& a, const Backend& b) {
  std::string d;
  add_text(d, "vendor", a.vendor, b.vendor);
  add_text(d, "summary", a.summary, b.summary);
  add_text(d, "switch", a.env, b.env);
  if (a.d.device_type != b.d.device_type)
    add_difference(d, "device type", a.d.device_type, b.d.device_type);
  if (a.d.flags != b.d.flags) add_difference(d, "flags", a.d.flags, b.d.flags);
  if (a.d.enable != b.d.enable) add_difference(d, "enable", a.d.enable, b.d.enable);
  add_note(d, "different functions",
           a.d.probe != b.d.probe || a.d.quiesce != b.d.quiesce || a.d.reset != b.d.reset ||
               a.d.capture != b.d.capture || a.d.self != b.d.self);
  add_note(d, "different reason texts", a.reasons != b.reasons);
  return d;
}

std::string difference(const Kernel& a, const Kernel& b) {
  std::string d;
  add_text(d, "backend", a.backend_name, b.backend_name);
  if (a.kind != b.kind) add_difference(d, "kind", to_string(a.kind), to_string(b.kind));
  if (a.priority != b.priority) add_difference(d, "priority", a.priority, b.priority);
  if (a.d.flags != b.d.flags) add_difference(d, "flags", a.d.flags, b.d.flags);
  add_text(d, "features", a.features, b.features);
  add_text(d, "summary", a.summary, b.summary);
  add_text(d, "typed signature", a.typed_signature, b.typed_signature);
  add_note(d, "different limits", !same_limits(a, b));
  add_note(d, "different functions",
           a.d.run != b.d.run || a.d.typed != b.d.typed || a.d.self != b.d.self ||
               a.d.verify != b.d.verify || a.d.cost != b.d.cost || a.d.workspace != b.d.workspace ||
               a.d.create != b.d.create || a.d.load != b.d.load || a.d.prepare != b.d.prepare ||
               a.d.trace != b.d.trace || a.d.destroy != b.d.destroy ||
               a.d.state_bytes != b.d.state_bytes);
  add_note(d, "different parameters of its own",
           !std::equal(a.params.begin(), a.params.end(), b.params.begin(), b.params.end(),
                       [](const auto& x, const auto& y) { return op::same(x, y); }));
  add_text(d, "options", a.options_text, b.options_text);
  add_text(d, "weights", a.weights_text, b.weights_text);
  add_note(d, "different fields read",
           a.verify_reads != b.verify_reads || a.cost_reads != b.cost_reads ||
               a.state_fields != b.state_fields || a.reads_all != b.reads_all);
  add_note(d, "different reason texts", a.reasons != b.reasons);
  return d;
}

std::string difference(const Function& a, const Function& b) {
  std::string d;
  add_text(d, "signature", a.signature, b.signature);
  if (a.d.priority != b.d.priority) add_difference(d, "priority", a.d.priority, b.d.priority);
  if (a.d.flags != b.d.flags) add_difference(d, "flags", a.d.flags, b.d.flags);
  add_note(d, "different functions",
           a.d.function != b.d.function || a.d.verify != b.d.verify || a.d.self != b.d.self ||
               a.d.samples != b.d.samples);
  add_note(d, "different reason texts", a.reasons != b.reasons);
  return d;
}

bool same(const Backend& a, const Backend& b) {
  return a.name == b.name && difference(a, b).empty();
}
bool same(const Kernel& a, const Kernel& b) {
  return a.op == b.op && a.id == b.id && difference(a, b).empty();
}
bool same(const Function& a, const Function& b) {
  return a.name == b.name && a.group == b.group && a.backend == b.backend &&
         difference(a, b).empty();
}
bool same(const Op& a, const Op& b) {
  return a.schema == b.schema && a.summary == b.summary && a.d.infer == b.d.infer &&
         a.d.magnitude == b.d.magnitude && a.d.self == b.d.self &&
         a.tolerances.size() == b.tolerances.size() &&
         std::equal(a.tolerances.begin(), a.tolerances.end(), b.tolerances.begin(),
                    [](const yard_tolerance_t& x, const yard_tolerance_t& y) {
                      return x.dtype == y.dtype && x.input == y.input && x.rtol == y.rtol &&
                             x.atol == y.atol;
                    });
}

std::string fill_in(std::string_view text, const int64_t figures[3]) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' && i + 2 < text.size() && text[i + 2] == '}' && text[i + 1] >= '0' &&
        text[i + 1] <= '2') {
      out += std::to_string(figures[text[i + 1] - '0']);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string Origin::shown() const {
  if (from == From::kProgram) return "the program";
  return from == From::kBuiltIn ? "a built-in backend" : fmt::format("plugin '{}'", plugin);
}

void Kernel::link() {
  for (size_t i = 0; i < limits.size(); ++i)
    limits[i].field = limit_fields[i].empty() ? nullptr : limit_fields[i].c_str();
  d.op = op.c_str(), d.id = id.c_str(), d.backend = backend_name.c_str();
  d.summary = summary.c_str(), d.features = features.c_str();
  d.typed_signature = typed_signature.c_str();
  d.limits = limits.data();
  // They are strings of the record; pointers to the caller's memory must not remain.
  d.verify_reads = d.cost_reads = d.reasons = d.state_fields = nullptr;
  d.params = nullptr, d.options_schema = d.weights_schema = nullptr;
}

const DeviceProbe& Backend::probe(Device device, const yard_host_t* host) const {
  for (const DeviceProbe& known : probes_)
    if (known.device == device) return known;
  auto made = std::make_unique<DeviceProbe>();
  made->device = device;
  int32_t code = YARD_OK;
  if (d.probe != nullptr) {
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
  // Another thread may have been first.
  return probes_.find_or_append(std::move(made),
                                [](const auto& a, const auto& b) { return a.device == b.device; });
}

Status resolve_params(Kernel& k, const op::Program& program) {
  if (k.params.empty()) return {};
  std::vector<std::string> fixed = k.verify_reads;
  for (const op::Param& p : program.schema().params)
    if (k.reads_all) fixed.push_back(p.name);
  for (size_t i = 0; i < k.limits.size(); ++i)
    if (k.limits[i].kind == YARD_LIMIT_ABSENT || k.limits[i].kind == YARD_LIMIT_EQUALS)
      fixed.push_back(k.limit_fields[i]);
  auto map = op::ArgumentMap::resolve(program, k.params, fixed);
  if (!map.ok())
    return std::move(map).status().note(fmt::format("in kernel '{}' of op '{}'", k.id, k.op));
  k.map = std::make_shared<const op::ArgumentMap>(*std::move(map));
  return {};
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
  const std::string_view signature = k.map != nullptr ? k.map->signature : program.signature();
  if (k.d.typed != nullptr && k.typed_signature != signature)
    return bad(fmt::format("its typed entry has signature '{}', {} is '{}'", k.typed_signature,
                           k.map != nullptr ? "that of its parameters" : "the op's", signature));
  const auto unknown = [&](const std::string& field, const char* where) {
    std::vector<std::string> names = program.field_names();
    for (const op::Param& p : program.schema().params) names.push_back(p.name);
    return bad(fmt::format("{} names '{}', which is no field of the op{}", where, field,
                           base::did_you_mean(field, names)));
  };
  for (size_t i = 0; i < k.limits.size(); ++i) {
    const std::string& field = k.limit_fields[i];
    if (field.empty()) continue;
    const uint32_t kind = k.limits[i].kind;
    const bool integer = kind == YARD_LIMIT_MIN || kind == YARD_LIMIT_MAX ||
                         kind == YARD_LIMIT_MULTIPLE || kind == YARD_LIMIT_EQUALS;
    const bool known = integer ? program.field(field).has_value() : program.index_of(field) >= 0;
    if (!known) return unknown(field, "a limit");
    if (integer) continue;
    const op::Param& p = program.schema().params[static_cast<size_t>(program.index_of(field))];
    const bool optional = kind == YARD_LIMIT_ABSENT || kind == YARD_LIMIT_PRESENT;
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
