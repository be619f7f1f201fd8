/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the rows of a layout table into static assertions, in C11 and in C++20. */
#pragma once

#include <yard/plugin.h>

#ifdef __cplusplus
#define YARD_CHECK(condition, text) static_assert(condition, text)
#else
#define YARD_CHECK(condition, text) _Static_assert(condition, text)
#endif

#define SIZE(type, bytes) YARD_CHECK(sizeof(type) == (bytes), #type " changed its size");
#define FIELD(type, field, offset, bytes)                                   \
  YARD_CHECK(offsetof(type, field) == (offset), #type "." #field " moved"); \
  YARD_CHECK(sizeof(((type*)0)->field) == (bytes), #type "." #field " changed its size");
#define VALUE(name, value) YARD_CHECK((name) == (value), #name " changed its value");

YARD_CHECK(sizeof(void*) == 8, "the tables are those of 64-bit machines");
