/* SPDX-License-Identifier: Apache-2.0 */
/* The data types of the C ABI, in C11. plugin.h includes this header and states the contract. */
#pragma once

/* clang-format off */ /* laid out manually: tables read better than one item a line */

#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature)
#define YARD_HAS_(x) __has_feature(x)
#else
#define YARD_HAS_(x) 0
#endif
/* Code built with a sanitizer runs only in programs built with that sanitizer. */
#if defined(__SANITIZE_ADDRESS__) || YARD_HAS_(address_sanitizer)
#define YARD_UNDER_ASAN
#define YARD_SANITIZER_ "address"
#elif defined(__SANITIZE_THREAD__) || YARD_HAS_(thread_sanitizer)
#define YARD_UNDER_TSAN
#define YARD_SANITIZER_ "thread"
#else
#define YARD_SANITIZER_ "none"
#endif

#define YARD_MAX_RANK 8   /* dimensions of a tensor */
#define YARD_MAX_ARGS 24  /* parameters of an op */
#define YARD_MAX_ALIGN 64 /* bytes; the largest alignment that limits may require */

/* Kernels, probes and verifiers return a code, which decides what the host does next. */
typedef enum yard_code {
  YARD_OK = 0,
  YARD_CALLER = 1,      /* the arguments are wrong; the call fails and no other kernel is tried */
  YARD_DECLINED = 2,    /* the kernel cannot run the call; the next one runs, without a fault */
  YARD_TRANSIENT = 3,   /* out of memory or busy; the next kernel runs */
  YARD_FAULT = 4,       /* the kernel failed; the next one runs, and this counts as a fault */
  YARD_DEVICE_LOST = 5, /* nothing runs on that device until it is reset */
  YARD_FATAL = 6,       /* state is damaged; the call fails and no other kernel is tried */
} yard_code_t;

/* Like DLPack's DLDevice, with equal numbers, so that tensors cross without translation. */
typedef struct yard_device {
  int32_t type; /* 1 cpu, 2 cuda, 3 cuda_host, 7 vulkan, 8 metal, 10 rocm, 13 cuda_managed, ... */
  int32_t index;
} yard_device_t;

/* Like DLPack's DLDataType, but also describes block-quantised types. */
typedef struct yard_dtype {
  uint8_t code; /* 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 7.. 8-bit floats; YARD_BLOCK_CODE.. */
  uint8_t bits;   /* for block-quantised types, the BYTES of one block */
  uint16_t lanes; /* 1, or the elements of one block; vector types are not supported */
} yard_dtype_t;

/* A borrowed tensor: DLPack's DLTensor and two fields for dispatch, in a cache line of 64 bytes. */
typedef struct yard_tensor {
  void* data; /* NULL in verifiers and resolves, since a choice never depends on contents */
  yard_device_t device;
  int32_t ndim;
  yard_dtype_t dtype;
  const int64_t* shape;
  const int64_t* strides; /* in elements; NULL means compact, row-major */
  uint64_t byte_offset;
  uint64_t facts; /* a cache of the host; ignored in what callers pass, may be 0 in a kernel */
  void* origin;   /* the caller's own object (such as a Python tensor), passed on to the kernel */
} yard_tensor_t;

/* An argument has a tag and a payload in 16 bytes, so that a call is one flat array. */
typedef enum yard_tag {
  YARD_TAG_NONE = 0, /* an absent optional */
  YARD_TAG_TENSOR = 1,
  YARD_TAG_INT = 2,   /* also enums: the index of the enumerator */
  YARD_TAG_FLOAT = 3,
  YARD_TAG_BOOL = 4,
  YARD_TAG_STRING = 5, /* `count` bytes, not necessarily NUL-terminated */
  YARD_TAG_LIST = 6,   /* `count` tensors */
} yard_tag_t;

typedef struct yard_value {
  uint32_t tag;
  uint32_t count; /* length of a string or list, else 0 */
  union {
    const yard_tensor_t* tensor;
    int64_t i;
    double f;
    const char* string;
    const yard_tensor_t* const* list;
  } u;
} yard_value_t;

typedef enum yard_dtype_index {
  YARD_F32 = 1, YARD_F16 = 2, YARD_BF16 = 3, YARD_F64 = 4, YARD_F8E4M3 = 5, YARD_F8E5M2 = 6,
  YARD_I8 = 8, YARD_I16 = 9, YARD_I32 = 10, YARD_I64 = 11,
  YARD_U8 = 12, YARD_U16 = 13, YARD_U32 = 14, YARD_U64 = 15,
  YARD_BOOL = 16, YARD_I4 = 17, YARD_U4 = 18,
  YARD_Q8_0 = 20, YARD_Q4_0 = 21, YARD_Q4_1 = 22, YARD_Q4_K = 23, YARD_Q6_K = 24, /* blocks */
} yard_dtype_index_t;
#define YARD_DTYPE_BIT(index) (1ull << (index))

typedef struct yard_host yard_host_t; /* the functions that the host offers, in plugin.h */
typedef struct yard_call_info yard_call_t;

/* One run of one kernel. The host makes this struct, which is valid until run returns. */
struct yard_call_info {
  uint32_t size;
  uint32_t flags;
  const yard_host_t* host;
  void* self;  /* the kernel's `self` */
  void* state; /* from create(); NULL for kernels without state */
  void* workspace; /* 64-byte aligned; at least as large as workspace() asked for */
  uint64_t workspace_size;
  char* error; /* where a failing kernel leaves its message, NUL-terminated */
  uint64_t error_size;
  void* host_data; /* for the host, which keeps the memory of scratch() here */
};
