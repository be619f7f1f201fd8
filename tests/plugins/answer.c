/* SPDX-License-Identifier: Apache-2.0 */
/* A small valid plugin. Its op answers with a number, so that a test knows whose code ran. The
 * build defines NAME, VERSION, OP, ANSWER and more, some of which make the plugin invalid.
 * KERNEL_ONLY leaves the op to another plugin, OP_ONLY leaves the kernel to another plugin, and
 * REFERENCE adds a reference kernel with the same answer. */
#include <yard/plugin.h>

#include <stdio.h>
#include <stdlib.h>

#ifndef NAME
#define NAME "answer"
#endif
#ifndef VERSION
#define VERSION "1.0"
#endif
#ifndef OP
#define OP "answer"
#endif
#ifndef ANSWER
#define ANSWER 1
#endif
#ifndef BACKEND
#define BACKEND NAME
#endif
#ifndef KIND
#define KIND YARD_KIND_DEFAULT
#endif
#ifndef KERNEL_ID
#define KERNEL_ID "default." NAME
#endif
#ifndef SCHEMA
#define SCHEMA OP "(out!: i64[n], x: i64[n])"
#endif
#ifndef MANIFEST_PARTS
#define MANIFEST_PARTS YARD_MANIFEST_OPS(OP)
#endif
#ifndef MANIFEST_NAME
#define MANIFEST_NAME NAME
#endif
#ifdef SIZE
#define SIZE_OF(x) SIZE
#else
#define SIZE_OF(x) sizeof(x)
#endif

static int32_t fill(const yard_tensor_t* out, int64_t answer) {
  const int64_t step = out->strides ? out->strides[0] : 1;
  int64_t i;
  for (i = 0; i < out->shape[0]; ++i)
    ((int64_t*)(void*)((char*)out->data + out->byte_offset))[i * step] = answer;
  return YARD_OK;
}
static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  (void)call, (void)count;
#ifdef FAILS
  (void)args, (void)fill;
  return YARD_FAULT;
#else
  return fill(args[0].u.tensor, ANSWER);
#endif
}
#ifdef REFERENCE
static int32_t run_reference(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  (void)call, (void)count;
  return fill(args[0].u.tensor, REFERENCE);
}
static const yard_kernel_t reference = {.size = sizeof(yard_kernel_t),
                                        .op = OP,
                                        .id = "reference." NAME,
                                        .kind = YARD_KIND_REFERENCE,
                                        .run = run_reference};
#endif

#ifdef STATE
/* Writes a line for each state, as start and stop do, so that a test can count states. */
static void tell(const char* what);
static int32_t create(yard_call_t* call, const yard_named_value_t* options, uint32_t count,
                      void** state) {
  (void)call, (void)options, (void)count;
  *state = malloc(64);
  tell("create");
  return *state ? YARD_OK : YARD_FAULT;
}
static void destroy(void* self, void* state) {
  (void)self;
  free(state);
  tell("destroy");
}
#endif

static const yard_op_t op = {.size = SIZE_OF(yard_op_t), .schema = SCHEMA};
static const yard_kernel_t kernel = {.size = SIZE_OF(yard_kernel_t),
                                     .op = OP,
                                     .id = KERNEL_ID,
                                     .kind = KIND,
#ifdef PRIORITY
                                     .priority = PRIORITY,
#endif
#ifdef STATE
                                     .create = create,
                                     .destroy = destroy,
#endif
                                     .run = run};
static const yard_op_t* const ops[] = {&op};
static const yard_kernel_t* const kernels[] = {&kernel
#ifdef REFERENCE
                                               ,
                                               &reference
#endif
};
#ifdef OP_ONLY
#define KERNEL_COUNT 0
#else
#define KERNEL_COUNT (sizeof kernels / sizeof kernels[0])
#endif

/* Writes to a file from which a test counts starts and stops. */
static void tell(const char* what) {
  const char* path = getenv("PLUGIN_DIARY");
  FILE* file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%s %s %s\n", what, NAME, VERSION);
  fclose(file);
}

#ifdef QUIESCE
static int32_t quiesce(void* self, yard_device_t device) {
  (void)self;
  tell(device.type == 1 && device.index == -1 ? "quiesce" : "other device");
  return QUIESCE;
}
#endif
#ifdef PROBE_FAILS
static const char* const probe_reasons[] = {"no board is in the slot"};
static int32_t probe(void* self, const yard_host_t* host, yard_device_t device,
                     yard_verdict_t* why) {
  (void)self, (void)host, (void)device;
  why->reason = YARD_REASON_OWN;
  return YARD_DECLINED;
}
#endif
static const yard_backend_t backend = {
#ifdef PROBE_FAILS
    .probe = probe,
    .reasons = probe_reasons,
    .reason_count = 1,
#endif
#ifdef QUIESCE
    .quiesce = quiesce,
#endif
#ifdef DEVICE
    .device_type = DEVICE,
#endif
    .size = SIZE_OF(yard_backend_t),
    .name = BACKEND};
static const yard_backend_t* const backends[] = {&backend};

static int32_t start(const yard_host_t* host, char* error, uint64_t error_size) {
#ifdef START_FAILS
  (void)host, (void)tell;
  snprintf(error, error_size, "no licence for this machine");
  return YARD_FAULT;
#else
  (void)error, (void)error_size;
  tell("start");
  return host->has_feature ? YARD_OK : YARD_FAULT;
#endif
}
static void stop(void) { tell("stop"); }

static const yard_plugin_t plugin = {.size = SIZE_OF(yard_plugin_t),
                                     .abi = YARD_ABI_VERSION,
                                     .name = NAME,
                                     .version = VERSION,
                                     .backends = backends,
                                     .kernels = kernels,
                                     .backend_count = 1,
#ifndef KERNEL_ONLY
                                     .ops = ops,
                                     .op_count = 1,
#endif
                                     .kernel_count = KERNEL_COUNT,
                                     .start = start,
                                     .stop = stop};

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host, (void)ops;
  return &plugin;
}

YARD_MANIFEST(MANIFEST_NAME, VERSION, MANIFEST_PARTS);
