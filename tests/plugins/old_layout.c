/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin for an older plugin.h: its structs end early, and the host must read the missing fields
 * as zero. The structs are written out here, because the header changes and this file must not. */
#include <yard/plugin.h>

struct old_backend {
  uint32_t size, flags;
  const char* name;
};
struct old_op {
  uint32_t size, flags;
  const char* schema;
};
struct old_kernel {
  uint32_t size, flags;
  const char *op, *id, *backend, *summary;
  int32_t kind, priority;
  void* self;
  const void* limits;
  uint32_t limit_count, pad0;
  const char* features;
  void (*verify)(void);
  const void *verify_reads, *reasons;
  uint32_t reason_count, pad1;
  void (*cost)(void);
  const void* cost_reads;
  int32_t (*run)(yard_call_t* call, const yard_value_t* args, uint32_t count);
};
struct old_plugin {
  uint32_t size, abi;
  const char *name, *version, *build;
  const struct old_backend* const* backends;
  const struct old_op* const* ops;
  const struct old_kernel* const* kernels;
  const void* functions;
  uint32_t backend_count, op_count, kernel_count, function_count;
};

static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  (void)call, (void)count;
  *(int64_t*)args[0].u.tensor->data = 41;
  return YARD_OK;
}

/* The host must not read beyond each struct. */
static const struct {
  struct old_kernel kernel;
  uint64_t poison[32];
} kernel = {
    {.size = sizeof(struct old_kernel), .op = "old", .id = "default.old", .kind = 1, .run = run},
    {~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull}};
static const struct {
  struct old_backend backend;
  uint64_t poison[8];
} backend = {{.size = sizeof(struct old_backend), .name = "old"}, {~0ull, ~0ull, ~0ull, ~0ull}};
static const struct {
  struct old_op op;
  uint64_t poison[8];
} op = {{.size = sizeof(struct old_op), .schema = "old(out!: i64[n], x: i64[n])"},
        {~0ull, ~0ull, ~0ull, ~0ull}};
static const struct old_backend* const backends[] = {&backend.backend};
static const struct old_op* const ops[] = {&op.op};
static const struct old_kernel* const kernels[] = {&kernel.kernel};
static const struct {
  struct old_plugin plugin;
  uint64_t poison[4];
} plugin = {{.size = sizeof(struct old_plugin),
             .name = "old_layout",
             .version = "0.1",
             .backends = backends,
             .ops = ops,
             .kernels = kernels,
             .backend_count = 1,
             .op_count = 1,
             .kernel_count = 1},
            {~0ull, ~0ull, ~0ull, ~0ull}};

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host;
  return (const yard_plugin_t*)(const void*)&plugin.plugin;
}

YARD_MANIFEST("old_layout", "0.1", YARD_MANIFEST_OPS("old"));
