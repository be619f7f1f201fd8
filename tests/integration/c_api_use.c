/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface as a C program uses it. Every check that fails returns the line it stands in. */
#include <string.h>
#include <yard/c.h>

int yard_c_api_use(void);

#define CHECK(condition)               \
  do {                                 \
    if (!(condition)) return __LINE__; \
  } while (0)

static int32_t add_one(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  const float* x = (const float*)args[1].u.tensor->data;
  float* out = (float*)args[0].u.tensor->data;
  int64_t i;
  if (count != 3)
    return call->host->fail(call->host->self, call, YARD_FAULT, "%u arguments", count);
  if (args[2].u.i < 0) return call->host->fail(call->host->self, call, YARD_CALLER, "by is %d", -1);
  for (i = 0; i < args[1].u.tensor->shape[0]; ++i) out[i] = x[i] + (float)args[2].u.i;
  return YARD_OK;
}

static const yard_op_t op = {.size = sizeof op,
                             .schema = "c_add(out!: f32[n], x: f32[n], by: int = 1)"};
static const yard_backend_t backend = {.size = sizeof backend, .name = "c_test"};
static const yard_kernel_t kernel = {.size = sizeof kernel,
                                     .op = "c_add",
                                     .id = "default.c",
                                     .backend = "c_test",
                                     .kind = YARD_KIND_DEFAULT,
                                     .run = add_one};
static const yard_kernel_t second = {.size = sizeof second,
                                     .op = "c_add",
                                     .id = "reference.c",
                                     .backend = "c_test",
                                     .kind = YARD_KIND_REFERENCE,
                                     .run = add_one,
                                     .flags = YARD_KERNEL_DETERMINISTIC};
static const yard_op_t* const ops[] = {&op};
static const yard_backend_t* const backends[] = {&backend};
static const yard_kernel_t* const kernels[] = {&kernel, &second};
static const yard_plugin_t plugin = {.size = sizeof plugin,
                                     .name = "c_test",
                                     .version = "1",
                                     .ops = ops,
                                     .op_count = 1,
                                     .backends = backends,
                                     .backend_count = 1,
                                     .kernels = kernels,
                                     .kernel_count = 2};

static yard_tensor_t vector_of(float* data, const int64_t* size) {
  yard_tensor_t t = {0};
  t.data = data, t.device.type = 1, t.ndim = 1, t.shape = size;
  t.dtype.code = 2, t.dtype.bits = 32, t.dtype.lanes = 1;
  return t;
}
static yard_value_t tensor(const yard_tensor_t* t) {
  yard_value_t v = {YARD_TAG_TENSOR, 0, {0}};
  v.u.tensor = t;
  return v;
}
static yard_value_t integer(int64_t i) {
  yard_value_t v = {YARD_TAG_INT, 0, {0}};
  v.u.i = i;
  return v;
}

static int calls(yard_op_ref_t* ref, yard_value_t* args, const float* out) {
  char error[256] = "";
  yard_options_t o = {0};
  yard_result_t r = {0};
  const char* const deny[] = {"default.*", NULL};
  const yard_named_value_t named[] = {{NULL, args[0]}, {NULL, args[1]}, {"by", integer(7)}};
  yard_named_value_t label = {"model", {YARD_TAG_STRING, 2, {0}}};
  label.value.u.string = "m1";

  CHECK(yard_call(ref, args, 3, error, sizeof error) == YARD_OK);
  CHECK(out[3] == 4.0f + 2.0f);
  args[2] = integer(-5);
  CHECK(yard_call(ref, args, 3, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "by is -1") != NULL);
  CHECK(yard_call(ref, args, 3, NULL, 0) == YARD_CALLER);
  CHECK(yard_call(ref, args, 3, error, 4) == YARD_CALLER && strlen(error) == 3);
  args[2] = integer(2);

  o.size = sizeof o, o.deny = deny, o.labels = &label, o.label_count = 1;
  r.size = sizeof r;
  CHECK(yard_call_with(ref, args, 3, &o, &r, error, sizeof error) == YARD_OK);
  CHECK(strcmp(r.kernel, "reference.c") == 0 && r.attempts == 1 && r.run_ns >= 0);
  CHECK(yard_call_with(ref, args, 3, NULL, NULL, NULL, 0) == YARD_OK);
  o.deny = NULL, o.force = "default.c", o.flags = YARD_CALL_DETERMINISTIC;
  CHECK(yard_call_with(ref, args, 3, &o, &r, error, sizeof error) != YARD_OK);
  CHECK(strstr(error, "not_deterministic") != NULL);
  o.force = "nobody";
  CHECK(yard_call_with(ref, args, 3, &o, &r, error, sizeof error) == YARD_CALLER);
  o.force = NULL, o.flags = YARD_OPTION_NO_CACHE | YARD_OPTION_STRICT,
  o.prefer = YARD_KIND_REFERENCE;
  CHECK(yard_call_with(ref, args, 3, &o, &r, error, sizeof error) == YARD_OK);
  CHECK(strcmp(r.kernel, "reference.c") == 0 && !r.cached);
  o.prefer = 77;
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);
  o.prefer = 0, o.mode = "static";
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);
  o.mode = "sometimes";
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);
  o.mode = NULL, o.labels = NULL;
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);
  o.size = 4;
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);

  CHECK(yard_call_named("c_add", named, 3, NULL, NULL, error, sizeof error) == YARD_OK);
  CHECK(out[3] == 4.0f + 7.0f);
  CHECK(yard_call_named("c_add", named, 2, NULL, &r, error, sizeof error) == YARD_OK);
  CHECK(out[3] == 4.0f + 1.0f);
  CHECK(yard_call_named("c_add", named, 1, NULL, NULL, error, sizeof error) == YARD_CALLER);
  return 0;
}

static int texts(void) {
  char error[256] = "", id[64] = "", json[4096] = "";
  size_t needed = 0;
  CHECK(yard_resolve("c_add(f32[4])", NULL, id, sizeof id, error, sizeof error) == YARD_OK);
  CHECK(strcmp(id, "default.c") == 0);
  CHECK(yard_resolve("c_add(f32[4])", NULL, id, 3, error, sizeof error) == YARD_TRANSIENT);
  CHECK(yard_resolve("c_add(f32[4])", NULL, NULL, 0, error, sizeof error) == YARD_TRANSIENT);
  CHECK(yard_resolve("c_add(f32[4]", NULL, id, sizeof id, error, sizeof error) == YARD_CALLER);
  CHECK(yard_resolve("nobody(f32[4])", NULL, id, sizeof id, error, sizeof error) == YARD_CALLER);
  CHECK(yard_explain("c_add(f32[4])", NULL, json, sizeof json, &needed, error, sizeof error) ==
        YARD_OK);
  CHECK(strstr(json, "\"selected\":\"default.c\"") != NULL || strstr(json, "default.c") != NULL);
  CHECK(needed == strlen(json) + 1);
  CHECK(yard_explain("c_add(f32[4])", NULL, NULL, 0, &needed, error, sizeof error) ==
        YARD_TRANSIENT);
  CHECK(yard_explain("c_add(f32[4])", NULL, json, needed - 1, NULL, NULL, 0) == YARD_TRANSIENT);
  CHECK(strcmp(yard_version(), "") != 0);
  return 0;
}

static int nulls(yard_op_ref_t* ref, const yard_value_t* args) {
  char error[64] = "";
  CHECK(yard_find_op(NULL, error, sizeof error) == NULL && error[0] != '\0');
  CHECK(yard_find_op(NULL, NULL, 0) == NULL);
  CHECK(yard_find_op("c_ad", error, sizeof error) == NULL && strstr(error, "c_add") != NULL);
  CHECK(yard_call(NULL, args, 3, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call(ref, NULL, 3, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call(ref, NULL, 0, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call(NULL, NULL, 0, NULL, 0) == YARD_CALLER);
  CHECK(yard_call_with(NULL, args, 3, NULL, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call_with(ref, NULL, 3, NULL, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call_named(NULL, NULL, 0, NULL, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call_named("c_add", NULL, 2, NULL, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(yard_resolve(NULL, NULL, NULL, 0, error, sizeof error) == YARD_CALLER);
  CHECK(yard_explain(NULL, NULL, NULL, 0, NULL, NULL, 0) == YARD_CALLER);
  CHECK(yard_register(NULL, error, sizeof error) == YARD_CALLER);
  return 0;
}

int yard_c_api_use(void) {
  char error[256] = "";
  float x[4] = {1, 2, 3, 4}, out[4] = {0};
  const int64_t size = 4;
  yard_tensor_t tx = vector_of(x, &size), tout = vector_of(out, &size);
  yard_value_t args[3];
  yard_value_t hollow[3];
  yard_op_ref_t* ref;
  int line;

  CHECK(yard_register(&plugin, error, sizeof error) == YARD_OK);
  CHECK(yard_register(&plugin, error, sizeof error) == YARD_OK); /* the same again */
  ref = yard_find_op("c_add", error, sizeof error);
  CHECK(ref != NULL);
  tx.facts = yard_facts(&tx); /* one with facts, one without */
  args[0] = tensor(&tout), args[1] = tensor(&tx), args[2] = integer(2);
  if ((line = calls(ref, args, out)) != 0) return line;
  if ((line = texts()) != 0) return line;
  if ((line = nulls(ref, args)) != 0) return line;
  hollow[0] = tensor(NULL), hollow[1] = args[1], hollow[2] = args[2];
  CHECK(yard_call(ref, hollow, 3, error, sizeof error) == YARD_CALLER);
  tx.data = NULL, tx.facts = 0;
  CHECK(yard_call(ref, args, 3, error, sizeof error) == YARD_CALLER &&
        strstr(error, "'x'") != NULL);
  return 0;
}
