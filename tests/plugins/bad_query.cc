// SPDX-License-Identifier: Apache-2.0
// Plugins with invalid queries, one function for each case. This file is compiled once, and
// bad_query_case.cc selects the case.
#include "bad_query.h"

#include <stdexcept>

namespace {

yard_plugin_t g_plugin = [] {
  yard_plugin_t p{};
  p.size = sizeof p, p.name = "bad", p.version = "1.0";
  return p;
}();
yard_backend_t g_backend{};
yard_kernel_t g_kernel{}, g_kernel_2{};
const yard_backend_t* const g_backends[] = {&g_backend, &g_backend};
const yard_kernel_t* const g_kernels[] = {&g_kernel, nullptr};

int32_t run(yard_call_t*, const yard_value_t*, uint32_t) { return YARD_OK; }

// Returns a valid kernel, which a case then makes invalid.
yard_kernel_t& kernel() {
  g_backend.size = sizeof g_backend, g_backend.name = "bad";
  g_plugin.backends = g_backends, g_plugin.backend_count = 1;
  g_kernel.size = sizeof g_kernel, g_kernel.op = "rms_norm", g_kernel.id = "default.bad";
  g_kernel.kind = YARD_KIND_DEFAULT, g_kernel.run = run;
  g_plugin.kernels = g_kernels, g_plugin.kernel_count = 1;
  return g_kernel;
}

yard_op_t g_op{};
const yard_op_t* const g_ops[] = {&g_op, nullptr};
const yard_kernel_t* const g_twice[] = {&g_kernel, &g_kernel_2};

yard_op_t& op() {
  g_op.size = sizeof g_op, g_op.schema = "no_such_op(out!: f32[n], x: f32[n])";
  g_plugin.ops = g_ops, g_plugin.op_count = 1;
  return g_op;
}

int32_t other_run(yard_call_t*, const yard_value_t*, uint32_t) { return YARD_DECLINED; }
int32_t create(yard_call_t*, const yard_named_value_t*, uint32_t, void**) { return YARD_OK; }

yard_function_t g_function{}, g_function_2{};
const yard_function_t* const g_functions[] = {&g_function, &g_function_2, nullptr};

int64_t stand_in(void*, int64_t x) { return x; }

yard_function_t& function() {
  g_function.size = sizeof g_function, g_function.name = "bad_function",
  g_function.group = "bad_group";
  g_function.backend = "bad";
  g_function.signature = "i64(i64)", g_function.function = reinterpret_cast<void (*)()>(stand_in);
  g_plugin.functions = g_functions, g_plugin.function_count = 1;
  return g_function;
}
yard_function_t& second_function() {
  g_function_2 = function(), g_plugin.function_count = 2;
  return g_function_2;
}

using Answer = const yard_plugin_t*;

}  // namespace

namespace cases {

Answer null() { return nullptr; }
Answer throws() { throw std::runtime_error("not today"); }
Answer throws_int() { throw 42; }
Answer misaligned() {
  return reinterpret_cast<Answer>(reinterpret_cast<const char*>(&g_plugin) + 1);
}
Answer descriptor_abi() { return g_plugin.abi = 7, &g_plugin; }
Answer no_name() { return g_plugin.name = nullptr, &g_plugin; }
Answer bad_name() { return g_plugin.name = "has blanks", &g_plugin; }
Answer other_version() { return g_plugin.version = "2.0", &g_plugin; }
Answer no_version() { return g_plugin.version = nullptr, &g_plugin; }
Answer kernels_missing() { return g_plugin.kernel_count = 3, &g_plugin; }
Answer ops_missing() { return g_plugin.op_count = 3, &g_plugin; }
Answer backends_missing() { return g_plugin.backend_count = 3, &g_plugin; }
Answer count_huge() { return kernel(), g_plugin.kernel_count = ~0u, &g_plugin; }
Answer null_kernel() { return kernel(), g_plugin.kernel_count = 2, &g_plugin; }
Answer no_run() { return kernel().run = nullptr, &g_plugin; }
Answer no_op() { return kernel().op = nullptr, &g_plugin; }
Answer no_id() { return kernel().id = nullptr, &g_plugin; }
Answer unknown_backend() { return kernel().backend = "nowhere", &g_plugin; }
Answer two_backends() { return kernel(), g_plugin.backend_count = 2, &g_plugin; }
Answer unknown_kind() { return kernel().kind = 99, &g_plugin; }
Answer bad_priority() { return kernel().priority = -5, &g_plugin; }
Answer taken_id() {
  kernel().id = "reference.cpp", g_kernel.backend = "reference";
  return g_kernel.kind = YARD_KIND_REFERENCE, &g_plugin;
}
Answer foreign_reference() { return kernel().kind = YARD_KIND_REFERENCE, &g_plugin; }
Answer no_vendor() { return kernel().kind = YARD_KIND_VENDOR, &g_plugin; }
Answer bad_limit() {
  static const yard_limit_t limit = {4711, 0, "hidden", 1, 0, 0};
  return kernel().limits = &limit, g_kernel.limit_count = 1, &g_plugin;
}
Answer limits_missing() { return kernel().limit_count = 5, &g_plugin; }
Answer unknown_field() {
  static const yard_limit_t limit = {YARD_LIMIT_MIN, 0, "no_such_dimension", 1, 0, 0};
  return kernel().limits = &limit, g_kernel.limit_count = 1, &g_plugin;
}
Answer bad_signature() {
  kernel().typed = reinterpret_cast<void (*)()>(run);
  return g_kernel.typed_signature = "xyz", &g_plugin;
}
Answer bad_utf8() { return kernel().summary = "\xc3\x28", &g_plugin; }
Answer control_character() { return kernel().summary = "a\x01b", &g_plugin; }
Answer kernel_too_small() { return kernel().size = 12, &g_plugin; }
Answer kernel_too_large() { return kernel().size = 1u << 30, &g_plugin; }
Answer size_zero() { return g_plugin.size = 0, &g_plugin; }
Answer backend_too_small() { return kernel(), g_backend.size = 4, &g_plugin; }
Answer backend_too_large() { return kernel(), g_backend.size = ~0u, &g_plugin; }
Answer op_too_small() { return op().size = 8, &g_plugin; }
Answer op_too_large() { return op().size = ~0u, &g_plugin; }
Answer null_op() { return op(), g_plugin.op_count = 2, &g_plugin; }
Answer ops_huge() { return op(), g_plugin.op_count = ~0u, &g_plugin; }
Answer no_schema() { return op().schema = nullptr, &g_plugin; }
Answer endless_schema() {
  static char text[200000];
  for (char& c : text) c = 'a';
  text[sizeof text - 1] = 0;
  return op().schema = text, &g_plugin;
}
Answer tolerances_missing() { return op().tolerance_count = 3, &g_plugin; }
Answer bad_tolerance() {
  static const yard_tolerance_t t = {YARD_F32, 0, -1, 0};
  return op().tolerances = &t, g_op.tolerance_count = 1, &g_plugin;
}
Answer duplicate_kernels() {
  g_kernel_2 = kernel(), g_kernel_2.run = other_run;
  return g_plugin.kernels = g_twice, g_plugin.kernel_count = 2, &g_plugin;
}
Answer bad_enable() { return kernel(), g_backend.enable = 7, &g_plugin; }
Answer bad_device() { return kernel(), g_backend.device_type = 4711, &g_plugin; }
Answer create_without_destroy() { return kernel().create = create, &g_plugin; }
Answer typed_without_signature() {
  return kernel().typed = reinterpret_cast<void (*)()>(run), &g_plugin;
}
Answer functions_missing() { return g_plugin.function_count = 3, &g_plugin; }
Answer functions_huge() { return function(), g_plugin.function_count = ~0u, &g_plugin; }
Answer null_function() {
  return second_function().name = "other_function", g_plugin.function_count = 3, &g_plugin;
}
Answer function_too_small() { return function().size = 16, &g_plugin; }
Answer function_too_large() { return function().size = 1u << 30, &g_plugin; }
Answer function_no_name() { return function().name = nullptr, &g_plugin; }
Answer function_bad_name() { return function().name = "bad name", &g_plugin; }
Answer function_no_backend() { return function().backend = nullptr, &g_plugin; }
Answer function_no_signature() { return function().signature = nullptr, &g_plugin; }
Answer function_bad_utf8() { return function().signature = "i64(\xc3\x28)", &g_plugin; }
Answer function_two_lines() { return function().signature = "i64(i64)\n", &g_plugin; }
Answer function_endless_signature() {
  static char text[200000];
  for (char& c : text) c = 'a';
  return text[sizeof text - 1] = 0, function().signature = text, &g_plugin;
}
Answer function_no_function() { return function().function = nullptr, &g_plugin; }
Answer function_bad_flags() { return function().flags = 4711, &g_plugin; }
Answer function_bad_priority() { return function().priority = 1001, &g_plugin; }
Answer function_reasons_missing() { return function().reason_count = 2, &g_plugin; }
Answer function_no_group() { return function().group = nullptr, &g_plugin; }
Answer function_twice() { return second_function().priority = 1, &g_plugin; }
Answer function_bad_group() { return function().group = "bad group", &g_plugin; }
Answer function_unlisted() { return function().group = "unlisted_group", &g_plugin; }
Answer no_op_of_that_name() { return kernel().op = "no_such_op", &g_plugin; }

}  // namespace cases

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) { return g_case(); }

YARD_MANIFEST("bad", "1.0",
              YARD_MANIFEST_OPS("rms_norm no_such_op") YARD_MANIFEST_FUNCTIONS("bad_group"));
