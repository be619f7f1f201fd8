// SPDX-License-Identifier: Apache-2.0
#include "kernel_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace yard::tool {
namespace {

constexpr int64_t kHeadDim = 128;

// {0} dtype, {1} rows, {2} hidden, {3} twice hidden.
struct Form {
  const char* op;
  const char* call;
};
constexpr Form kForms[] = {
    {"rms_norm", "rms_norm({0}[{1},{2}], {0}[{2}])"},
    {"add_rms_norm", "add_rms_norm({0}[{1},{2}], {0}[{1},{2}], {0}[{2}])"},
    {"layer_norm", "layer_norm({0}[{1},{2}], {0}[{2}], {0}[{2}])"},
    {"silu_and_mul", "silu_and_mul({0}[{1},{3}])"},
    {"gelu_and_mul", "gelu_and_mul({0}[{1},{3}])"},
    {"softmax", "softmax({0}[{1},{2}])"},
};

}  // namespace

const std::vector<std::string>& measured_ops() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Form& f : kForms) list.emplace_back(f.op);
    list.emplace_back("rotary_embedding");
    return list;
  }();
  return names;
}

std::string measured_call(const std::string& op, const std::string& dtype, int64_t rows,
                          int64_t hidden) {
  for (const Form& f : kForms)
    if (op == f.op) return fmt::format(fmt::runtime(f.call), dtype, rows, hidden, 2 * hidden);
  const int64_t dim = std::min(kHeadDim, hidden), heads = std::max<int64_t>(hidden / dim, 1);
  if (op == "rotary_embedding")
    return fmt::format(
        "rotary_embedding({0}[{1},{2},{3}], {0}[{1},{4},{3}], i64[{1}], {0}[{1},{5}], "
        "{0}[{1},{5}])",
        dtype, rows, heads, dim, std::max<int64_t>(heads / 4, 1), dim / 2);
  throw std::invalid_argument("no call to measure op " + op + " with");
}

}  // namespace yard::tool
