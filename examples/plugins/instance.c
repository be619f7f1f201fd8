/* SPDX-License-Identifier: Apache-2.0 */
/* Calls an op with options and weights from C. YARD_PLUGINS must name the plugin of c_state.c. */
#include <stdio.h>
#include <yard/c.h>

int main(void) {
  char error[512] = "";
  const int64_t shape[2] = {1, 4}, columns[1] = {4};
  float x[4] = {1, 2, 3, 4}, b[4] = {10, 10, 10, 10}, out[4] = {0};
  yard_tensor_t tx = {.data = x, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1}, .shape = shape};
  yard_tensor_t tout = tx, bias = tx;
  tout.data = out, bias.data = b, bias.ndim = 1, bias.shape = columns;
  yard_value_t args[2] = {{.tag = YARD_TAG_TENSOR, .u = {.tensor = &tout}},
                          {.tag = YARD_TAG_TENSOR, .u = {.tensor = &tx}}};
  yard_op_ref_t* op = yard_find_op("example_affine", error, sizeof error);

  /* [make] */
  yard_named_value_t by = {"by", {.tag = YARD_TAG_FLOAT, .u = {.f = 2.0}}};
  yard_instance_t* instance = yard_make_instance("example_affine", &by, 1, error, sizeof error);
  /* [/make] */
  if (!op || !instance) return puts(error), 1;

  /* [load] */
  yard_named_value_t weight = {"bias", {.tag = YARD_TAG_TENSOR, .u = {.tensor = &bias}}};
  int32_t code = yard_load_weights(instance, &weight, 1, error, sizeof error);
  /* [/load] */
  if (code != YARD_OK) return puts(error), 2;

  /* [call] */
  yard_options_t with = {.size = sizeof with, .instance = instance};
  code = yard_call_with(op, args, 2, &with, NULL, error, sizeof error); /* makes the state */
  /* [/call] */
  if (code != YARD_OK) return puts(error), 3;
  if (out[3] != 2 * 4 + 10) return 4;
  if (yard_count_states(instance) != 1) return 5;

  /* [free] */
  yard_free_instance(instance); /* its states are destroyed; b may go now */
  /* [/free] */
  return 0;
}
