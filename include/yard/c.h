/* SPDX-License-Identifier: Apache-2.0 */
/* Calls ops from C, and from any language that can call C, on the process's shared runtime.
 *
 *   yard_op_ref_t* op = yard_find_op("rms_norm", error, sizeof error);
 *   yard_value_t args[4] = {...};
 *   if (yard_call(op, args, 4, error, sizeof error) != YARD_OK) puts(error);
 *
 * Functions return a yard_code_t (YARD_TRANSIENT without memory), or a pointer that is NULL on
 * failure. A function that fails writes a NUL-terminated message into `error`, which may be NULL.
 * No function throws. Any thread may call any function. */
#pragma once

#include <yard/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define YARD_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
#define YARD_DTYPE(code, bits, lanes) (yard_dtype_t{code, bits, lanes})
#else
#define YARD_DTYPE(code, bits, lanes) ((yard_dtype_t){code, bits, lanes})
#endif
#define YARD_DTYPE_F64 YARD_DTYPE(2, 64, 1)
#define YARD_DTYPE_F32 YARD_DTYPE(2, 32, 1)
#define YARD_DTYPE_F16 YARD_DTYPE(2, 16, 1)
#define YARD_DTYPE_BF16 YARD_DTYPE(4, 16, 1)
#define YARD_DTYPE_F8E4M3 YARD_DTYPE(10, 8, 1)
#define YARD_DTYPE_F8E5M2 YARD_DTYPE(12, 8, 1)
#define YARD_DTYPE_I4 YARD_DTYPE(0, 4, 1)
#define YARD_DTYPE_I8 YARD_DTYPE(0, 8, 1)
#define YARD_DTYPE_I16 YARD_DTYPE(0, 16, 1)
#define YARD_DTYPE_I32 YARD_DTYPE(0, 32, 1)
#define YARD_DTYPE_I64 YARD_DTYPE(0, 64, 1)
#define YARD_DTYPE_U4 YARD_DTYPE(1, 4, 1)
#define YARD_DTYPE_U8 YARD_DTYPE(1, 8, 1)
#define YARD_DTYPE_U16 YARD_DTYPE(1, 16, 1)
#define YARD_DTYPE_U32 YARD_DTYPE(1, 32, 1)
#define YARD_DTYPE_U64 YARD_DTYPE(1, 64, 1)
#define YARD_DTYPE_BOOL YARD_DTYPE(6, 8, 1)
/* Block-quantised types, as in GGUF. */
#define YARD_DTYPE_Q8_0 YARD_DTYPE(0x81, 34, 32)
#define YARD_DTYPE_Q4_0 YARD_DTYPE(0x82, 18, 32)
#define YARD_DTYPE_Q4_1 YARD_DTYPE(0x83, 20, 32)
#define YARD_DTYPE_Q4_K YARD_DTYPE(0x84, 144, 256)
#define YARD_DTYPE_Q6_K YARD_DTYPE(0x85, 210, 256)

typedef struct yard_op_ref yard_op_ref_t;     /* an op; valid for the life of the process */
typedef struct yard_instance yard_instance_t; /* an op with its own options and weights */
typedef struct yard_handle yard_handle_t;     /* an op whose kernel was found in advance */
typedef struct yard_scope yard_scope_t;       /* a policy for the calls of one thread */

/* The options of one call. A field that is zero asks for nothing. */
typedef struct yard_options {
  uint32_t size;
  uint32_t flags;          /* YARD_CALL_DETERMINISTIC, _CAPTURING, _INFERENCE, YARD_OPTION_* */
  const char* force;       /* kernel id */
  const char* const* deny; /* globs over kernel ids, NULL-terminated */
  const char* mode;        /* "auto", "static", ... or a mode of the program; NULL means as set */
  int64_t deadline_ns;     /* from now; 0 means none, and a negative one has passed */
  const yard_named_value_t* labels; /* string values */
  uint32_t label_count;
  uint32_t prefer;                 /* yard_kind_t; 0 means as the policy says */
  const yard_instance_t* instance; /* of the op; NULL means that plain calls share state */
} yard_options_t;
#define YARD_OPTION_NO_CACHE 0x100u
#define YARD_OPTION_STRICT 0x400u
#define YARD_OPTION_NO_TRANSFORMS 0x800u /* arguments are not copied for kernels */

typedef struct yard_result {
  uint32_t size;
  uint32_t attempts;
  char kernel[136]; /* id of the kernel that ran last, with at most 128 characters */
  int64_t select_ns, run_ns;
  uint32_t cached;
  uint32_t fallback_from;  /* yard_code_t of the first failure */
  int64_t pre_ns, post_ns; /* copying arguments before a kernel, and its results after it */
} yard_result_t;

YARD_C_API yard_op_ref_t* yard_find_op(const char* name, char* error, size_t error_size);

/* Takes the schema's arguments in order (tag NONE if absent). Reads none if `count` is wrong. */
YARD_C_API int32_t yard_call(yard_op_ref_t* op, const yard_value_t* args, uint32_t count,
                             char* error, size_t error_size);
YARD_C_API int32_t yard_call_with(yard_op_ref_t* op, const yard_value_t* args, uint32_t count,
                                  const yard_options_t* options, yard_result_t* result, char* error,
                                  size_t error_size);

/* Takes positional arguments (name NULL), then named ones, and fills in the schema's defaults. */
YARD_C_API int32_t yard_call_named(const char* op, const yard_named_value_t* args, uint32_t count,
                                   const yard_options_t* options, yard_result_t* result,
                                   char* error, size_t error_size);

/* Makes a handle for calls on tensors of one form: dtypes, shapes, strides and alignment of data.
 * The handle follows changes. `args` are as for yard_call, but scalars may be absent (tag NONE). */
YARD_C_API yard_handle_t* yard_bind(yard_op_ref_t* op, const yard_value_t* args, uint32_t count,
                                    char* error, size_t error_size);
/* Checks the tags, and that tensors are present and have data. The caller is responsible for the
 * form of tensors and for the limits that the schema sets to scalars. */
YARD_C_API int32_t yard_call_handle(const yard_handle_t* handle, const yard_value_t* args,
                                    uint32_t count, char* error, size_t error_size);
/* No call may use the handle any more. Accepts NULL. */
YARD_C_API void yard_free_handle(yard_handle_t* handle);

/* Makes an instance for yard_options_t. Fails unless a kernel of the op accepts the options. */
YARD_C_API yard_instance_t* yard_make_instance(const char* op, const yard_named_value_t* options,
                                               uint32_t count, char* error, size_t error_size);
/* Replaces the weights, also while others call. Copies descriptors. The data must stay until other
 * weights are loaded, or the instance is freed, and earlier calls have ended. */
YARD_C_API int32_t yard_load_weights(yard_instance_t* instance, const yard_named_value_t* weights,
                                     uint32_t count, char* error, size_t error_size);
YARD_C_API size_t yard_count_states(const yard_instance_t* instance);
YARD_C_API uint64_t yard_state_bytes(const yard_instance_t* instance);
/* Frees the instance with its states, which no call may use any more. Accepts NULL. */
YARD_C_API void yard_free_instance(yard_instance_t* instance);

/* Writes the id of the kernel that would run the call into `kernel`. */
YARD_C_API int32_t yard_resolve(const char* call_spec, const yard_options_t* options, char* kernel,
                                size_t kernel_size, char* error, size_t error_size);
/* Writes JSON. Returns YARD_TRANSIENT if it needs more than `json_size`. `needed` may be NULL. */
YARD_C_API int32_t yard_explain(const char* call_spec, const yard_options_t* options, char* json,
                                size_t json_size, size_t* needed, char* error, size_t error_size);

/* Each function takes YAML (docs/reference/rules.md) as a text or as the path of a file; the other
 * is NULL. A policy may have only the sections `policy`, `kernel_locks`, `kernel_denies` and
 * `kernel_allows`. yard_set_policy replaces the policy that the program set before. */
YARD_C_API int32_t yard_set_policy(const char* yaml, const char* path, char* error,
                                   size_t error_size);
/* Replaces the rules in force. Nothing changes if the new rules are refused. */
YARD_C_API int32_t yard_load_rules(const char* yaml, const char* path, char* error,
                                   size_t error_size);
/* Adds a scope for the calls of this thread, which lasts until the thread leaves the scope. */
YARD_C_API yard_scope_t* yard_enter_scope(const char* yaml, const char* path, char* error,
                                          size_t error_size);
/* Leaves and frees the scope, which must be the one that this thread entered last. */
YARD_C_API int32_t yard_leave_scope(yard_scope_t* scope, char* error, size_t error_size);

/* Registers everything that a descriptor lists, or nothing. */
YARD_C_API int32_t yard_register(const yard_plugin_t* plugin, char* error, size_t error_size);

YARD_C_API const char* yard_version(void); /* "0.1.0" */

#ifdef __cplusplus
} /* extern "C" */
#endif
