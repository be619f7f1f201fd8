/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program in C11. Headers and library have one version, an op runs, and a wrong call is
 * refused. */
#include <stdio.h>
#include <string.h>
#include <yard/c.h>
#include <yard/version.h>

static yard_tensor_t tensor(float* data, int32_t rank, const int64_t* shape) {
  yard_tensor_t t = {.data = data, .device = {1, 0}, .ndim = rank, .dtype = {2, 32, 1}};
  t.shape = shape;
  return t;
}

int main(void) {
  const int64_t shape[] = {2, 4};
  float x[8] = {2, 2, 2, 2, 2, 2, 2, 2}, weight[4] = {1, 2, 3, 4}, out[8] = {0};
  yard_tensor_t tx = tensor(x, 2, shape), tw = tensor(weight, 1, shape + 1);
  yard_tensor_t to = tensor(out, 2, shape);
  yard_value_t args[4] = {{.tag = YARD_TAG_TENSOR, .u = {.tensor = &to}},
                          {.tag = YARD_TAG_TENSOR, .u = {.tensor = &tx}},
                          {.tag = YARD_TAG_TENSOR, .u = {.tensor = &tw}},
                          {.tag = YARD_TAG_FLOAT, .u = {.f = 1e-6}}};
  char error[512] = "";
  yard_op_ref_t* op = yard_find_op("rms_norm", error, sizeof error);
  int i;
  if (!op || yard_call(op, args, 4, error, sizeof error) != YARD_OK) {
    puts(error);
    return 1;
  }
  for (i = 0; i < 8; ++i) {
    const float difference = out[i] - weight[i % 4];
    if (difference > 1e-4f || difference < -1e-4f) return 2;
  }
  if (yard_call(op, args, 3, error, sizeof error) != YARD_CALLER || error[0] == '\0') return 3;
  if (yard_find_op("no_such_op", NULL, 0) != NULL) return 4;
  if (strcmp(yard_version(), YARD_VERSION) != 0) return 5;
  printf("switchyard %s\n", yard_version());
  return 0;
}
