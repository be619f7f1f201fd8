/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin in plain C whose kernel has state. The host makes the state from options, loads weights
 * into the state, and frees it. */
#include <stdlib.h>
#include <string.h>
#include <yard/plugin.h>

static const yard_op_t op = {
    .size = sizeof(yard_op_t),
    .schema = "example_affine(out!: T[*rows, d], x: T[*rows, d]) where T in {f32}",
    .summary = "by * x + bias, with the option `by` and the weight `bias`",
};

/* [state] */
typedef struct affine {
  double by;
  const yard_tensor_t* bias; /* stays as long as the state */
} affine_t;

/* The options are complete, checked and in the order of `options_schema`. */
static int32_t create(yard_call_t* call, const yard_named_value_t* options, uint32_t count,
                      void** state) {
  affine_t* made = calloc(1, sizeof *made);
  (void)count;
  if (made == NULL) return call->host->fail(call->host->self, call, YARD_TRANSIENT, "no memory");
  made->by = options[0].value.u.f;
  *state = made;
  return YARD_OK;
}

/* The weights that were loaded; not called without any. */
static int32_t load(yard_call_t* call, const yard_named_value_t* weights, uint32_t count) {
  affine_t* made = call->state;
  uint32_t i;
  for (i = 0; i < count; ++i) {
    if (strcmp(weights[i].name, "bias") != 0)
      return call->host->fail(call->host->self, call, YARD_CALLER,
                              "no weight '%s'; expected 'bias'", weights[i].name);
    made->bias = weights[i].value.u.tensor;
  }
  return YARD_OK;
}

/* Once for each state, with the arguments of the first call: here a state has one `d`. */
static int32_t prepare(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  const affine_t* made = call->state;
  const yard_tensor_t *x = args[1].u.tensor, *bias = made->bias;
  (void)count;
  if (bias == NULL) return YARD_OK;
  if (bias->ndim == 1 && bias->shape[0] == x->shape[x->ndim - 1] &&
      yard_dtype_index(bias->dtype) == YARD_F32)
    return YARD_OK;
  return call->host->fail(call->host->self, call, YARD_CALLER, "invalid bias: expected f32[d]");
}

/* Exactly once for each create() that succeeded, also if load() or prepare() failed. */
static void destroy(void* self, void* state) {
  (void)self;
  free(state);
}
/* [/state] */

static float* begin_of(const yard_tensor_t* t) {
  return (float*)(void*)((char*)t->data + t->byte_offset);
}

/* [run] */
/* Several threads may run on one state at once: it must not change here. */
static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  const affine_t* s = call->state;
  const yard_tensor_t* x = args[1].u.tensor;
  const int64_t d = x->shape[x->ndim - 1];
  int64_t n = 1, i;
  int axis;
  (void)count;
  for (axis = 0; axis < x->ndim; ++axis) n *= x->shape[axis];
  for (i = 0; i < n; ++i) {
    const double bias = s->bias ? begin_of(s->bias)[i % d] : 0;
    begin_of(args[0].u.tensor)[i] = (float)(s->by * begin_of(x)[i] + bias);
  }
  return YARD_OK;
}

static const yard_limit_t limits[] = {{.kind = YARD_LIMIT_COMPACT}};
static const char* const state_fields[] = {"d", NULL}; /* a state for each value of `d` */
static const yard_kernel_t kernel = {
    .size = sizeof(yard_kernel_t),
    .op = "example_affine",
    .id = "default.c_state",
    .kind = YARD_KIND_DEFAULT,
    .limits = limits,
    .limit_count = 1,
    .run = run,
    .create = create,
    .load = load,
    .prepare = prepare,
    .destroy = destroy,
    .state_fields = state_fields,
    .options_schema = "by: float = 1.0",
    .weights_schema = "bias?: f32[d]",
};
/* [/run] */

/* The reference kernel handles any strides, one element at a time. */
static float* at(const yard_tensor_t* t, int64_t i) {
  int64_t offset = 0, compact = 1;
  int axis;
  for (axis = t->ndim - 1; axis >= 0; --axis) {
    offset += i % t->shape[axis] * (t->strides ? t->strides[axis] : compact);
    compact *= t->shape[axis];
    i /= t->shape[axis];
  }
  return begin_of(t) + offset;
}

static int32_t run_reference(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  const affine_t* s = call->state;
  const yard_tensor_t* x = args[1].u.tensor;
  int64_t n = 1, i;
  int axis;
  (void)count;
  for (axis = 0; axis < x->ndim; ++axis) n *= x->shape[axis];
  for (i = 0; i < n; ++i) {
    const double bias = s->bias ? *at(s->bias, i % x->shape[x->ndim - 1]) : 0;
    *at(args[0].u.tensor, i) = (float)(s->by * *at(x, i) + bias);
  }
  return YARD_OK;
}

static const yard_kernel_t reference = {
    .size = sizeof(yard_kernel_t),
    .op = "example_affine",
    .id = "reference.c_state",
    .kind = YARD_KIND_REFERENCE,
    .run = run_reference,
    .create = create,
    .load = load,
    .prepare = prepare,
    .destroy = destroy,
    .state_fields = state_fields,
    .options_schema = "by: float = 1.0",
    .weights_schema = "bias?: f32[d]",
};

static const yard_backend_t backend = {.size = sizeof(yard_backend_t), .name = "c_state"};
static const yard_backend_t* const backends[] = {&backend};
static const yard_op_t* const ops[] = {&op};
static const yard_kernel_t* const kernels[] = {&kernel, &reference};
static const yard_plugin_t plugin = {
    .size = sizeof(yard_plugin_t),
    .abi = YARD_ABI_VERSION,
    .name = "c_state",
    .version = "1.0",
    .backends = backends,
    .ops = ops,
    .kernels = kernels,
    .backend_count = 1,
    .op_count = 1,
    .kernel_count = 2,
};

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host) {
  (void)host_abi, (void)host;
  return &plugin;
}

YARD_MANIFEST("c_state", "1.0", YARD_MANIFEST_OPS("example_affine"));
