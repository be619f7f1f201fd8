// SPDX-License-Identifier: Apache-2.0
#include "registry/changes.h"

#include <fmt/format.h>
#include <yard/detail/function.h>

#include <cstddef>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"

namespace yard::registry {
namespace {

constexpr size_t kMaxText = 64 * 1024;
constexpr uint32_t kMaxItems = 65536;

template <class... Args>
Status bad(fmt::format_string<Args...> text, Args&&... args) {
  return Status(Code::kInvalidArgument, fmt::format(text, std::forward<Args>(args)...));
}

// Copies a struct up to its stated size, and zeroes the rest.
template <class T>
Result<T> sized_copy(const T& from, size_t least, const char* what) {
  uint32_t size;
  std::memcpy(&size, &from, sizeof size);
  if (size < least || size > (1u << 20))
    return bad("{} descriptor states size {}; this version knows {} bytes and needs {}", what, size,
               sizeof(T), least);
  T to{};
  // Copy whole words: a size that ends inside a pointer must not leave half of the pointer.
  std::memcpy(static_cast<void*>(&to), &from, std::min<size_t>(size / 8 * 8, sizeof(T)));
  return to;
}

// Accepts UTF-8 of limited length without control characters. Reads null as an empty text.
Status read_text(const char* from, const char* what, std::string& to) {
  to.clear();
  if (from == nullptr) return {};
  const size_t n = strnlen(from, kMaxText + 1);
  if (n > kMaxText) return bad("{} is longer than {} bytes", what, kMaxText);
  to.assign(from, n);
  for (size_t i = 0, length; i < n; i += length) {
    length = base::utf8_length(to, i);
    if (length == 0) return bad("{} is not valid UTF-8", what);
    if (static_cast<unsigned char>(to[i]) < 0x20 && to[i] != '\n' && to[i] != '\t')
      return bad("{} holds a control character", what);
  }
  return {};
}

// Reads the name of a backend, kernel or plugin.
Status read_name(const char* from, const char* what, std::string& to) {
  YARD_RETURN_IF_ERROR(read_text(from, what, to));
  if (to.empty()) return bad("{} is missing", what);
  if (to.size() > 128) return bad("{} is longer than 128 characters", what);
  if (!base::is_bare_word(to))
    return bad("{} is '{}'; expected letters, digits, '_', '.' and '-'", what, to);
  return {};
}

Status check_list(const char* what, const void* list, uint32_t count, uint32_t most = kMaxItems) {
  if (count > most)
    return bad("{} {} stated, which is beyond reason; expected at most {}", count, what, most);
  if (count > 0 && list == nullptr) return bad("{} {} stated, none given", count, what);
  return {};
}

Status read_reasons(const char* const* from, uint32_t count, std::vector<std::string>& to) {
  YARD_RETURN_IF_ERROR(check_list("reasons", from, count));
  to.resize(count);
  for (uint32_t i = 0; i < count; ++i) YARD_RETURN_IF_ERROR(read_text(from[i], "a reason", to[i]));
  return {};
}

// The list ends with NULL.
Status read_fields(const char* const* from, const char* what, std::vector<std::string>& to) {
  to.clear();
  for (uint32_t i = 0; from != nullptr && from[i] != nullptr; ++i) {
    if (i >= YARD_MAX_ARGS * 4) return bad("{}: more than {} fields", what, i);
    YARD_RETURN_IF_ERROR(read_text(from[i], what, to.emplace_back()));
  }
  return {};
}

Status check_limit(const yard_limit_t& l, const std::string& field) {
  constexpr uint32_t kOfAField[] = {YARD_LIMIT_MIN,    YARD_LIMIT_MAX,    YARD_LIMIT_MULTIPLE,
                                    YARD_LIMIT_RANK,   YARD_LIMIT_EQUALS, YARD_LIMIT_ABSENT,
                                    YARD_LIMIT_PRESENT};
  if (l.kind < YARD_LIMIT_DTYPE || l.kind > YARD_LIMIT_PLAIN)
    return bad("limit of unknown kind {}", l.kind);
  if (base::contains(kOfAField, l.kind) && field.empty())
    return bad("limit of kind {} names no field", l.kind);
  if (l.kind == YARD_LIMIT_MULTIPLE && l.a <= 0)
    return bad("limit on '{}': a multiple of {} is invalid; expected a positive number", field,
               l.a);
  if (l.kind == YARD_LIMIT_ALIGN &&
      (l.a < 1 || l.a > YARD_MAX_ALIGN || !std::has_single_bit(static_cast<uint64_t>(l.a))))
    return bad("alignment {}: expected a power of two up to {}", l.a, YARD_MAX_ALIGN);
  if (l.kind == YARD_LIMIT_RANK && (l.a < 0 || l.b < l.a || l.b > YARD_MAX_RANK))
    return bad("rank between {} and {}: expected 0 to {}", l.a, l.b, YARD_MAX_RANK);
  if (l.kind == YARD_LIMIT_DTYPE && l.a == 0) return bad("a dtype limit with an empty mask");
  return {};
}

Status read_limits(const yard_kernel_t& d, Kernel& k) {
  YARD_RETURN_IF_ERROR(check_list("limits", d.limits, d.limit_count));
  k.limits.assign(d.limits, d.limits + d.limit_count);
  for (yard_limit_t& l : k.limits) {
    std::string field;
    YARD_RETURN_IF_ERROR(read_text(l.field, "the field of a limit", field));
    YARD_RETURN_IF_ERROR(check_limit(l, field));
    l.field = field.empty() ? nullptr : base::interned(field);
  }
  return {};
}

Result<std::shared_ptr<const op::Schema>> parse_own(const char* what, const std::string& text) {
  auto schema = op::parse_schema(fmt::format("{}({})", what, text));
  if (!schema.ok()) return bad("its {}_schema does not parse: {}", what, schema.status().message());
  return std::make_shared<const op::Schema>(*std::move(schema));
}

Status read_weights(const yard_kernel_t& d, Kernel& k) {
  YARD_RETURN_IF_ERROR(read_text(d.weights_schema, "its weights_schema", k.weights_text));
  if (k.weights_text.empty()) return {};
  if (d.load == nullptr) return bad("it has weights_schema but no load");
  YARD_ASSIGN_OR_RETURN(k.weights, parse_own("weights", k.weights_text));
  for (const op::Param& p : k.weights->params) {
    if (p.kind != op::Kind::kTensor || p.is_written())
      return bad("invalid weight '{}': expected a tensor that is read", p.name);
    k.needs_weights |= !p.optional;
  }
  return {};
}

Status read_state(const yard_kernel_t& d, Kernel& k) {
  YARD_RETURN_IF_ERROR(read_weights(d, k));
  YARD_RETURN_IF_ERROR(read_fields(d.state_fields, "state_fields", k.state_fields));
  YARD_RETURN_IF_ERROR(read_text(d.options_schema, "its options_schema", k.options_text));
  if ((d.create == nullptr) != (d.destroy == nullptr))
    return bad("it has {}", d.create != nullptr
                                ? "create but no destroy: its states would never end"
                                : "destroy but no create");
  if (d.create == nullptr) {
    const char* stray = d.load != nullptr             ? "load"
                        : d.prepare != nullptr        ? "prepare"
                        : !k.state_fields.empty()     ? "state_fields"
                        : d.state_bytes != nullptr    ? "state_bytes"
                        : d.options_schema != nullptr ? "options_schema"
                                                      : nullptr;
    return stray == nullptr ? Status() : bad("it has {} but no create", stray);
  }
  if (k.options_text.empty()) return {};
  YARD_ASSIGN_OR_RETURN(k.options, parse_own("options", k.options_text));
  for (const op::Param& p : k.options->params)
    if (p.is_tensor() || p.kind == op::Kind::kTensorList)
      return bad("its option '{}' is a tensor; tensors are given as weights", p.name);
  return {};
}

Status read_features(const yard_kernel_t& d, Kernel& k) {
  YARD_RETURN_IF_ERROR(read_text(d.features, "its features", k.features));
  for (const std::string_view word : base::split(k.features, ' ')) {
    if (word.empty()) continue;
    YARD_ASSIGN_OR_RETURN(auto feature, parse_needed_feature(word));
    k.needs.push_back(std::move(feature));
  }
  return {};
}

Status read_constant(const yard_param_t& d, op::ParamText& to) {
  to.constant = d.constant;
  switch (d.constant.tag) {
    case YARD_TAG_NONE:
    case YARD_TAG_INT:
    case YARD_TAG_FLOAT:
    case YARD_TAG_BOOL: to.constant.count = 0; return {};
    case YARD_TAG_STRING:
      if (d.constant.u.string == nullptr || d.constant.count > kMaxText)
        return bad("invalid constant: expected text of up to {} bytes", kMaxText);
      to.text.assign(d.constant.u.string, d.constant.count);
      return {};
    default: return bad("invalid constant of tag {}: expected a scalar", d.constant.tag);
  }
}

Status read_param(const yard_param_t& d, op::ParamText& to) {
  YARD_RETURN_IF_ERROR(read_text(d.source, "its source", to.source));
  YARD_RETURN_IF_ERROR(read_text(d.layout, "its layout", to.layout));
  to.flags = d.flags, to.dtypes = d.dtypes, to.align = d.align, to.pad = d.pad;
  constexpr uint32_t kKnown = YARD_PARAM_CONSTANT | YARD_PARAM_ROWS | YARD_PARAM_STRIDED;
  if ((d.flags & ~kKnown) != 0)
    return bad("flags {:#x}: this version knows {:#x}", d.flags, kKnown);
  if (!to.is_constant()) return {};
  if (!to.source.empty() || !to.layout.empty() || d.flags != YARD_PARAM_CONSTANT || d.dtypes != 0 ||
      d.align != 0 || d.pad != 0)
    return bad("a constant has no source, layout, dtypes, alignment or padding");
  return read_constant(d, to);
}

Status read_params(const yard_kernel_t& d, Kernel& k) {
  YARD_RETURN_IF_ERROR(check_list("parameters", d.params, d.param_count, YARD_MAX_ARGS));
  for (uint32_t i = 0; i < d.param_count; ++i) {
    if (d.params[i] == nullptr) return bad("parameter {} is NULL", i);
    YARD_ASSIGN_OR_RETURN(auto param,
                          sized_copy(*d.params[i], offsetof(yard_param_t, source), "parameter"));
    op::ParamText to;
    YARD_RETURN_IF_ERROR(read_name(param.name, "the name of a parameter", to.name));
    for (const op::ParamText& other : k.params)
      if (other.name == to.name) return bad("two parameters are called '{}'", to.name);
    if (Status s = read_param(param, to); !s)
      return std::move(s).note(fmt::format("in parameter '{}'", to.name));
    k.params.push_back(std::move(to));
  }
  return {};
}

Status read_its_backend(const char* from, const char* only_backend, std::string& to) {
  if (from == nullptr) from = only_backend;
  return from != nullptr ? read_name(from, "its backend", to) : bad("it names no backend");
}

Status read_kernel_body(const yard_kernel_t& d, const char* only_backend, Kernel& k) {
  YARD_RETURN_IF_ERROR(read_its_backend(d.backend, only_backend, k.backend_name));
  YARD_RETURN_IF_ERROR(read_text(d.summary, "its summary", k.summary));
  YARD_RETURN_IF_ERROR(read_features(d, k));
  YARD_RETURN_IF_ERROR(read_text(d.typed_signature, "its typed signature", k.typed_signature));
  YARD_RETURN_IF_ERROR(read_limits(d, k));
  YARD_RETURN_IF_ERROR(read_fields(d.verify_reads, "verify_reads", k.verify_reads));
  YARD_RETURN_IF_ERROR(read_fields(d.cost_reads, "cost_reads", k.cost_reads));
  YARD_RETURN_IF_ERROR(read_reasons(d.reasons, d.reason_count, k.reasons));
  if (d.run == nullptr) return bad("it has no run function");
  if (d.kind < YARD_KIND_DEFAULT || d.kind > YARD_KIND_REFERENCE)
    return bad("kind {} is none of default (1), vendor (2), reference (3)", d.kind);
  if (d.priority < 0 || d.priority > 1000)
    return bad("priority {} is outside 1 to 1000 (0 means the kind's)", d.priority);
  if (d.cost != nullptr && k.cost_reads.empty())
    return bad("it has a cost function but names no field in cost_reads");
  if (d.typed != nullptr && k.typed_signature.empty() && d.typed_signature == nullptr)
    return bad("it has a typed entry but no typed_signature");
  YARD_RETURN_IF_ERROR(read_state(d, k));
  return read_params(d, k);
}

Status read_backend_body(const yard_backend_t& d, Backend& b) {
  YARD_RETURN_IF_ERROR(read_text(d.vendor, "its vendor", b.vendor));
  YARD_RETURN_IF_ERROR(read_text(d.summary, "its summary", b.summary));
  YARD_RETURN_IF_ERROR(read_text(d.env, "its switch variable", b.env));
  YARD_RETURN_IF_ERROR(read_reasons(d.reasons, d.reason_count, b.reasons));
  if (d.enable < YARD_ENABLE_AUTO || d.enable > YARD_ENABLE_OFF)
    return bad("enable {} is none of auto (0), on (1), off (2)", d.enable);
  if (d.device_type < 0 || d.device_type > 31)
    return bad("device type {} is outside 0 to 31", d.device_type);
  return {};
}

Status read_function_body(const yard_function_t& d, const char* only_backend, Function& f) {
  YARD_RETURN_IF_ERROR(read_name(d.group, "its group", f.group));
  YARD_RETURN_IF_ERROR(read_its_backend(d.backend, only_backend, f.backend));
  if (f.backend == detail::kOriginal)
    return bad("its backend is called 'original', which is what the function's own body is called");
  YARD_RETURN_IF_ERROR(read_text(d.signature, "its signature", f.signature));
  if (f.signature.empty()) return bad("it has no signature");
  if (f.signature.find_first_of("\n\t") != f.signature.npos)
    return bad("its signature has more than one line");
  if (d.function == nullptr) return bad("it has no function");
  constexpr uint32_t kKnown =
      YARD_FUNCTION_LOWER_FIRST | YARD_FUNCTION_NEXT | YARD_FUNCTION_FAILS_BEFORE_WRITING;
  if ((d.flags & ~kKnown) != 0)
    return bad("flags {:#x}: this version knows {:#x}", d.flags, kKnown);
  if (d.priority < -1000 || d.priority > 1000)
    return bad("priority {} is outside -1000 to 1000", d.priority);
  return read_reasons(d.reasons, d.reason_count, f.reasons);
}

template <class Add, class D, class Read>
Status read_list(const char* what, const D* const* list, uint32_t count, std::vector<Step>& steps,
                 const Read& read) {
  YARD_RETURN_IF_ERROR(check_list(what, list, count));
  for (uint32_t i = 0; i < count; ++i) {
    if (list[i] == nullptr) return bad("{}[{}] is NULL", what, i);
    YARD_ASSIGN_OR_RETURN(auto record, read(*list[i]));
    steps.push_back(Add{std::move(record)});
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Op>> read_op(const yard_op_t& given, std::shared_ptr<void> keep) {
  YARD_ASSIGN_OR_RETURN(auto d, sized_copy(given, offsetof(yard_op_t, summary), "op"));
  auto op = std::make_shared<Op>();
  std::string text;
  YARD_RETURN_IF_ERROR(read_text(d.schema, "the schema of an op", text));
  YARD_ASSIGN_OR_RETURN(auto program, op::Program::compile(text));
  op->program = std::make_shared<const op::Program>(std::move(program));
  op->name = op->program->name();
  if (std::ranges::none_of(op->program->schema().params, &op::Param::is_written))
    return bad(
        "op '{}' has no output: mark a tensor of its schema as written ('!') or "
        "as read and written ('~')",
        op->name);
  op->schema = op::to_string(op->program->schema());
  YARD_RETURN_IF_ERROR(read_text(d.summary, "the summary of an op", op->summary));
  if (Status s = check_list("tolerances", d.tolerances, d.tolerance_count); !s)
    return std::move(s).note(fmt::format("in op '{}'", op->name));
  op->tolerances.assign(d.tolerances, d.tolerances + d.tolerance_count);
  for (const yard_tolerance_t& t : op->tolerances)
    if (!(t.rtol >= 0) || !(t.atol >= 0) || t.dtype == 0 || t.dtype > YARD_U4 ||
        t.input > YARD_Q6_K)
      return bad("op '{}': a tolerance of rtol {}, atol {} for dtype {}, input {}", op->name,
                 t.rtol, t.atol, t.dtype, t.input);
  op->d = d;
  op->d.schema = op->d.summary = nullptr;
  op->d.tolerances = nullptr;
  op->keep = std::move(keep);
  return op;
}

Result<std::shared_ptr<Backend>> read_backend(const yard_backend_t& given,
                                              std::shared_ptr<void> keep) {
  YARD_ASSIGN_OR_RETURN(auto d, sized_copy(given, offsetof(yard_backend_t, vendor), "backend"));
  auto b = std::make_shared<Backend>();
  YARD_RETURN_IF_ERROR(read_name(d.name, "the name of a backend", b->name));
  if (Status s = read_backend_body(d, *b); !s)
    return std::move(s).note("in backend '" + b->name + "'");
  b->d = d;
  if (b->d.device_type == 0) b->d.device_type = 1;
  b->d.name = b->d.vendor = b->d.summary = b->d.env = nullptr;
  b->d.reasons = nullptr;
  b->keep = std::move(keep);
  return b;
}

Result<std::shared_ptr<Kernel>> read_kernel(const yard_kernel_t& given, std::shared_ptr<void> keep,
                                            const char* only_backend) {
  YARD_ASSIGN_OR_RETURN(auto d, sized_copy(given, offsetof(yard_kernel_t, summary), "kernel"));
  auto k = std::make_shared<Kernel>();
  YARD_RETURN_IF_ERROR(read_name(d.op, "the op of a kernel", k->op));
  YARD_RETURN_IF_ERROR(read_name(d.id, "the id of a kernel", k->id));
  if (Status s = read_kernel_body(d, only_backend, *k); !s)
    return std::move(s).note(fmt::format("in kernel '{}' of op '{}'", k->id, k->op));
  k->d = d;
  k->kind = static_cast<Kind>(d.kind);
  static constexpr int kByKind[] = {0, 150, 100, 50};  // default, vendor, reference
  k->priority = d.priority != 0 ? d.priority : kByKind[d.kind];
  k->reads_all = d.verify != nullptr && d.verify_reads == nullptr;
  k->d.op = k->d.id = k->d.backend = k->d.summary = k->d.features = k->d.typed_signature = nullptr;
  k->d.options_schema = k->d.weights_schema = nullptr;
  k->d.verify_reads = k->d.cost_reads = k->d.state_fields = k->d.reasons = nullptr;
  k->d.limits = nullptr;
  k->d.params = nullptr;
  k->keep = std::move(keep);
  return k;
}

Result<std::shared_ptr<Function>> read_function(const yard_function_t& given,
                                                std::shared_ptr<void> keep,
                                                const char* only_backend) {
  YARD_ASSIGN_OR_RETURN(auto d, sized_copy(given, offsetof(yard_function_t, verify), "function"));
  auto f = std::make_shared<Function>();
  YARD_RETURN_IF_ERROR(read_name(d.name, "the name of a function", f->name));
  if (Status s = read_function_body(d, only_backend, *f); !s)
    return std::move(s).note(fmt::format("in function '{}' of group '{}'", f->name, f->group));
  f->d = d;
  f->d.name = f->d.group = f->d.backend = f->d.signature = nullptr;
  f->d.reasons = nullptr;
  f->keep = std::move(keep);
  return f;
}

Status read_plugin(const yard_plugin_t& given, const std::shared_ptr<void>& keep,
                   std::vector<Step>& steps, Origin::From from) {
  YARD_ASSIGN_OR_RETURN(auto copied, sized_copy(given, offsetof(yard_plugin_t, version), "plugin"));
  const yard_plugin_t& d = copied;
  std::string name;
  YARD_RETURN_IF_ERROR(read_name(d.name, "the name of a plugin", name));
  if (d.abi > YARD_ABI_VERSION)
    return bad("it was made for ABI {}, this host knows {}", d.abi, YARD_ABI_VERSION)
        .note("in plugin '" + name + "'");
  const size_t first = steps.size();
  const auto read_all = [&]() -> Status {
    YARD_RETURN_IF_ERROR(
        read_list<AddBackend>("backends", d.backends, d.backend_count, steps,
                              [&](const yard_backend_t& b) { return read_backend(b, keep); }));
    const char* const only =
        d.backend_count == 1 ? std::get<AddBackend>(steps[first]).backend->name.c_str() : nullptr;
    YARD_RETURN_IF_ERROR(read_list<AddOp>("ops", d.ops, d.op_count, steps,
                                          [&](const yard_op_t& o) { return read_op(o, keep); }));
    YARD_RETURN_IF_ERROR(
        read_list<AddKernel>("kernels", d.kernels, d.kernel_count, steps,
                             [&](const yard_kernel_t& k) { return read_kernel(k, keep, only); }));
    return read_list<AddFunction>(
        "functions", d.functions, d.function_count, steps,
        [&](const yard_function_t& f) { return read_function(f, keep, only); });
  };
  if (Status s = read_all(); !s) return std::move(s).note("in plugin '" + name + "'");
  const Origin origin{from, from == Origin::From::kPlugin ? name : std::string()};
  for (size_t i = first; i < steps.size(); ++i) {
    if (const auto* o = std::get_if<AddOp>(&steps[i])) o->op->origin = origin;
    if (const auto* k = std::get_if<AddKernel>(&steps[i])) k->kernel->origin = origin;
  }
  return {};
}

}  // namespace yard::registry
