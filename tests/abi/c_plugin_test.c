/* SPDX-License-Identifier: Apache-2.0 */
/* Plays the host in C11: asks the plugin of c_plugin.c for its descriptor and runs the kernels that
 * the plugin offers. The library is not linked, which shows that plugin.h does not need the
 * library. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yard/plugin.h>

static int failures;
#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

static int32_t host_fail(void* self, yard_call_t* call, int32_t code, const char* format, ...) {
  va_list list;
  (void)self;
  va_start(list, format);
  vsnprintf(call->error, call->error_size, format, list);
  va_end(list);
  return code;
}

/* Splits the work in two, so that a kernel that ignores `begin` fails the test. */
static int32_t host_parallel_for(void* self, int64_t count, int64_t grain,
                                 void (*body)(void* context, int64_t begin, int64_t end),
                                 void* context) {
  (void)self, (void)grain;
  body(context, 0, count / 2);
  body(context, count / 2, count);
  return YARD_OK;
}

static const yard_host_t host = {.size = sizeof host,
                                 .abi = YARD_ABI_VERSION,
                                 .fail = host_fail,
                                 .parallel_for = host_parallel_for};

static yard_tensor_t tensor(float* data, const int64_t* shape, const int64_t* strides) {
  yard_tensor_t t = {.data = data, .device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}};
  t.shape = shape, t.strides = strides;
  return t;
}

static void test_descriptors(const yard_plugin_t* p) {
  CHECK(p->size == sizeof *p);
  CHECK(p->abi == YARD_ABI_VERSION);
  CHECK(p->backend_count == 1 && p->op_count == 1 && p->kernel_count == 2 &&
        p->function_count == 0);
  CHECK(strcmp(p->kernels[1]->id, "vendor.acme") == 0);
  CHECK(p->kernels[1]->limit_count == 3);
  CHECK(p->kernels[1]->create == NULL && p->kernels[1]->param_count == 0);
  CHECK(yard_plugin_query(YARD_ABI_VERSION, &host) == p); /* pure: the same every time */
}

static void test_run(const yard_kernel_t* reference, const yard_kernel_t* fast) {
  enum { kCount = 5 };
  const int64_t shape[] = {kCount}, twice[] = {2};
  float x[2 * kCount] = {1, 0, 2, 0, 3, 0, 4, 0, 5, 0}, dense[kCount] = {1, 2, 3, 4, 5};
  float out[kCount] = {0}, expected[kCount] = {0};
  _Alignas(64) char workspace[64];
  char error[64] = "";
  yard_tensor_t to = tensor(out, shape, NULL), te = tensor(expected, shape, NULL);
  const yard_tensor_t tx = tensor(x, shape, twice), td = tensor(dense, shape, NULL);
  yard_value_t args[3] = {
      {.tag = YARD_TAG_TENSOR}, {.tag = YARD_TAG_TENSOR}, {.tag = YARD_TAG_FLOAT}};
  yard_call_t call = {.size = sizeof call, .host = &host, .workspace = workspace};
  int32_t (*typed)(yard_call_t*, const yard_tensor_t*, const yard_tensor_t*, double);
  int i;
  call.error = error, call.error_size = sizeof error;
  args[0].u.tensor = &te, args[1].u.tensor = &tx, args[2].u.f = 2.5;
  CHECK(reference->run(&call, args, 3) == YARD_OK);

  CHECK(fast->workspace(fast->self, args, 3) == 64);
  call.workspace_size = sizeof workspace;
  args[0].u.tensor = &to, args[1].u.tensor = &td;
  CHECK(fast->run(&call, args, 3) == YARD_OK);
  for (i = 0; i < kCount; ++i) CHECK(expected[i] == dense[i] * 2.5f && out[i] == expected[i]);

  CHECK(strcmp(fast->typed_signature, "ttf") == 0);
  typed = (int32_t(*)(yard_call_t*, const yard_tensor_t*, const yard_tensor_t*, double))fast->typed;
  CHECK(typed(&call, &to, &td, -1.0) == YARD_OK);
  for (i = 0; i < kCount; ++i) CHECK(out[i] == -dense[i]);

  CHECK(typed(&call, &to, &td, 0.0) == YARD_DECLINED);
  CHECK(strcmp(error, "cannot scale by 0") == 0);
  CHECK(fast->run(&call, args, 2) == YARD_FAULT);
}

static void test_choice(const yard_backend_t* backend, const yard_kernel_t* fast) {
  const yard_device_t cpu = {1, 0}, cuda = {2, 0};
  yard_verdict_t verdict = {0};
  int64_t n = 12;
  yard_query_t query = {.size = sizeof query, .host = &host, .device = {1, 0}};
  CHECK(backend->probe(backend->self, &host, cpu, &verdict) == YARD_OK);
  CHECK(verdict.reason == YARD_REASON_NONE);
  CHECK(backend->probe(backend->self, &host, cuda, &verdict) == YARD_DECLINED);
  CHECK(verdict.reason == YARD_REASON_DEVICE && verdict.figures[0] == 2);

  memset(&verdict, 0, sizeof verdict);
  query.read = &n;
  CHECK(fast->verify(&query, &verdict) == YARD_OK && verdict.reason == YARD_REASON_NONE);
  n = 13;
  CHECK(fast->verify(&query, &verdict) == YARD_OK && verdict.reason == YARD_REASON_OWN);
  CHECK(verdict.figures[0] == 13);
  n = 1024;
  CHECK(fast->cost(fast->self, &n, 1) == 356.0);
  CHECK(fast->cost(fast->self, &n, 0) < 0);
}

int main(void) {
  const yard_plugin_t* p = yard_plugin_query(YARD_ABI_VERSION, &host);
  CHECK(p != NULL);
  test_descriptors(p);
  test_run(p->kernels[0], p->kernels[1]);
  test_choice(p->backends[0], p->kernels[1]);
  if (failures == 0) puts("ok");
  return failures != 0;
}
