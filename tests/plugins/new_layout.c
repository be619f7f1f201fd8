/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin for a newer plugin.h: its structs have more fields at their ends, and its manifest has a
 * key that this host does not know. */
#include <yard/plugin.h>

struct new_backend {
  yard_backend_t known;
  void* more[3];
};
struct new_op {
  yard_op_t known;
  void* more[5];
};
struct new_kernel {
  yard_kernel_t known;
  void* more[7];
};
struct new_plugin {
  yard_plugin_t known;
  void* more[2];
};

static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  (void)call, (void)count;
  *(int64_t*)args[0].u.tensor->data = 43;
  return YARD_OK;
}

static int something;
static const struct new_backend backend = {{.size = sizeof(struct new_backend), .name = "new"},
                                           {&something, &something, &something}};
static const struct new_op op = {
    {.size = sizeof(struct new_op), .schema = "new(out!: i64[n], x: i64[n])"},
    {&something, &something, &something, &something, &something}};
static const struct new_kernel kernel = {{.size = sizeof(struct new_kernel),
                                          .op = "new",
                                          .id = "default.new",
                                          .kind = YARD_KIND_DEFAULT,
                                          .run = run},
                                         {&something, &something}};
static const yard_backend_t* const backends[] = {&backend.known};
static const yard_op_t* const ops[] = {&op.known};
static const yard_kernel_t* const kernels[] = {&kernel.known};
static const struct new_plugin plugin = {{.size = sizeof(struct new_plugin),
                                          .name = "new_layout",
                                          .version = "9.0",
                                          .backends = backends,
                                          .ops = ops,
                                          .kernels = kernels,
                                          .backend_count = 1,
                                          .op_count = 1,
                                          .kernel_count = 1},
                                         {&something, &something}};

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host;
  return &plugin.known;
}

YARD_MANIFEST("new_layout", "9.0", YARD_MANIFEST_OPS("new") "colour=blue\n");
