// SPDX-License-Identifier: Apache-2.0
// Taking the value out of a Result, or returning its error:
//
//   YARD_ASSIGN_OR_RETURN(const auto path, args.path("path"));
#pragma once

#include <yard/result.h>

#include <utility>

#define YARD_ASSIGN_OR_RETURN(to, expr) YARD_ASSIGN_IN_LINE(to, expr, __LINE__)
#define YARD_ASSIGN_IN_LINE(to, expr, line) YARD_ASSIGN_BY(to, expr, line)
#define YARD_ASSIGN_BY(to, expr, line)                                         \
  auto yard_result_##line = (expr);                                            \
  if (!yard_result_##line.ok()) return std::move(yard_result_##line).status(); \
  to = *std::move(yard_result_##line)
