// SPDX-License-Identifier: Apache-2.0
// linear and matmul use oneDNN's product of matrices, in f32, or in bf16 with f32 sums.
#include <algorithm>

#include "kernels.h"
#include "packed.h"
#include "primitives.h"
#include "process.h"

namespace yard::onednn {
namespace {

int64_t row_stride(Tensor t) {
  return t.rank() > 1 && t.size(-2) > 1 ? t.stride(-2) : std::max<int64_t>(t.size(-1), 1);
}

void* matrix_at(Tensor t, int64_t i) {
  int64_t offset = 0;
  for (int axis = t.rank() - 3; axis >= 0; i /= t.size(axis--))
    offset += i % t.size(axis) * t.stride(axis);
  return t.data<char>() + offset * yard_unit_bytes(t.c()->dtype);
}

int32_t declines_in_child(Call call) {
  return call.fail(YARD_DECLINED, "oneDNN's threads do not exist in a forked child");
}

// `packed` is the weight in packed_form(), or null to read `weight`.
int32_t run_linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor bias, void* packed) {
  if (forked()) return declines_in_child(call);
  if (out.numel() == 0) return YARD_OK;
  Key key;
  key.kind = Kind::kProduct, key.bf16 = x.dtype() == YARD_BF16, key.by_column = true;
  key.rows = x.rows(), key.width = x.size(-1), key.columns = out.size(-1);
  key.left_stride = row_stride(x), key.right_stride = row_stride(weight);
  key.out_stride = row_stride(out), key.shift = static_cast<bool>(bias);
  if (packed != nullptr) key.packed = true, key.right_stride = 0;
  Operands on{out.data<void>(), x.data<void>()};
  on.right = packed != nullptr ? packed : weight.data<void>();
  on.shift = bias ? bias.data<void>() : nullptr;
  return run_primitive(call, key, on);
}

}  // namespace

int32_t linear(Call call, Tensor out, Tensor x, Tensor weight, Tensor, Tensor bias) {
  return run_linear(call, out, x, weight, bias, nullptr);
}

int32_t linear_packed(Call call, Tensor out, Tensor x, Tensor weight, Tensor, Tensor bias) {
  try {
    return run_linear(call, out, x, weight, bias, call.state<const PackedWeight>()->data());
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_unimplemented) throw;
    return call.fail(YARD_DECLINED, "oneDNN cannot multiply this number of rows by packed weights");
  }
}

int32_t matmul(Call call, Tensor out, Tensor a, Tensor b) {
  if (forked()) return declines_in_child(call);
  if (out.numel() == 0) return YARD_OK;
  Key key;
  key.kind = Kind::kProduct, key.bf16 = a.dtype() == YARD_BF16;
  key.rows = a.size(-2), key.width = a.size(-1), key.columns = out.size(-1);
  key.left_stride = row_stride(a), key.right_stride = row_stride(b);
  key.out_stride = row_stride(out);
  for (int64_t i = 0; i < out.numel() / (key.rows * key.columns); ++i) {
    Operands on{matrix_at(out, i), matrix_at(a, i)};
    on.right = matrix_at(b, i);
    if (const int32_t code = run_primitive(call, key, on); code != YARD_OK) return code;
  }
  return YARD_OK;
}

}  // namespace yard::onednn
