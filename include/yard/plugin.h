/* SPDX-License-Identifier: Apache-2.0 */
/* The C ABI between Switchyard and the kernels that it runs. Kernel vendors need only this file and
 * abi.h, which are C11 and may be copied. docs/guides/writing_plugins.md shows a whole plugin.
 *
 *  - A library exports `yard_plugin_query`, which any thread may call many times. It returns a
 *    constant descriptor, or NULL if it cannot serve that host.
 *  - Structs that may grow begin with their size, grow only at the end, and are passed in arrays of
 *    pointers. The host reads what lies beyond the stated size as zero, and ignores fields that it
 *    does not know. Zero is always a valid default.
 *  - No C++ type, exception, allocation or errno crosses. Strings are UTF-8, end in NUL, and belong
 *    to the side that gave them. The host copies descriptors, so they may be on the stack. Function
 *    and `self` pointers stay in use until the kernel has been removed.
 *  - A library carries a YARD_MANIFEST, which is read before any of its code runs.
 *  - A function returns a code and leaves its message in the call's buffer. Several threads may
 *    call it at once.
 */
#pragma once

/* clang-format off */ /* laid out manually: tables read better than one item a line */

#include <yard/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version 0 may still change; 1 will be frozen. The smaller one of host and plugin is in effect. */
#define YARD_ABI_VERSION 0u
#define YARD_ABI_TEXT "0" /* for manifests */

/* Block-quantised types, as in GGUF. Shape and strides count elements. The last dimension is a
 * multiple of a block and has stride 1; other strides are multiples of a block. */
#define YARD_BLOCK_CODE 0x80
static inline int yard_is_blocks(yard_dtype_t t) { return t.code >= YARD_BLOCK_CODE; }
static inline int64_t yard_unit_elements(yard_dtype_t t) { return yard_is_blocks(t) ? t.lanes : 1; }
static inline int64_t yard_unit_bytes(yard_dtype_t t) {
  return yard_is_blocks(t) ? t.bits : (t.bits + 7) / 8;
}

/* Reasons why a candidate was not selected (docs/reference/reasons.md). A kernel's own reasons are
 * YARD_REASON_OWN + i, where i indexes its `reasons`. */
typedef enum yard_reason {
  YARD_REASON_NONE = 0, YARD_REASON_DENIED_KERNEL = 1,
  YARD_REASON_DENIED_VENDOR = 2, YARD_REASON_NOT_ALLOWED_KERNEL = 3,
  YARD_REASON_NOT_ALLOWED_VENDOR = 4, YARD_REASON_NOT_IN_ORDER = 5,
  YARD_REASON_NOT_FORCED = 6, YARD_REASON_LOCKED_OUT = 7,
  YARD_REASON_DISABLED = 8, YARD_REASON_UNAVAILABLE = 9,
  YARD_REASON_CPU_FEATURE = 10, YARD_REASON_FORKED = 11,
  YARD_REASON_DEVICE = 12, YARD_REASON_DTYPE = 13,
  YARD_REASON_RANK = 14, YARD_REASON_DIM_TOO_SMALL = 15,
  YARD_REASON_DIM_TOO_LARGE = 16, YARD_REASON_DIM_NOT_MULTIPLE = 17,
  YARD_REASON_LAYOUT = 18, YARD_REASON_ALIGNMENT = 19,
  YARD_REASON_SCALAR = 20, YARD_REASON_OPTIONAL_PRESENT = 21,
  YARD_REASON_OPTIONAL_ABSENT = 22, YARD_REASON_NOT_DETERMINISTIC = 23,
  YARD_REASON_NOT_CAPTURE_SAFE = 24, YARD_REASON_INFERENCE_ONLY = 25,
  YARD_REASON_VERIFIER_BROKEN = 26, YARD_REASON_UNHEALTHY = 27,
  YARD_REASON_REFERENCE_ONLY = 28, YARD_REASON_OUTRANKED = 29,
  YARD_REASON_REFUSED = 30, YARD_REASON_NOT_MAPPED = 31,
  YARD_REASON_DEVICE_FEATURE = 32, YARD_REASON_TRANSFORM = 33,
  YARD_REASON_NOT_LOADED = 34,
  YARD_REASON_COUNT,
  YARD_REASON_OWN = 1000,
} yard_reason_t;

/* The n-th figure replaces {n} in the text of the reason. */
typedef struct yard_verdict {
  int32_t reason; /* yard_reason_t; YARD_REASON_NONE accepts */
  uint32_t flags; /* from the host, for verifiers of functions: YARD_CALL_* of the caller's scope */
  int64_t figures[3];
} yard_verdict_t;

typedef struct yard_named_value {
  const char* name;
  yard_value_t value;
} yard_named_value_t;

/* The tensor properties that dispatch reads. Bits: 0-5 dtype, 6-10 device type, 11-18 device
 * index, 19-22 rank, 23 compact row-major, 24 inner dimension dense, 25 no zero or negative stride
 * and no overlap with itself, 26-29 log2 of alignment, 31 always set, 32-63 span in units of 64
 * bytes, rounded up (all ones if unknown). Kernels may find 0 in `facts`. */
#define YARD_FACTS_DTYPE 0x3full
#define YARD_FACTS_DEVICE (0x1fffull << 6)
#define YARD_FACTS_RANK_SHIFT 19
#define YARD_FACTS_RANK (0xfull << 19)
#define YARD_FACTS_COMPACT (1ull << 23)
#define YARD_FACTS_INNER_DENSE (1ull << 24)
#define YARD_FACTS_PLAIN (1ull << 25)
#define YARD_FACTS_ALIGN_SHIFT 26
#define YARD_FACTS_ALIGN (0xfull << 26)
#define YARD_FACTS_VALID (1ull << 31)
#define YARD_FACTS_SPAN_SHIFT 32
#define YARD_FACTS_SPAN_UNKNOWN 0xffffffffull

/* Returns 0 for an unknown dtype. */
static inline uint32_t yard_dtype_index(yard_dtype_t t) {
  if (yard_is_blocks(t)) {
    switch ((t.code << 24) | (t.bits << 16) | t.lanes) {
      case (int)0x81220020: return YARD_Q8_0; case (int)0x82120020: return YARD_Q4_0;
      case (int)0x83140020: return YARD_Q4_1; case (int)0x84900100: return YARD_Q4_K;
      case (int)0x85d20100: return YARD_Q6_K; default: return 0;
    }
  }
  if (t.lanes != 1) return 0;
  switch ((t.code << 8) | t.bits) {
    case 0x220: return YARD_F32;   case 0x210: return YARD_F16;   case 0x410: return YARD_BF16;
    case 0x240: return YARD_F64;
    case 0xa08: return YARD_F8E4M3; /* DLPack kDLFloat8_e4m3fn */
    case 0xc08: return YARD_F8E5M2; /* DLPack kDLFloat8_e5m2 */
    case 0x008: return YARD_I8;    case 0x010: return YARD_I16;   case 0x020: return YARD_I32;
    case 0x040: return YARD_I64;   case 0x108: return YARD_U8;    case 0x110: return YARD_U16;
    case 0x120: return YARD_U32;   case 0x140: return YARD_U64;   case 0x608: return YARD_BOOL;
    case 0x004: return YARD_I4;    case 0x104: return YARD_U4;
    default: return 0;
  }
}

/* ---- The host ------------------------------------------------------------------------------- */

typedef enum yard_log_level {
  YARD_LOG_DEBUG = 1, YARD_LOG_INFO = 2, YARD_LOG_WARN = 3, YARD_LOG_ERROR = 4,
} yard_log_level_t;

/* The functions that the host offers, valid as long as the plugin. */
struct yard_host {
  uint32_t size;
  uint32_t abi; /* the host's version */
  void* self; /* first argument of every function here */
  /* Returns 64-byte aligned memory that outlives a call, for states and weights, or NULL. */
  void* (*allocate)(void* self, yard_device_t device, uint64_t bytes);
  void (*release)(void* self, yard_device_t device, void* memory);
  /* Returns more workspace, valid until run returns, or NULL. */
  void* (*scratch)(void* self, yard_call_t* call, uint64_t bytes);
  void (*log)(void* self, int32_t level, const char* message); /* under the plugin's name */
  /* Writes printf-style text into the call's error buffer and returns `code`. */
  int32_t (*fail)(void* self, yard_call_t* call, int32_t code, const char* format, ...);
  /* Runs body(context, begin, end) over [0, count) in pieces of at least `grain`, on the host's
   * threads in the caller's scope. Returns when all are done. */
  int32_t (*parallel_for)(void* self, int64_t count, int64_t grain,
                          void (*body)(void* context, int64_t begin, int64_t end), void* context);
  int32_t (*concurrency)(void* self); /* threads for parallel_for; `self` may be NULL */
  void* (*stream)(void* self, yard_device_t device); /* the caller's; NULL is the default stream */
  /* Returns 1 if the feature can be used ("avx512f", "sve2"), 0 if not, and -1 for an unknown name.
   * The program states the features of devices other than the cpu. */
  int32_t (*has_feature)(void* self, yard_device_t device, const char* name);
  /* Calls another op in the caller's scope. `count` must be the schema's. Errors go to `call`. */
  int32_t (*call_op)(void* self, yard_call_t* call, const char* op, const yard_value_t* args,
                     uint32_t count);
};

#define YARD_CALL_DETERMINISTIC 1u /* the caller wants the same bits every time */
#define YARD_CALL_CAPTURING 2u     /* a graph is being recorded: no sync, no allocation */
#define YARD_CALL_INFERENCE 4u     /* no gradient will be computed */
#define YARD_CALL_TRACING 8u       /* record, do not compute */
#define YARD_CALL_ALIASED 16u      /* an output shares memory with an input */
#define YARD_CALL_LOADED 32u       /* the instance of the call has loaded weights */

/* A kernel's limits. `field` is a dimension ("n"), an argument ("x") or both ("x.rank"). */
typedef enum yard_limit_kind {
  YARD_LIMIT_DTYPE = 1,    /* argument `field` (NULL: every tensor) has a dtype of the mask `a` */
  YARD_LIMIT_MIN = 2,      /* dimension or integer `field` >= a */
  YARD_LIMIT_MAX = 3,      /* dimension or integer `field` <= a */
  YARD_LIMIT_MULTIPLE = 4, /* dimension or integer `field` % a == 0 */
  YARD_LIMIT_COMPACT = 5,  /* argument `field` (NULL: every tensor) is compact, row-major */
  YARD_LIMIT_INNER_DENSE = 6, /* its last dimension has stride 1 */
  YARD_LIMIT_ALIGN = 7,    /* its data is aligned to `a` bytes */
  YARD_LIMIT_RANK = 8,     /* its rank lies in [a, b] */
  YARD_LIMIT_EQUALS = 9,   /* int, bool or enum argument `field` == a */
  YARD_LIMIT_ABSENT = 10,  /* optional argument `field` is not given */
  YARD_LIMIT_PRESENT = 11, /* optional argument `field` is given */
  YARD_LIMIT_PLAIN = 12,   /* strides are positive and nothing overlaps itself */
} yard_limit_kind_t;

typedef struct yard_limit {
  uint32_t kind, pad_;
  const char* field;
  int64_t a, b;
  int64_t reserved;
} yard_limit_t;

typedef struct yard_query {
  uint32_t size;
  uint32_t flags; /* YARD_CALL_* */
  const yard_host_t* host;
  void* self;
  const yard_value_t* args; /* tensors with data == NULL */
  uint32_t count, pad_;
  const int64_t* read; /* the integer fields of `verify_reads`, in order; INT64_MIN if absent */
  yard_device_t device;
} yard_query_t;

/* One of a kernel's own parameters. Arguments that do not fit are copied into buffers, and written
 * buffers are copied back after a success. Copies add to the kernel's cost. */
typedef struct yard_param {
  uint32_t size;
  uint32_t flags;     /* YARD_PARAM_* */
  const char* name;   /* the kernel's own name, in the order the kernel takes them */
  const char* source; /* the op's parameter; NULL means the one of this name */
  /* The order of dimensions, outermost first: names of the schema ("batch heads seq dim"), letters
   * ("BSHD", "NHD"), "row-major" or "column-major" (the last two swapped). Missing dimensions stay
   * in front. Memory has no gaps unless a flag allows them. NULL keeps the caller's layout. */
  const char* layout;
  /* Mask of accepted dtypes, or 0 for any. Other dtypes are converted to the narrowest accepted one
   * that has all of their values; if none has, the kernel does not take the call. */
  uint64_t dtypes;
  int64_t align; /* of the data in bytes, a power of two up to YARD_MAX_ALIGN; 0 means any */
  int64_t pad;   /* if not 0, zeros fill up the last dimension to a multiple of this */
  yard_value_t constant; /* for PARAM_CONSTANT, not a tensor; YARD_TAG_NONE if never given */
} yard_param_t;
#define YARD_PARAM_CONSTANT 1u /* filled with `constant`, from no parameter of the op */
#define YARD_PARAM_ROWS 2u     /* with `layout`: rows may have gaps between them */
#define YARD_PARAM_STRIDED 4u  /* with `layout`: any strides, in the kernel's order */

/* ---- Descriptors ---------------------------------------------------------------------------- */

/* The reference kernel of an op must come with the op. */
typedef enum yard_kind {
  YARD_KIND_DEFAULT = 1, YARD_KIND_VENDOR = 2, YARD_KIND_REFERENCE = 3,
} yard_kind_t;

/* A family of kernels with one availability probe, one vendor and one switch. */
typedef struct yard_backend {
  uint32_t size;
  uint32_t flags;      /* YARD_BACKEND_* */
  const char* name;    /* [a-z0-9_]+ */
  const char* vendor;  /* may be NULL, except for kernels of kind vendor */
  const char* summary; /* one line */
  int32_t device_type; /* where its kernels run; 0 means cpu */
  int32_t enable;      /* YARD_ENABLE_*, unless policy decides */
  const char* env;     /* a switch variable besides YARD_BACKEND_<NAME>, or NULL */
  void* self;
  /* Tells whether `device` is usable, before the first choice that needs it. NULL means always. */
  int32_t (*probe)(void* self, const yard_host_t* host, yard_device_t device, yard_verdict_t* why);
  /* Returns when the device (any if index is -1) has no work left. NULL if kernels wait for it. */
  int32_t (*quiesce)(void* self, yard_device_t device);
  int32_t (*reset)(void* self, yard_device_t device); /* brings a lost device back, or NULL */
  int32_t (*capture)(void* self, yard_device_t device, void* stream, int32_t begins);
  const char* const* reasons; /* texts for YARD_REASON_OWN + i of probe */
  uint32_t reason_count, pad_;
} yard_backend_t;
#define YARD_BACKEND_FORK_UNSAFE 1u /* holds threads or a device, so a forked child cannot use it */
#define YARD_ENABLE_AUTO 0
#define YARD_ENABLE_ON 1
#define YARD_ENABLE_OFF 2

typedef struct yard_kernel {
  uint32_t size;
  uint32_t flags;      /* YARD_KERNEL_* */
  const char* op;
  const char* id;      /* "vendor.acme", unique within the op */
  const char* backend; /* NULL means the plugin's only backend */
  const char* summary; /* one line */
  int32_t kind;        /* yard_kind_t */
  int32_t priority;    /* higher is better; 0 means 150 (default), 100 (vendor) or 50 (reference) */
  void* self;          /* passed to every function below */
  const yard_limit_t* limits;
  uint32_t limit_count, pad0_;
  /* Features it needs, separated by blanks: of the cpu ("sve2") or of the call's device
   * ("cuda:sm_80" is level 80 or higher, "cuda:sm_80..89" a range, "cuda:sm_90a" that name). */
  const char* features;
  /* Checks what limits cannot express, without side effects. `verify_reads` names the fields that
   * it reads, NULL-terminated; if it is NULL, every new shape is verified. */
  int32_t (*verify)(const yard_query_t* query, yard_verdict_t* verdict);
  const char* const* verify_reads;
  const char* const* reasons; /* texts for YARD_REASON_OWN + i */
  uint32_t reason_count, pad1_;
  /* Returns estimated nanoseconds, or a negative number without an estimate. The host passes the
   * fields of `cost_reads`, rounded down to half octaves. */
  double (*cost)(void* self, const int64_t* fields, uint32_t count);
  const char* const* cost_reads;
  /* Required. Gets packed arguments in the order of `params`, or of the op without `params`. */
  int32_t (*run)(yard_call_t* call, const yard_value_t* args, uint32_t count);
  /* Like run, with arguments in registers: int32_t f(yard_call_t*, A...). Letters of
   * `typed_signature` stand for A and match the op or `params`: t const yard_tensor_t*, i int64_t
   * (also enums), b int32_t, f double, v const yard_value_t* (strings and lists). */
  void (*typed)(void);
  const char* typed_signature;
  /* Returns the bytes of workspace that run needs; negative is an error. */
  int64_t (*workspace)(void* self, const yard_value_t* args, uint32_t count);
  /* create makes a state from options, load gives it weights, prepare prepares it for one shape,
   * destroy frees it once. Calls with equal `state_fields` share states. trace, called instead of
   * run on traced calls, may refuse or leave a note in the error buffer; data may be NULL. */
  int32_t (*create)(yard_call_t* call, const yard_named_value_t* options, uint32_t count,
                    void** state);
  int32_t (*load)(yard_call_t* call, const yard_named_value_t* weights, uint32_t count);
  int32_t (*prepare)(yard_call_t* call, const yard_value_t* args, uint32_t count);
  int32_t (*trace)(yard_call_t* call, const yard_value_t* args, uint32_t count);
  void (*destroy)(void* self, void* state);
  const char* const* state_fields; /* NULL-terminated */
  const char* options_schema;      /* "window: int = 0, scale: float"; what create accepts */
  /* Its own parameters, for run, typed, workspace, prepare and trace. Fields have the op's names.
   * Each op parameter fills one, unless a limit (ABSENT, EQUALS) or the verifier fixes it. */
  const yard_param_t* const* params;
  uint32_t param_count, pad2_;
  /* The weights that load accepts: "sink?: f32[heads]". Required ones limit the kernel to instances
   * with loaded weights. If a weight is named like a parameter, the state may hold a prepared copy
   * of that argument and serves only calls that pass the loaded tensor. */
  const char* weights_schema;
  /* Returns the bytes that a state holds after prepare; negative is an error. A state beyond the
   * bound for all is destroyed, and its kernel declines. NULL bounds states in number only. */
  int64_t (*state_bytes)(void* self, const void* state);
} yard_kernel_t;
#define YARD_KERNEL_DETERMINISTIC 1u /* same inputs, same bits */
#define YARD_KERNEL_CAPTURE_SAFE 2u  /* may run while a graph is captured */
#define YARD_KERNEL_INFERENCE_ONLY 4u
#define YARD_KERNEL_FAILS_BEFORE_WRITING 8u /* a failure leaves every argument as it was */
#define YARD_KERNEL_ASYNC 16u        /* returns before its work is done; faults may come late */

/* The largest accepted difference from the reference. The first one that fits an output counts. */
typedef struct yard_tolerance {
  uint32_t dtype, input; /* yard_dtype_index_t of the output, of a tensor that is read (0: any) */
  double rtol, atol;
} yard_tolerance_t;

typedef struct yard_shape {
  int64_t dims[YARD_MAX_RANK];
  int32_t rank, pad_;
} yard_shape_t;

typedef struct yard_op {
  uint32_t size;
  uint32_t flags;
  const char* schema;  /* "scale(out!: T[*rows, d], x: T[*rows, d], by: float = 1.0)" */
  const char* summary; /* one line */
  void* self;
  /* Computes output shapes with dimensions that no input binds. NULL if callers give the shapes. */
  int32_t (*infer)(yard_call_t* call, const yard_value_t* args, uint32_t count,
                   yard_shape_t* outputs, uint32_t output_count);
  const yard_tolerance_t* tolerances; /* exact for integers, 1e-5 / 1e-2 style for floats if NULL */
  uint32_t tolerance_count, pad_;
  /* Writes to the outputs the size of the terms that each result is the sum of. `atol` is relative
   * to that size where it exceeds 1 and the row's results. For ops that change no input. */
  int32_t (*magnitude)(yard_call_t* call, const yard_value_t* args, uint32_t count);
} yard_op_t;

/* An implementation of a function of the program (docs/guides/functions.md). */
typedef struct yard_function {
  uint32_t size;
  uint32_t flags;        /* YARD_FUNCTION_* */
  const char* name;
  const char* group;     /* of the function */
  const char* backend;   /* NULL means the plugin's only backend */
  const char* signature; /* "i64(i64, const f32*)"; must match the declaration */
  int32_t priority, pad_; /* higher is tried first, unless LOWER_FIRST */
  void* self;
  void (*function)(void); /* takes `self` (NEXT: a yard_function_next_t*), then the arguments */
  void (*verify)(void);   /* takes `self`, the arguments, then a yard_verdict_t*; returns int32_t */
  const char* const* reasons;
  uint32_t reason_count, pad1_;
  void (*samples)(void* self, const void* to); /* gives sample calls to a yard_samples_t */
} yard_function_t;
#define YARD_FUNCTION_LOWER_FIRST 1u          /* priorities count downwards */
#define YARD_FUNCTION_NEXT 2u                 /* may call the next one; for active backends only */
#define YARD_FUNCTION_FAILS_BEFORE_WRITING 4u /* when it throws, everything is as it was */

/* A YARD_FUNCTION_NEXT function gets this instead of `self`. Until it returns, it may call the next
 * one or the default as ((R (*)(void*, A...))next->function)(next->argument, a...). */
typedef struct yard_function_next {
  uint32_t size, pad_;
  void* self;
  void* argument;
  void (*function)(void);
} yard_function_next_t;

/* The arguments of a sample call. Valid while take() runs. */
typedef struct yard_sample {
  uint32_t size, pad_;
  void* self;
  /* Calls `verify` with `of` and the arguments, and returns its result; several threads may call
   * it. Without a verifier, calls yard_function_t::function instead (with its own
   * yard_function_next_t for NEXT), and returns YARD_OK if its effect is the expected one. */
  int32_t (*ask)(void* self, void (*verify)(void), void* of, yard_verdict_t* verdict);
} yard_sample_t;

/* The `to` of yard_function_t::samples, which passes each call to take(). */
typedef struct yard_samples {
  uint32_t size, pad_;
  void* self;
  void (*take)(void* self, const yard_sample_t* sample);
} yard_samples_t;

typedef struct yard_plugin {
  uint32_t size;
  uint32_t abi;           /* YARD_ABI_VERSION it was compiled with */
  const char* name;       /* [a-z0-9_.-]+, unique among loaded plugins */
  const char* version;    /* of the plugin, for listings and lock files */
  const char* build;      /* build tag, or NULL */
  const yard_backend_t* const* backends;
  const yard_op_t* const* ops;
  const yard_kernel_t* const* kernels;
  const yard_function_t* const* functions;
  uint32_t backend_count, op_count, kernel_count, function_count;
  /* Called once, after the checks and before the first use. A failure undoes the load. */
  int32_t (*start)(const yard_host_t* host, char* error, uint64_t error_size);
  void (*stop)(void); /* called once, when no part of it runs or can run */
} yard_plugin_t;

/* `host_abi` is the newest version that the host knows. */
typedef const yard_plugin_t* (*yard_plugin_query_t)(uint32_t host_abi, const yard_host_t* host);
#define YARD_PLUGIN_QUERY_SYMBOL "yard_plugin_query"

/* A build that links several plugins into one binary gives each query another name. */
#ifndef YARD_PLUGIN_QUERY
#define YARD_PLUGIN_QUERY yard_plugin_query
#define YARD_IS_LIBRARY_
#endif
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t host_abi, const yard_host_t* host);

/* ---- The manifest --------------------------------------------------------------------------- */

/* Use once in a library, at file scope, with the descriptor's name and version and any parts below:
 *   YARD_MANIFEST("acme", "1.0", YARD_MANIFEST_OPS("rms_norm") YARD_MANIFEST_FEATURES("sve2"));
 * Lists are separated by blanks. Ops that are not listed are refused at load. The manifest becomes
 * an ELF note of lines `key=value`. Sources linked into another binary have no manifest. */
#define YARD_MANIFEST_OPS(list) "ops=" list "\n"
#define YARD_MANIFEST_FUNCTIONS(groups) "functions=" groups "\n"
#define YARD_MANIFEST_DEVICES(list) "devices=" list "\n"   /* "cpu cuda"; the default is cpu */
#define YARD_MANIFEST_FEATURES(list) "features=" list "\n" /* needs all: "sve2 cuda:sm_90" */
#define YARD_MANIFEST_BUILD(tag) "build=" tag "\n"         /* one word */

#if defined(__aarch64__)
#define YARD_ARCH_ "aarch64"
#else
#define YARD_ARCH_ "x86_64"
#endif
#define YARD_MANIFEST_TEXT(name, version, parts) "abi=" YARD_ABI_TEXT "\narch=" YARD_ARCH_ \
  "\nsanitizer=" YARD_SANITIZER_ "\nname=" name "\nversion=" version "\n" parts

#define YARD_MANIFEST_OWNER "Yard"
#define YARD_MANIFEST_TYPE 1u
#if defined(__clang__) /* its address sanitizer pads variables, and notes must not be padded */
#define YARD_NOTE_ __attribute__((section(".note.yard"), used, aligned(4), no_sanitize("address")))
#else
#define YARD_NOTE_ __attribute__((section(".note.yard"), used, aligned(4)))
#endif
#ifdef YARD_IS_LIBRARY_
#define YARD_MANIFEST(name, version, parts) static const struct {                            \
    uint32_t owner_size, text_size, type;                                                    \
    char owner[8], text[sizeof(YARD_MANIFEST_TEXT(name, version, parts))];                   \
  } yard_manifest YARD_NOTE_ = {                                                             \
      5, sizeof(YARD_MANIFEST_TEXT(name, version, parts)), YARD_MANIFEST_TYPE,               \
      YARD_MANIFEST_OWNER, YARD_MANIFEST_TEXT(name, version, parts)}
#else
#define YARD_MANIFEST(name, version, parts) struct yard_no_manifest
#endif

#ifdef __cplusplus
} /* extern "C" */
#endif
