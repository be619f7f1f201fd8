/* SPDX-License-Identifier: Apache-2.0 */
/* A complete plugin in C11. It adds an op with its reference kernel, and a vendor kernel with
 * limits, a verifier, a cost estimate, workspace and a typed entry. It includes only plugin.h from
 * the project. */
#include <yard/plugin.h>

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

static float* floats(const yard_tensor_t* t) {
  return (float*)(void*)((char*)t->data + t->byte_offset);
}

static int64_t stride_of(const yard_tensor_t* t) { return t->strides ? t->strides[0] : 1; }

/* Defines what the op means. It accepts any strides. */
static int32_t reference_run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  const yard_tensor_t *out, *x;
  int64_t i;
  (void)call, (void)count;
  out = args[0].u.tensor, x = args[1].u.tensor;
  for (i = 0; i < x->shape[0]; ++i)
    floats(out)[i * stride_of(out)] = (float)(floats(x)[i * stride_of(x)] * args[2].u.f);
  return YARD_OK;
}

struct piece {
  float *out, *x;
  double by;
};

static void scale_piece(void* context, int64_t begin, int64_t end) {
  const struct piece* p = context;
  int64_t i;
  for (i = begin; i < end; ++i) p->out[i] = (float)(p->x[i] * p->by);
}

static int32_t fast_typed(yard_call_t* call, const yard_tensor_t* out, const yard_tensor_t* x,
                          double by) {
  const yard_host_t* host = call->host;
  struct piece piece;
  if (by == 0) return host->fail(host->self, call, YARD_DECLINED, "cannot scale by %d", 0);
  if (call->workspace_size < 64) return YARD_FAULT;
  piece.out = floats(out), piece.x = floats(x), piece.by = by;
  return host->parallel_for(host->self, x->shape[0], 1024, scale_piece, &piece);
}

static int32_t fast_run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  if (count != 3) return YARD_FAULT;
  return fast_typed(call, args[0].u.tensor, args[1].u.tensor, args[2].u.f);
}

static const char* const verify_reads[] = {"n", NULL};
static const char* const cost_reads[] = {"n", NULL};
static const char* const reasons[] = {"{0} is the unlucky number"};

static int32_t fast_verify(const yard_query_t* query, yard_verdict_t* verdict) {
  if (query->read[0] == 13) {
    verdict->reason = YARD_REASON_OWN + 0;
    verdict->figures[0] = 13;
  }
  return YARD_OK;
}

static double fast_cost(void* self, const int64_t* fields, uint32_t count) {
  (void)self;
  return count == 1 ? 100.0 + 0.25 * (double)fields[0] : -1.0;
}

static int64_t fast_workspace(void* self, const yard_value_t* args, uint32_t count) {
  (void)self, (void)args, (void)count;
  return 64;
}

static int32_t probe(void* self, const yard_host_t* host, yard_device_t device,
                     yard_verdict_t* why) {
  (void)self, (void)host;
  if (device.type == 1) return YARD_OK;
  why->reason = YARD_REASON_DEVICE;
  why->figures[0] = device.type;
  return YARD_DECLINED;
}

static const yard_limit_t limits[] = {
    {.kind = YARD_LIMIT_DTYPE, .a = (int64_t)YARD_DTYPE_BIT(YARD_F32)},
    {.kind = YARD_LIMIT_COMPACT},
    {.kind = YARD_LIMIT_MAX, .field = "n", .a = 1 << 20},
};

static const yard_backend_t backend = {
    .size = sizeof backend, .name = "acme", .vendor = "acme", .probe = probe};
static const yard_tolerance_t tolerances[] = {{.dtype = YARD_F32, .rtol = 1e-6}};
static const yard_op_t op = {.size = sizeof op,
                             .schema = "scale(out!: T[n], x: T[n], by: float = 1.0)",
                             .tolerances = tolerances,
                             .tolerance_count = COUNT(tolerances)};
static const yard_kernel_t reference = {.size = sizeof reference,
                                        .op = "scale",
                                        .id = "reference.acme",
                                        .kind = YARD_KIND_REFERENCE,
                                        .limits = limits,
                                        .limit_count = 1,
                                        .run = reference_run};
static const yard_kernel_t fast = {.size = sizeof fast,
                                   .flags = YARD_KERNEL_DETERMINISTIC,
                                   .op = "scale",
                                   .id = "vendor.acme",
                                   .backend = "acme",
                                   .kind = YARD_KIND_VENDOR,
                                   .limits = limits,
                                   .limit_count = COUNT(limits),
                                   .verify = fast_verify,
                                   .verify_reads = verify_reads,
                                   .reasons = reasons,
                                   .reason_count = COUNT(reasons),
                                   .cost = fast_cost,
                                   .cost_reads = cost_reads,
                                   .run = fast_run,
                                   .typed = (void (*)(void))fast_typed,
                                   .typed_signature = "ttf",
                                   .workspace = fast_workspace};

static const yard_backend_t* const backends[] = {&backend};
static const yard_op_t* const ops[] = {&op};
static const yard_kernel_t* const kernels[] = {&reference, &fast};
static const yard_plugin_t plugin = {.size = sizeof plugin,
                                     .abi = YARD_ABI_VERSION,
                                     .name = "acme",
                                     .version = "1.0",
                                     .backends = backends,
                                     .ops = ops,
                                     .kernels = kernels,
                                     .backend_count = COUNT(backends),
                                     .op_count = COUNT(ops),
                                     .kernel_count = COUNT(kernels)};

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host;
  return &plugin;
}
