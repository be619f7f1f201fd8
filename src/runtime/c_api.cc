// SPDX-License-Identifier: Apache-2.0
// The C interface. No exception leaves these functions; null pointers are errors.
#include <yard/bound.h>
#include <yard/c.h>
#include <yard/runtime.h>
#include <yard/version.h>

#include <algorithm>
#include <cstring>

#include "base/results.h"
#include "base/text.h"
#include "dispatch/call.h"
#include "op/facts.h"
#include "rules/rules.h"
#include "runtime/host.h"

struct yard_instance {
  yard::Instance made;
};

struct yard_handle {
  yard::detail::BoundKernel bound;
  std::shared_ptr<const yard::op::Program> program;
  uint32_t absent = 0;  // bit n: argument n was absent
};

struct yard_scope {
  explicit yard_scope(yard::Scope s) : in(std::move(s)) {}
  yard::ScopedPolicy in;
  yard_scope* const outer = innermost;

  static constinit thread_local yard_scope* innermost;
};
constinit thread_local yard_scope* yard_scope::innermost = nullptr;

namespace yard {
namespace {

using base::invalid;
using runtime::guarded;

detail::Site* site_of(yard_op_ref_t* ref) { return reinterpret_cast<detail::Site*>(ref); }

Status check(const void* subject, const char* what, const void* array = nullptr, uint32_t count = 0,
             const char* array_name = "the argument array") {
  if (subject == nullptr) return invalid("{} is NULL", what);
  if (array == nullptr && count > 0) return invalid("{} is NULL", array_name);
  return {};
}

Status copy_out(const std::string& text, const char* what, char* to, size_t size) {
  if (to == nullptr || size <= text.size())
    return Status(Code::kInvalidArgument, ErrorClass::kTransient,
                  fmt::format("{} needs {} bytes", what, text.size() + 1));
  std::memcpy(to, text.c_str(), text.size() + 1);
  return {};
}

bool is_null_string(const yard_value_t& v) {
  return v.tag == YARD_TAG_STRING && v.u.string == nullptr && v.count > 0;
}

Result<std::vector<Arg>> read_args(const yard_named_value_t* args, uint32_t count) {
  std::vector<Arg> to;
  for (uint32_t i = 0; i < count; ++i) {
    const char* const name = args[i].name != nullptr ? args[i].name : "";
    if (is_null_string(args[i].value))
      return invalid("invalid value {} '{}': expected a string, got NULL", i, name);
    to.emplace_back(name, Value(args[i].value));
  }
  return to;
}

// Both ends of the range are valid: a very late deadline, and one that has passed.
std::chrono::steady_clock::time_point after(int64_t ns) {
  using Time = std::chrono::steady_clock::time_point;
  const Time now = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds by(ns);
  return by > Time::max() - now ? Time::max() : now + by;
}

Result<Options> read_options(const yard_options_t* given, std::string_view op) {
  Options o;
  if (given == nullptr) return o;
  yard_options_t c{};
  std::memcpy(&c, given, std::min<size_t>(given->size, sizeof c));
  if (c.size < 2 * sizeof(uint32_t))
    return invalid("invalid options: expected their size in the first field");
  if (c.force != nullptr) o.force = c.force;
  for (const char* const* d = c.deny; d != nullptr && *d != nullptr; ++d) o.deny.emplace_back(*d);
  if (c.mode != nullptr) {
    o.mode_name = c.mode;
    if (o.mode_name.empty()) return invalid("invalid mode: expected a name, got an empty string");
  }
  if (c.deadline_ns != 0) o.deadline = after(c.deadline_ns);
  if (c.label_count > 0) YARD_RETURN_IF_ERROR(check(c.labels, "labels"));
  for (uint32_t i = 0; i < c.label_count; ++i) {
    const yard_named_value_t& label = c.labels[i];
    if (label.name == nullptr || label.value.tag != YARD_TAG_STRING || is_null_string(label.value))
      return invalid("invalid label {}: expected a name and a string, got {}", i,
                     label.name == nullptr                ? "NULL as its name"
                     : label.value.tag != YARD_TAG_STRING ? "a value of another type"
                                                          : "NULL as its string");
    o.labels[label.name] = std::string_view(label.value.u.string, label.value.count);
  }
  o.deterministic = (c.flags & YARD_CALL_DETERMINISTIC) != 0;
  o.capturing = (c.flags & YARD_CALL_CAPTURING) != 0;
  o.inference = (c.flags & YARD_CALL_INFERENCE) != 0;
  o.cache = (c.flags & YARD_OPTION_NO_CACHE) == 0;
  if (c.prefer != 0 || (c.flags & (YARD_OPTION_STRICT | YARD_OPTION_NO_TRANSFORMS)) != 0) {
    Policy p;
    if (c.prefer > YARD_KIND_REFERENCE)
      return invalid("invalid prefer: expected YARD_KIND_DEFAULT, _VENDOR or _REFERENCE");
    if (c.prefer != 0) p.prefer = static_cast<Kind>(c.prefer);
    if ((c.flags & YARD_OPTION_STRICT) != 0) p.strict = true;
    if ((c.flags & YARD_OPTION_NO_TRANSFORMS) != 0) p.transforms[std::string(op)] = false;
    o.policy = p;
  }
  if (c.instance != nullptr) {
    o.instance = &c.instance->made;
    if (o.instance->op() != op)
      return invalid("invalid instance: expected one of op '{}', got one of op '{}'", op,
                     o.instance->op());
  }
  return o;
}

Status check_source(const char* yaml, const char* path) {
  if ((yaml == nullptr) != (path == nullptr)) return {};
  return invalid("expected YAML or a path, and NULL as the other, got {}",
                 yaml == nullptr ? "neither" : "both");
}

// Reads a policy from rules that contain nothing else.
Result<Policy> read_policy(const char* yaml, const char* path) {
  YARD_RETURN_IF_ERROR(check_source(yaml, path));
  ConfigReading reading = yaml != nullptr ? parse_config(yaml, "text") : read_config(path);
  YARD_RETURN_IF_ERROR(rules::first_error(reading.problems));
  Config& config = reading.config;
  Policy policy = policy_of(config);
  config.policy = {}, config.kernel_locks = {};
  config.kernel_denies = {}, config.kernel_allows = {};
  if (const auto other = diff({}, config); !other.empty())
    return invalid(
        "'{}' is not part of a policy: expected policy, kernel_locks, kernel_denies or "
        "kernel_allows",
        other[0].path);
  return policy;
}

// Checks whether a handle can be called with these arguments, but not their form.
Status check_handle_args(const yard_handle& handle, const yard_value_t* args, uint32_t count) {
  const op::Program& program = *handle.program;
  if (count != program.arg_count() || !program.tags_fit(args, count)) [[unlikely]]
    return program.explain_mismatch(args, count);
  const auto wrong = [&](uint32_t i, const char* what) {
    return invalid("{}: invalid argument '{}': {}", program.name(), program.schema().params[i].name,
                   what);
  };
  for (uint32_t i = 0; i < count; ++i) {
    const bool absent = (handle.absent >> i & 1) != 0;
    if ((args[i].tag == YARD_TAG_NONE) != absent) [[unlikely]]
      return wrong(i, absent ? "the handle was bound without it" : "the handle was bound with it");
    for (const yard_tensor_t* t : op::tensors_of(args[i]))
      if (t->data == nullptr && TensorView(*t).numel() != 0) [[unlikely]]
        return wrong(i, "expected data, got a null pointer");
  }
  return {};
}

std::string_view op_of(std::string_view call_spec) {
  return base::trim(call_spec.substr(0, call_spec.find('(')));
}

void write_result(const ResultRecord& r, yard_result_t* to) {
  if (to == nullptr) return;
  yard_result_t out{};
  out.size = to->size != 0 ? to->size : static_cast<uint32_t>(sizeof out);
  out.attempts = r.attempts;
  std::memcpy(out.kernel, r.kernel, sizeof out.kernel);
  out.select_ns = r.select_ns, out.run_ns = r.run_ns;
  out.cached = r.cached, out.fallback_from = r.fallback_from;
  out.pre_ns = r.pre_ns, out.post_ns = r.post_ns;
  std::memcpy(to, &out, std::min<size_t>(out.size, sizeof out));
}

template <class F>
Status call_with(std::string_view op, const yard_options_t* options, yard_result_t* result,
                 const F& call) {
  YARD_ASSIGN_OR_RETURN(auto o, read_options(options, op));
  ResultRecord record;
  if (result != nullptr) o.result = &record;
  Status s = call(o);
  write_result(record, result);
  return s;
}

}  // namespace
}  // namespace yard

using yard::Runtime;
using yard::Status;

extern "C" {

yard_op_ref_t* yard_find_op(const char* name, char* error, size_t error_size) {
  yard::detail::Site* site = nullptr;
  yard::guarded(error, error_size, [&] {
    Status why = yard::check(name, "the op's name");
    if (!why.ok()) return why;
    site = Runtime::shared().core().sites.attach(name, yard::dispatch::kPackedLetters, &why);
    return why;
  });
  return reinterpret_cast<yard_op_ref_t*>(site);
}

int32_t yard_call(yard_op_ref_t* op, const yard_value_t* args, uint32_t count, char* error,
                  size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    if (op == nullptr || (args == nullptr && count > 0)) [[unlikely]]
      return yard::check(op, "the op", args, count);
    return Status::adopt(yard::dispatch::call(yard::site_of(op), {args, count}));
  });
}

int32_t yard_call_with(yard_op_ref_t* op, const yard_value_t* args, uint32_t count,
                       const yard_options_t* options, yard_result_t* result, char* error,
                       size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(op, "the op", args, count));
    yard::detail::Site* const site = yard::site_of(op);
    return yard::call_with(site->name, options, result, [&](const yard::Options& o) {
      return yard::dispatch::call_with_options(*site, {args, count}, o);
    });
  });
}

int32_t yard_call_named(const char* op, const yard_named_value_t* args, uint32_t count,
                        const yard_options_t* options, yard_result_t* result, char* error,
                        size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(op, "the op's name", args, count));
    if (count > YARD_MAX_ARGS)
      return yard::invalid("invalid count of arguments: expected at most {}, got {}", YARD_MAX_ARGS,
                           count);
    return yard::call_with(op, options, result, [&](const yard::Options& o) {
      YARD_ASSIGN_OR_RETURN(const auto read, yard::read_args(args, count));
      return Runtime::shared().call(op, read, o);
    });
  });
}

yard_handle_t* yard_bind(yard_op_ref_t* op, const yard_value_t* args, uint32_t count, char* error,
                         size_t error_size) {
  yard_handle_t* to = nullptr;
  yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(op, "the op", args, count));
    yard::detail::Site* const site = yard::site_of(op);
    YARD_ASSIGN_OR_RETURN(const auto found, site->core->sites.find(site->name));
    auto handle = std::make_unique<yard_handle_t>();
    handle->program = found.record->op->program;
    if (count != handle->program->arg_count())
      return handle->program->explain_mismatch(args, count);
    // Leave room for the arguments of any op, because the op may be replaced at any time.
    yard_value_t cells[YARD_MAX_ARGS] = {};
    std::copy(args, args + count, cells);
    YARD_ASSIGN_OR_RETURN(handle->bound.state, yard::detail::make_bound(site, cells));
    for (uint32_t i = 0; i < count; ++i)
      if (args[i].tag == YARD_TAG_NONE && handle->program->schema().params[i].optional)
        handle->absent |= 1u << i;
    to = handle.release();
    return Status();
  });
  return to;
}

int32_t yard_call_handle(const yard_handle_t* handle, const yard_value_t* args, uint32_t count,
                         char* error, size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(handle, "the handle", args, count));
    YARD_RETURN_IF_ERROR(yard::check_handle_args(*handle, args, count));
    yard_value_t cells[YARD_MAX_ARGS];
    std::copy(args, args + count, cells);
    std::fill(cells + count, std::end(cells), yard_value_t{});
    return Status::adopt(handle->bound.call(cells, count));
  });
}

void yard_free_handle(yard_handle_t* handle) { delete handle; }

yard_instance_t* yard_make_instance(const char* op, const yard_named_value_t* options,
                                    uint32_t count, char* error, size_t error_size) {
  yard_instance_t* to = nullptr;
  yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(op, "the op's name", options, count, "the option array"));
    YARD_ASSIGN_OR_RETURN(const auto read, yard::read_args(options, count));
    YARD_ASSIGN_OR_RETURN(auto made, yard::Instance::make(Runtime::shared(), op, read));
    to = new yard_instance_t{std::move(made)};
    return Status();
  });
  return to;
}

int32_t yard_load_weights(yard_instance_t* instance, const yard_named_value_t* weights,
                          uint32_t count, char* error, size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(instance, "the instance", weights, count, "the weight array"));
    YARD_ASSIGN_OR_RETURN(const auto read, yard::read_args(weights, count));
    return instance->made.load(read);
  });
}

size_t yard_count_states(const yard_instance_t* instance) {
  return instance != nullptr ? instance->made.states() : 0;
}

uint64_t yard_state_bytes(const yard_instance_t* instance) {
  return instance != nullptr ? instance->made.state_bytes() : 0;
}

void yard_free_instance(yard_instance_t* instance) { delete instance; }

int32_t yard_resolve(const char* call_spec, const yard_options_t* options, char* kernel,
                     size_t kernel_size, char* error, size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(call_spec, "the CallSpec"));
    YARD_ASSIGN_OR_RETURN(const auto o, yard::read_options(options, yard::op_of(call_spec)));
    YARD_ASSIGN_OR_RETURN(const auto r, Runtime::shared().resolve(call_spec, o));
    return yard::copy_out(r.kernel, "the kernel's id", kernel, kernel_size);
  });
}

int32_t yard_explain(const char* call_spec, const yard_options_t* options, char* json,
                     size_t json_size, size_t* needed, char* error, size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(call_spec, "the CallSpec"));
    YARD_ASSIGN_OR_RETURN(const auto o, yard::read_options(options, yard::op_of(call_spec)));
    YARD_ASSIGN_OR_RETURN(const auto e, Runtime::shared().explain(call_spec, o));
    const std::string text = e.to_json();
    if (needed != nullptr) *needed = text.size() + 1;
    return yard::copy_out(text, "the explanation", json, json_size);
  });
}

int32_t yard_set_policy(const char* yaml, const char* path, char* error, size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_ASSIGN_OR_RETURN(auto policy, yard::read_policy(yaml, path));
    return Runtime::shared().set_policy(std::move(policy));
  });
}

int32_t yard_load_rules(const char* yaml, const char* path, char* error, size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check_source(yaml, path));
    yard::Rules rules = Runtime::shared().rules();
    if (path != nullptr) return rules.load(path);
    yard::ConfigReading reading = yard::parse_config(yaml, "text");
    YARD_RETURN_IF_ERROR(yard::rules::first_error(reading.problems));
    return rules.set(std::move(reading.config));
  });
}

yard_scope_t* yard_enter_scope(const char* yaml, const char* path, char* error, size_t error_size) {
  yard_scope_t* to = nullptr;
  yard::guarded(error, error_size, [&] {
    YARD_ASSIGN_OR_RETURN(auto policy, yard::read_policy(yaml, path));
    YARD_RETURN_IF_ERROR(yard::validate(policy));
    to = yard_scope::innermost = new yard_scope(yard::Scope(std::move(policy)));
    return Status();
  });
  return to;
}

int32_t yard_leave_scope(yard_scope_t* scope, char* error, size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(scope, "the scope"));
    if (scope != yard_scope::innermost)
      return yard::invalid("invalid scope: expected the one that this thread entered last");
    yard_scope::innermost = scope->outer;
    delete scope;
    return Status();
  });
}

int32_t yard_register(const yard_plugin_t* plugin, char* error, size_t error_size) {
  return yard::guarded(error, error_size, [&] {
    YARD_RETURN_IF_ERROR(yard::check(plugin, "the descriptor"));
    yard::Changes c;
    c.add_plugin(*plugin);
    return Runtime::shared().apply(std::move(c)).status();
  });
}

const char* yard_version(void) { return YARD_VERSION; }

}  // extern "C"
