/* SPDX-License-Identifier: Apache-2.0 */
/* Implements functions in plain C: the signature is written by hand, and one function calls the
 * next. */
#include <yard/plugin.h>

/* [plain] */
static const int64_t ten = 10;

static int64_t plugged(void* self, int64_t x) { return *(const int64_t*)self * x; }

static const yard_function_t first = {.size = sizeof(yard_function_t),
                                      .name = "plugged",
                                      .group = "active_group",
                                      .backend = "in_c",
                                      .signature = "i64(i64)",
                                      .self = (void*)&ten,
                                      .function = (void (*)(void))plugged};
/* [/plain] */

/* [next] */
static int64_t chained(void* given, int64_t x) {
  const yard_function_next_t* next = given;
  return ((int64_t(*)(void*, int64_t))next->function)(next->argument, x) + 5;
}
/* [/next] */

static const yard_function_t second = {.size = sizeof(yard_function_t),
                                       .flags = YARD_FUNCTION_NEXT,
                                       .name = "chained",
                                       .group = "active_group",
                                       .backend = "in_c",
                                       .signature = "i64(i64)",
                                       .function = (void (*)(void))chained};
static const yard_function_t* const functions[] = {&first, &second};
static const yard_plugin_t plugin = {.size = sizeof(yard_plugin_t),
                                     .abi = YARD_ABI_VERSION,
                                     .name = "functions_in_c",
                                     .version = "1.0",
                                     .functions = functions,
                                     .function_count = 2};

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host;
  return &plugin;
}

YARD_MANIFEST("functions_in_c", "1.0", YARD_MANIFEST_FUNCTIONS("active_group"));
