/* SPDX-License-Identifier: Apache-2.0 */
/* Calls an op from C. */
#include <stdio.h>
#include <string.h>
#include <yard/c.h>

int main(void) {
  char error[512] = "";
  /* [tensors] */
  const int64_t shape[2] = {2, 4};
  float x[8] = {2, 2, 2, 2, 2, 2, 2, 2}, out[8] = {0};
  yard_tensor_t tx = {
      .data = x, .device = {1, 0}, .ndim = 2, .dtype = YARD_DTYPE_F32, .shape = shape};
  yard_tensor_t tout = tx;
  tout.data = out;
  /* [/tensors] */

  /* [call] */
  yard_op_ref_t* op = yard_find_op("softmax", error, sizeof error);
  yard_value_t args[2] = {{.tag = YARD_TAG_TENSOR, .u = {.tensor = &tout}},
                          {.tag = YARD_TAG_TENSOR, .u = {.tensor = &tx}}};
  if (!op || yard_call(op, args, 2, error, sizeof error) != YARD_OK) {
    puts(error);
    return 1;
  }
  /* [/call] */
  if (out[0] < 0.249f || out[0] > 0.251f) return 2;

  /* [options] */
  yard_options_t options = {.size = sizeof options, .force = "reference.cpp"};
  yard_result_t result = {.size = sizeof result};
  if (yard_call_with(op, args, 2, &options, &result, error, sizeof error) == YARD_OK)
    printf("%s, %u kernel(s) tried\n", result.kernel, result.attempts);
  /* [/options] */
  if (strcmp(result.kernel, "reference.cpp") != 0) return 3;

  /* [handle] */
  yard_handle_t* softmax = yard_bind(op, args, 2, error, sizeof error);
  if (!softmax || yard_call_handle(softmax, args, 2, error, sizeof error) != YARD_OK) puts(error);
  yard_free_handle(softmax);
  /* [/handle] */

  result.kernel[0] = '\0';
  /* [policy] */
  const char* careful =
      "version: \"1.0\"\n"
      "policy: {prefer: reference, strict: true}\n";
  yard_scope_t* scope = yard_enter_scope(careful, NULL, error, sizeof error);
  if (yard_call_with(op, args, 2, NULL, &result, error, sizeof error) == YARD_OK)
    puts(result.kernel); /* reference.cpp */
  yard_leave_scope(scope, error, sizeof error);
  if (yard_load_rules(NULL, "/etc/acme/rules.yaml", error, sizeof error) != YARD_OK) puts(error);
  /* [/policy] */
  if (strcmp(result.kernel, "reference.cpp") != 0) return 5;

  /* [explain] */
  char json[4096];
  if (yard_explain("softmax(f32[2,4])@cpu", NULL, json, sizeof json, NULL, error, sizeof error) ==
      YARD_OK)
    puts(json);
  /* [/explain] */
  if (strstr(json, "\"verdict\": \"selected\"") == NULL) return 4;
  return 0;
}
