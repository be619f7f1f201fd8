/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin in plain C. It needs only this file and plugin.h and links with nothing.
 *
 * It has a backend, the op leaky_relu, the op's reference kernel, and a faster kernel. Build it
 * with yard_add_plugin(example_c SOURCES c_plugin.c) in CMake, or with
 *   cc -std=c11 -O2 -shared -fPIC -fvisibility=hidden c_plugin.c -o example_c.so
 */
/* [head] */
#include <yard/plugin.h>

/* An op is one line. `*rows` is any number of leading dimensions; a call that does not fit is
 * refused before a kernel runs. */
static const yard_op_t op = {
    .size = sizeof(yard_op_t),
    .schema =
        "leaky_relu(out!: T[*rows, d], x: T[*rows, d], slope: float = 0.01)"
        " where T in {f32}, out may_alias x",
    .summary = "x where it is positive, else slope * x",
};
/* [/head] */

/* Returns the first element of a tensor. Strides count elements. */
static float* begin_of(const yard_tensor_t* t) {
  return (float*)(void*)((char*)t->data + t->byte_offset);
}

/* Returns the offset of element `i` in row-major order. NULL strides mean a compact tensor. */
static int64_t place(const yard_tensor_t* t, int64_t i) {
  int64_t at = 0;
  int axis;
  if (t->strides == NULL) return i;
  for (axis = t->ndim - 1; axis >= 0; --axis) {
    at += i % t->shape[axis] * t->strides[axis];
    i /= t->shape[axis];
  }
  return at;
}

static int64_t count_of(const yard_tensor_t* t) {
  int64_t n = 1;
  int axis;
  for (axis = 0; axis < t->ndim; ++axis) n *= t->shape[axis];
  return n;
}

/* [reference] */
/* Defines the op: plain, in double, with any strides. Arguments come in the order of the schema,
 * and their types have been checked against it. */
static int32_t run_reference(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  const yard_tensor_t *out = args[0].u.tensor, *x = args[1].u.tensor;
  const double slope = args[2].u.f;
  const int64_t n = count_of(x);
  int64_t i;
  (void)call, (void)count;
  for (i = 0; i < n; ++i) {
    const double v = begin_of(x)[place(x, i)];
    begin_of(out)[place(out, i)] = (float)(v > 0 ? v : slope * v);
  }
  return YARD_OK;
}
/* [/reference] */

/* [fast] */
/* The faster kernel gets only calls that its limits and its verifier let through: compact rows of
 * f32. The host owns the threads; parallel_for hands out pieces of at least 4096 elements. */
typedef struct job {
  float* out;
  const float* x;
  float slope;
} job_t;

static void piece(void* context, int64_t begin, int64_t end) {
  const job_t* job = context;
  int64_t i;
  for (i = begin; i < end; ++i) job->out[i] = job->x[i] > 0 ? job->x[i] : job->slope * job->x[i];
}

static int32_t run_fast(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  const yard_tensor_t* x = args[1].u.tensor;
  job_t job = {begin_of(args[0].u.tensor), begin_of(x), (float)args[2].u.f};
  (void)count;
  return call->host->parallel_for(call->host->self, count_of(x), 4096, piece, &job);
}

static const yard_limit_t limits[] = {
    {.kind = YARD_LIMIT_DTYPE, .a = (int64_t)YARD_DTYPE_BIT(YARD_F32)},
    {.kind = YARD_LIMIT_COMPACT},
};

/* Checks what limits cannot say. It names the fields it reads, so that it is asked again only for
 * other values of these. A refusal is a number and its figures: here the first of this kernel's own
 * reasons. */
static const char* const reads[] = {"rows", "d", NULL};
static const char* const reasons[] = {
    "{0} rows of {1} elements are more than the {2} it counts to"};

static int32_t verify(const yard_query_t* query, yard_verdict_t* verdict) {
  const int64_t rows = query->read[0], d = query->read[1], most = INT32_MAX;
  if (d == 0 || rows <= most / d) return YARD_OK;
  verdict->reason = YARD_REASON_OWN;
  verdict->figures[0] = rows, verdict->figures[1] = d, verdict->figures[2] = most;
  return YARD_OK;
}
/* [/fast] */

/* [descriptor] */
/* Descriptors begin with their size and are read up to it. A field that is left out is zero, which
 * means "nothing special". */
static const yard_backend_t backend = {.size = sizeof(yard_backend_t), .name = "example_c"};

static const yard_kernel_t reference = {
    .size = sizeof(yard_kernel_t),
    .op = "leaky_relu",
    .id = "reference.example_c",
    .kind = YARD_KIND_REFERENCE,
    .run = run_reference,
};
static const yard_kernel_t fast = {
    .size = sizeof(yard_kernel_t),
    .flags = YARD_KERNEL_DETERMINISTIC,
    .op = "leaky_relu",
    .id = "default.example_c",
    .kind = YARD_KIND_DEFAULT,
    .limits = limits,
    .limit_count = 2,
    .verify = verify,
    .verify_reads = reads,
    .reasons = reasons,
    .reason_count = 1,
    .run = run_fast,
};

static const yard_backend_t* const backends[] = {&backend};
static const yard_op_t* const ops[] = {&op};
static const yard_kernel_t* const kernels[] = {&reference, &fast};
static const yard_plugin_t plugin = {
    .size = sizeof(yard_plugin_t),
    .abi = YARD_ABI_VERSION,
    .name = "example_c",
    .version = "1.0",
    .backends = backends,
    .ops = ops,
    .kernels = kernels,
    .backend_count = 1,
    .op_count = 1,
    .kernel_count = 2,
};

/* The one exported symbol. It may be called many times, and has no effect beside its result. A
 * plugin that cannot serve a host returns NULL. */
const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host;
  return &plugin;
}

/* The host reads this before any of the code above runs: the same name and version, and every op
 * that is served. */
YARD_MANIFEST("example_c", "1.0", YARD_MANIFEST_OPS("leaky_relu"));
/* [/descriptor] */
