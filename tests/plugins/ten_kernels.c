/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin with ten kernels for an op. All names contain ten000, so that a test can make many
 * different plugins by writing other digits into the file. */
#include <yard/plugin.h>

static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  (void)call, (void)args, (void)count;
  return YARD_OK;
}

#define KERNEL(n)                                                              \
  {                                                                            \
    .size = sizeof(yard_kernel_t), .op = "ten000", .id = "default.ten000_" #n, \
    .kind = YARD_KIND_DEFAULT, .priority = 100 + n, .run = run                 \
  }
static const yard_kernel_t all[] = {KERNEL(0), KERNEL(1), KERNEL(2), KERNEL(3), KERNEL(4),
                                    KERNEL(5), KERNEL(6), KERNEL(7), KERNEL(8), KERNEL(9)};
static const yard_kernel_t* const kernels[] = {&all[0], &all[1], &all[2], &all[3], &all[4],
                                               &all[5], &all[6], &all[7], &all[8], &all[9]};
static const yard_op_t op = {.size = sizeof(yard_op_t),
                             .schema = "ten000(out!: i64[n], x: i64[n])"};
static const yard_op_t* const ops[] = {&op};
static const yard_backend_t backend = {.size = sizeof(yard_backend_t), .name = "ten000"};
static const yard_backend_t* const backends[] = {&backend};
static const yard_plugin_t plugin = {.size = sizeof(yard_plugin_t),
                                     .abi = YARD_ABI_VERSION,
                                     .name = "ten000",
                                     .version = "1.0",
                                     .backends = backends,
                                     .kernels = kernels,
                                     .ops = ops,
                                     .backend_count = 1,
                                     .kernel_count = 10,
                                     .op_count = 1};

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host;
  return &plugin;
}

YARD_MANIFEST("ten000", "1.0", YARD_MANIFEST_OPS("ten000"));
