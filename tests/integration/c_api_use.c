/* SPDX-License-Identifier: Apache-2.0 */
/* Uses the C interface as a C program does. Every failed check returns its line number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
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
  /* The ends of the range: INT64_MAX is never reached, and INT64_MIN has passed. */
  o.prefer = 0, o.deadline_ns = INT64_MAX;
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_OK);
  o.deadline_ns = -1;
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_TRANSIENT);
  o.deadline_ns = INT64_MIN;
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_TRANSIENT);
  o.deadline_ns = 0;
  o.prefer = 77;
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);
  o.prefer = 0, o.mode = "static";
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);
  o.mode = "sometimes";
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);
  o.mode = NULL, label.value.u.string = NULL;
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "invalid label 0") != NULL &&
        strstr(error, "got NULL as its string") != NULL);
  label.value.count = 0; /* an empty string */
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_OK);
  label.name = NULL;
  CHECK(yard_call_with(ref, args, 3, &o, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "got NULL as its name") != NULL);
  o.labels = NULL;
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

static int handles(yard_op_ref_t* ref, const yard_value_t* args, const float* out) {
  char error[256] = "";
  float y[4] = {10, 20, 30, 40}, z[4] = {0};
  const int64_t size = 4, none = 0;
  yard_tensor_t ty = vector_of(y, &size), tz = vector_of(z, &size);
  yard_tensor_t hollow = vector_of(NULL, &size), empty = vector_of(NULL, &none);
  yard_value_t form[3], cells[3];
  yard_handle_t* h;
  form[0] = args[0], form[1] = args[1], memset(&form[2], 0, sizeof form[2]);

  h = yard_bind(ref, form, 3, error, sizeof error);
  CHECK(h != NULL);
  cells[0] = args[0], cells[1] = args[1], cells[2] = integer(5);
  CHECK(yard_call_handle(h, cells, 3, error, sizeof error) == YARD_OK && out[3] == 4.0f + 5.0f);
  cells[0] = tensor(&tz), cells[1] = tensor(&ty), cells[2] = integer(1);
  CHECK(yard_call_handle(h, cells, 3, error, sizeof error) == YARD_OK && z[3] == 41);
  cells[2] = integer(-1); /* the kernel's own error */
  CHECK(yard_call_handle(h, cells, 3, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "by is -1") != NULL);
  CHECK(yard_call_handle(h, cells, 3, NULL, 0) == YARD_CALLER);

  /* Arguments that are missing or have another type. */
  CHECK(yard_call_handle(h, cells, 2, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "takes 3 arguments") != NULL);
  CHECK(yard_call_handle(h, cells, UINT32_MAX, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call_handle(h, NULL, 3, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call_handle(NULL, cells, 3, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call_handle(h, form, 3, error, sizeof error) == YARD_CALLER); /* without `by` */
  CHECK(strstr(error, "'by': expected int, got nothing") != NULL);
  cells[2] = integer(1), cells[1] = tensor(NULL);
  CHECK(yard_call_handle(h, cells, 3, error, sizeof error) == YARD_CALLER);
  cells[1] = integer(3);
  CHECK(yard_call_handle(h, cells, 3, error, sizeof error) == YARD_CALLER);
  cells[1] = tensor(&hollow);
  CHECK(yard_call_handle(h, cells, 3, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "'x': expected data, got a null pointer") != NULL);
  yard_free_handle(h), yard_free_handle(NULL);

  CHECK(yard_bind(NULL, form, 3, error, sizeof error) == NULL);
  CHECK(yard_bind(ref, NULL, 3, error, sizeof error) == NULL);
  CHECK(yard_bind(ref, form, 2, error, sizeof error) == NULL);
  CHECK(yard_bind(ref, form, UINT32_MAX, error, sizeof error) == NULL);
  CHECK(strstr(error, "takes 3 arguments") != NULL);
  form[1] = tensor(NULL);
  CHECK(yard_bind(ref, form, 3, error, sizeof error) == NULL);
  CHECK(yard_bind(ref, form, 3, NULL, 0) == NULL);
  form[0] = tensor(&empty), form[1] = tensor(&empty);
  h = yard_bind(ref, form, 3, error, sizeof error);
  cells[0] = cells[1] = tensor(&empty);
  CHECK(h != NULL && yard_call_handle(h, cells, 3, error, sizeof error) == YARD_OK);
  yard_free_handle(h);
  return 0;
}

/* Returns the id of the kernel that serves a call of c_add now. */
static const char* served_by(yard_op_ref_t* ref, const yard_value_t* args) {
  static yard_result_t r;
  r.size = sizeof r;
  return yard_call_with(ref, args, 3, NULL, &r, NULL, 0) == YARD_OK ? r.kernel : "none";
}

static int policies(yard_op_ref_t* ref, const yard_value_t* args) {
  static const char kReference[] = "version: \"1.0\"\npolicy: {prefer: reference}\n";
  static const char kDeny[] = "version: \"1.0\"\nkernel_denies: [reference.c]\n";
  static const char kNothing[] = "version: \"1.0\"\n";
  static const char kRule[] =
      "version: \"1.0\"\ndispatch_rules:\n  - {operation: c_add, kernel: reference.c}\n";
  static const char kPath[] = "c_api_use_rules.yaml";
  char error[512] = "";
  FILE* file;
  yard_scope_t *outer, *inner;
  yard_handle_t* h = yard_bind(ref, args, 3, error, sizeof error);
  CHECK(h != NULL && strcmp(served_by(ref, args), "default.c") == 0);

  CHECK(yard_set_policy(kReference, NULL, error, sizeof error) == YARD_OK);
  CHECK(strcmp(served_by(ref, args), "reference.c") == 0);
  CHECK(yard_call_handle(h, args, 3, error, sizeof error) == YARD_OK);
  CHECK(yard_set_policy(kNothing, NULL, error, sizeof error) == YARD_OK);
  CHECK(strcmp(served_by(ref, args), "default.c") == 0);

  outer = yard_enter_scope(kReference, NULL, error, sizeof error);
  CHECK(outer != NULL && strcmp(served_by(ref, args), "reference.c") == 0);
  inner = yard_enter_scope(kDeny, NULL, error, sizeof error);
  CHECK(inner != NULL && strcmp(served_by(ref, args), "default.c") == 0);
  CHECK(yard_leave_scope(outer, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "entered last") != NULL);
  CHECK(yard_leave_scope(NULL, error, sizeof error) == YARD_CALLER);
  CHECK(yard_leave_scope(inner, error, sizeof error) == YARD_OK);
  CHECK(yard_leave_scope(inner, error, sizeof error) == YARD_CALLER); /* left already */
  CHECK(strcmp(served_by(ref, args), "reference.c") == 0);
  CHECK(yard_leave_scope(outer, error, sizeof error) == YARD_OK);
  CHECK(strcmp(served_by(ref, args), "default.c") == 0);

  CHECK(yard_load_rules(kRule, NULL, error, sizeof error) == YARD_OK);
  CHECK(strcmp(served_by(ref, args), "reference.c") == 0);
  CHECK(yard_load_rules("version: \"1.0\"\ndispatch_rules: 3\n", NULL, error, sizeof error) ==
        YARD_CALLER);
  CHECK(strstr(error, "text:2:") != NULL);
  CHECK(strcmp(served_by(ref, args), "reference.c") == 0);
  CHECK(yard_load_rules(kNothing, NULL, error, sizeof error) == YARD_OK);
  CHECK(strcmp(served_by(ref, args), "default.c") == 0);

  file = fopen(kPath, "w");
  CHECK(file != NULL && fputs(kReference, file) >= 0 && fclose(file) == 0);
  CHECK(yard_load_rules(NULL, kPath, error, sizeof error) == YARD_OK);
  CHECK(strcmp(served_by(ref, args), "reference.c") == 0);
  CHECK(yard_load_rules(NULL, "", error, sizeof error) == YARD_OK);
  CHECK(strcmp(served_by(ref, args), "default.c") == 0);
  outer = yard_enter_scope(NULL, kPath, error, sizeof error);
  CHECK(outer != NULL && strcmp(served_by(ref, args), "reference.c") == 0);
  CHECK(yard_leave_scope(outer, error, sizeof error) == YARD_OK);
  CHECK(yard_set_policy(NULL, kPath, error, sizeof error) == YARD_OK);
  CHECK(strcmp(served_by(ref, args), "reference.c") == 0);
  CHECK(yard_set_policy(kNothing, NULL, error, sizeof error) == YARD_OK);
  CHECK(remove(kPath) == 0);
  CHECK(yard_load_rules(NULL, kPath, error, sizeof error) == YARD_CALLER);
  CHECK(yard_enter_scope(NULL, kPath, error, sizeof error) == NULL);

  /* Both or neither source, invalid YAML, more than a policy, and an invalid policy. */
  CHECK(yard_set_policy(NULL, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(yard_set_policy(kDeny, kPath, error, sizeof error) == YARD_CALLER);
  CHECK(yard_load_rules(NULL, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(yard_load_rules(kDeny, kPath, NULL, 0) == YARD_CALLER);
  CHECK(yard_enter_scope(NULL, NULL, error, sizeof error) == NULL);
  CHECK(yard_set_policy("{", NULL, error, sizeof error) == YARD_CALLER);
  CHECK(yard_set_policy("", NULL, error, sizeof error) == YARD_CALLER);
  CHECK(yard_set_policy(kRule, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "dispatch_rules") != NULL);
  CHECK(yard_enter_scope(kRule, NULL, error, sizeof error) == NULL);
  CHECK(yard_enter_scope("version: \"1.0\"\npolicy: {prefer: 3}\n", NULL, error, sizeof error) ==
        NULL);
  CHECK(strcmp(served_by(ref, args), "default.c") == 0);
  yard_free_handle(h);
  return 0;
}

/* The state of a kernel that multiplies x by `by` and adds a bias, which is loaded as a weight. */
typedef struct scale {
  double by;
  const yard_tensor_t* bias;
} scale_t;
static int created, destroyed;

static int32_t create(yard_call_t* call, const yard_named_value_t* options, uint32_t count,
                      void** state) {
  scale_t* made = (scale_t*)calloc(1, sizeof *made);
  (void)call;
  if (made == NULL || count != 1 || strcmp(options[0].name, "by") != 0) return YARD_FAULT;
  made->by = options[0].value.u.f;
  *state = made;
  ++created;
  return YARD_OK;
}
static int32_t load(yard_call_t* call, const yard_named_value_t* weights, uint32_t count) {
  scale_t* made = (scale_t*)call->state;
  if (count != 1 || strcmp(weights[0].name, "bias") != 0)
    return call->host->fail(call->host->self, call, YARD_CALLER, "expected the weight 'bias'");
  made->bias = weights[0].value.u.tensor;
  return YARD_OK;
}
static void destroy(void* self, void* state) {
  (void)self;
  free(state);
  __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED); /* states are destroyed on several threads */
}
/* Waits for the end of `count` states, which a call does not do for long on a busy machine. */
static int ends(int count) {
  const struct timespec moment = {0, 10000000};
  int i;
  for (i = 0; i < 1000 && __atomic_load_n(&destroyed, __ATOMIC_RELAXED) != count; ++i)
    thrd_sleep(&moment, NULL);
  return __atomic_load_n(&destroyed, __ATOMIC_RELAXED) == count;
}
static int32_t run_scale(yard_call_t* call, const yard_value_t* args, uint32_t count) {
  const scale_t* s = (const scale_t*)call->state;
  const float* x = (const float*)args[1].u.tensor->data;
  float* out = (float*)args[0].u.tensor->data;
  int64_t i;
  (void)count;
  for (i = 0; i < args[1].u.tensor->shape[0]; ++i)
    out[i] = (float)(s->by * x[i] + (s->bias ? ((const float*)s->bias->data)[0] : 0));
  return YARD_OK;
}
static const yard_op_t scale_op = {.size = sizeof scale_op,
                                   .schema = "c_scale(out!: f32[n], x: f32[n])"};
static const char* const state_fields[] = {"n", NULL};
static const yard_kernel_t scale_kernel = {.size = sizeof scale_kernel,
                                           .op = "c_scale",
                                           .id = "default.c",
                                           .backend = "c_test",
                                           .kind = YARD_KIND_DEFAULT,
                                           .run = run_scale,
                                           .create = create,
                                           .load = load,
                                           .destroy = destroy,
                                           .state_fields = state_fields,
                                           .options_schema = "by: float = 1.0"};
static const yard_op_t* const scale_ops[] = {&scale_op};
static const yard_kernel_t* const scale_kernels[] = {&scale_kernel};
static const yard_plugin_t scale_plugin = {.size = sizeof scale_plugin,
                                           .name = "c_scale",
                                           .version = "1",
                                           .ops = scale_ops,
                                           .op_count = 1,
                                           .backends = backends,
                                           .backend_count = 1,
                                           .kernels = scale_kernels,
                                           .kernel_count = 1};

static yard_value_t number(double f) {
  yard_value_t v = {YARD_TAG_FLOAT, 0, {0}};
  v.u.f = f;
  return v;
}

/* Checks options, weights and the lifetime of states. */
static int instances(const yard_value_t* args, float* out, yard_op_ref_t* other) {
  char error[256] = "";
  float bias[2] = {10, 20};
  const int64_t one = 1, two = 2;
  yard_tensor_t tbias = vector_of(bias, &one), shorter = *args[0].u.tensor, x2 = *args[1].u.tensor;
  yard_named_value_t by = {"by", number(3)}, bad = {"bye", number(3)}, none = {NULL, number(3)};
  yard_named_value_t weight = {"bias", tensor(&tbias)}, wrong = {"bais", tensor(&tbias)};
  const yard_named_value_t named[] = {{NULL, args[0]}, {"x", args[1]}};
  yard_value_t small[2];
  yard_options_t o = {0};
  yard_instance_t *i, *plain;
  yard_op_ref_t* scale;
  CHECK(yard_register(&scale_plugin, error, sizeof error) == YARD_OK);
  scale = yard_find_op("c_scale", error, sizeof error);

  CHECK(yard_make_instance("c_scale", &bad, 1, error, sizeof error) == NULL);
  CHECK(strstr(error, "did you mean 'by'") != NULL);
  CHECK(yard_make_instance("c_scale", &none, 1, error, sizeof error) == NULL);
  CHECK(yard_make_instance("nobody", NULL, 0, error, sizeof error) == NULL);
  CHECK(yard_make_instance(NULL, NULL, 0, NULL, 0) == NULL);
  CHECK(yard_make_instance("c_scale", NULL, 1, error, sizeof error) == NULL);
  i = yard_make_instance("c_scale", &by, 1, error, sizeof error);
  plain = yard_make_instance("c_scale", NULL, 0, error, sizeof error);
  CHECK(i != NULL && plain != NULL && created == 0);

  o.size = sizeof o, o.instance = i;
  CHECK(yard_call_with(scale, args, 2, &o, NULL, error, sizeof error) == YARD_OK && out[3] == 12);
  CHECK(yard_call_named("c_scale", named, 2, &o, NULL, error, sizeof error) == YARD_OK);
  CHECK(created == 1 && yard_count_states(i) == 1 && yard_count_states(plain) == 0);
  CHECK(yard_call_with(other, args, 2, &o, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "expected one of op 'c_add', got one of op 'c_scale'") != NULL);
  CHECK(yard_load_weights(i, &weight, 1, error, sizeof error) == YARD_OK);
  CHECK(created == 1 && ends(1) && yard_count_states(i) == 0);
  CHECK(yard_call_with(scale, args, 2, &o, NULL, error, sizeof error) == YARD_OK && out[3] == 22);
  shorter.shape = x2.shape = &two, shorter.facts = x2.facts = 0;
  small[0] = tensor(&shorter), small[1] = tensor(&x2);
  CHECK(yard_call_with(scale, small, 2, &o, NULL, error, sizeof error) == YARD_OK && out[1] == 16);
  CHECK(yard_count_states(i) == 2); /* one for each n */
  CHECK(yard_load_weights(i, &wrong, 1, error, sizeof error) != YARD_OK ||
        yard_call_with(scale, args, 2, &o, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "bais") != NULL || strstr(error, "'bias'") != NULL);
  weight.value = number(1);
  CHECK(yard_load_weights(i, &weight, 1, error, sizeof error) == YARD_CALLER);
  by.value.tag = YARD_TAG_STRING, by.value.count = 3, by.value.u.string = NULL;
  CHECK(yard_make_instance("c_scale", &by, 1, error, sizeof error) == NULL);
  CHECK(strstr(error, "invalid value 0 'by': expected a string, got NULL") != NULL);
  CHECK(yard_load_weights(i, &by, 1, error, sizeof error) == YARD_CALLER);
  CHECK(yard_call_named("c_scale", &by, 1, NULL, NULL, error, sizeof error) == YARD_CALLER);
  CHECK(strstr(error, "expected a string, got NULL") != NULL);
  CHECK(yard_load_weights(i, NULL, 1, error, sizeof error) == YARD_CALLER);
  CHECK(yard_load_weights(NULL, NULL, 0, error, sizeof error) == YARD_CALLER);

  o.instance = plain; /* the default of `by` */
  CHECK(yard_call_with(scale, args, 2, &o, NULL, error, sizeof error) == YARD_OK && out[3] == 4);
  o.size = (uint32_t)((char*)&o.instance - (char*)&o), o.instance = i; /* an older program */
  CHECK(yard_call_with(scale, args, 2, &o, NULL, error, sizeof error) == YARD_OK && out[3] == 4);
  yard_free_instance(i), yard_free_instance(plain), yard_free_instance(NULL);
  CHECK(yard_count_states(NULL) == 0 && yard_state_bytes(NULL) == 0);
  CHECK(ends(created - 1)); /* that of plain calls stays with the runtime */
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
  tx.facts = ~0ull; /* ignored */
  args[0] = tensor(&tout), args[1] = tensor(&tx), args[2] = integer(2);
  if ((line = calls(ref, args, out)) != 0) return line;
  if ((line = handles(ref, args, out)) != 0) return line;
  if ((line = policies(ref, args)) != 0) return line;
  if ((line = texts()) != 0) return line;
  if ((line = instances(args, out, ref)) != 0) return line;
  if ((line = nulls(ref, args)) != 0) return line;
  hollow[0] = tensor(NULL), hollow[1] = args[1], hollow[2] = args[2];
  CHECK(yard_call(ref, hollow, 3, error, sizeof error) == YARD_CALLER);
  tx.data = NULL, tx.facts = 0;
  CHECK(yard_call(ref, args, 3, error, sizeof error) == YARD_CALLER &&
        strstr(error, "'x'") != NULL);
  return 0;
}
