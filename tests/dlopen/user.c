/* SPDX-License-Identifier: Apache-2.0
 * A shared library that links Switchyard, as a plugin of another program does, and makes a call. */
#include <stdio.h>
#include <yard/c.h>

__attribute__((visibility("default"))) int call_from_library(void);

int call_from_library(void) {
  char error[256] = "";
  float x[4] = {1, 2, 3, 4}, weight[4] = {1, 1, 1, 1}, out[4] = {0, 0, 0, 0};
  int64_t rows[2] = {1, 4}, columns[1] = {4};
  const yard_device_t cpu = {1, 0};
  const yard_dtype_t f32 = {2, 32, 1};
  yard_tensor_t to = {.data = out, .device = cpu, .ndim = 2, .dtype = f32, .shape = rows};
  yard_tensor_t from = {.data = x, .device = cpu, .ndim = 2, .dtype = f32, .shape = rows};
  yard_tensor_t by = {.data = weight, .device = cpu, .ndim = 1, .dtype = f32, .shape = columns};
  yard_value_t args[4] = {{YARD_TAG_TENSOR, 0, {.tensor = &to}},
                          {YARD_TAG_TENSOR, 0, {.tensor = &from}},
                          {YARD_TAG_TENSOR, 0, {.tensor = &by}},
                          {YARD_TAG_FLOAT, 0, {.f = 1e-6}}};
  yard_op_ref_t* const op = yard_find_op("rms_norm", error, sizeof error);
  if (op == NULL || yard_call(op, args, 4, error, sizeof error) != YARD_OK) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  return out[3] > 1 && out[3] < 2 ? 0 : 1;
}
