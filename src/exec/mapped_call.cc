// SPDX-License-Identifier: Apache-2.0
#include "exec/mapped_call.h"

#include <cstring>

#include "exec/strided_copy.h"
#include "op/facts.h"

namespace yard::exec {
namespace {

constexpr uint64_t kBufferAlign = 64;

// Sizes and strides of a tensor in the order of a kernel.
struct Ordered {
  int64_t shape[YARD_MAX_RANK], strides[YARD_MAX_RANK];

  Ordered(const op::AxisOrder& order, const yard_tensor_t& t) noexcept {
    int64_t row_major[YARD_MAX_RANK];
    int64_t step = 1;
    for (int32_t i = t.ndim - 1; i >= 0; --i) row_major[i] = step, step *= t.shape[i];
    for (int32_t place = 0; place < t.ndim; ++place) {
      const int32_t axis = order.axis(t.ndim, place);
      shape[place] = t.shape[axis];
      strides[place] = t.strides != nullptr ? t.strides[axis] : row_major[axis];
    }
  }
};

int64_t round_up(int64_t n, int64_t multiple) noexcept {
  return multiple == 0 ? n : (n + multiple - 1) / multiple * multiple;
}

std::byte* data_of(const yard_tensor_t& t) noexcept {
  return static_cast<std::byte*>(t.data) + t.byte_offset;
}

}  // namespace

MappedCall::MappedCall(const op::ArgumentMap& map, const yard_value_t* args) noexcept : map_(map) {
  for (size_t i = 0; i < map.params.size(); ++i) {
    const op::KernelParam& p = map.params[i];
    args_[i] = p.source < 0 ? p.constant : args[p.source];
    if (args_[i].tag == YARD_TAG_TENSOR && (!p.requirements.empty() || p.order.count > 0))
      map_tensor(p, args_[i]);
    else
      writes_through_ |= p.written && args_[i].tag != YARD_TAG_NONE;
  }
}

void MappedCall::map_tensor(const op::KernelParam& param, yard_value_t& value) noexcept {
  Tensor& own = own_[tensors_];
  own.t = *value.u.tensor, own.of = value.u.tensor, own.param = &param;
  if ((own.t.facts & YARD_FACTS_VALID) == 0) own.t.facts = op::facts_of(&own.t);
  own.is_buffered = param.transforms(own.t) != 0;
  writes_through_ |= param.written && !own.is_buffered;
  if (!own.is_buffered && param.order.count == 0) return;  // as it is
  ++tensors_;
  value.u.tensor = &own.t;
  lay_out(own);
}

void MappedCall::lay_out(Tensor& to) noexcept {
  yard_tensor_t& t = to.t;
  const Ordered view(to.param->order, *to.of);
  std::memcpy(to.shape, view.shape, sizeof view.shape);
  std::memcpy(to.strides, view.strides, sizeof view.strides);
  t.shape = to.shape, t.strides = to.strides, t.origin = nullptr;
  if (to.is_buffered) {
    ++buffers_;
    const DType from = from_dlpack(t.dtype), dtype = to.param->dtype_for(from);
    possible_ &= dtype != DType::invalid && op::is_copyable(from) && t.device.type == Device{}.type;
    t.data = nullptr, t.byte_offset = 0, t.dtype = to_dlpack(dtype);
    if (t.ndim > 0) to.shape[t.ndim - 1] = round_up(to.shape[t.ndim - 1], to.param->pad);
    uint64_t size = static_cast<uint64_t>(yard_unit_bytes(t.dtype));
    int64_t step = 1;
    bool over = false;
    for (int32_t i = t.ndim - 1; i >= 0; --i) {
      to.strides[i] = step;
      over |= __builtin_mul_overflow(step, to.shape[i] > 0 ? to.shape[i] : 1, &step);
      over |= __builtin_mul_overflow(size, static_cast<uint64_t>(to.shape[i]), &size);
    }
    to.at = bytes_, to.size = size;
    over |= __builtin_add_overflow(size, kBufferAlign - 1, &size);
    over |= __builtin_add_overflow(bytes_, size / kBufferAlign * kBufferAlign, &bytes_);
    if (over) bytes_ = UINT64_MAX;
  }
  t.facts = op::facts_of(&t);
}

void MappedCall::place(void* memory) noexcept {
  for (uint32_t i = 0; i < tensors_; ++i)
    if (own_[i].is_buffered) own_[i].t.data = static_cast<std::byte*>(memory) + own_[i].at;
}

void MappedCall::pass_on(const yard_value_t* given) noexcept {
  for (size_t i = 0; i < map_.params.size(); ++i) {
    const int source = map_.params[i].source;
    if (source < 0) continue;
    const auto* const tensor = reinterpret_cast<const std::byte*>(args_[i].u.tensor);
    const auto* const own = reinterpret_cast<const std::byte*>(own_);
    const bool is_own =
        args_[i].tag == YARD_TAG_TENSOR && tensor >= own && tensor < own + sizeof own_;
    if (!is_own) args_[i] = given[source];
  }
}

void MappedCall::copy(const Tensor& t, bool in, const yard_host_t* host) const noexcept {
  const Ordered view(t.param->order, *t.of);
  std::byte *const caller = data_of(*t.of), *const buffer = data_of(t.t);
  const DType dtype = from_dlpack(t.of->dtype), own = from_dlpack(t.t.dtype);
  if (in)
    copy_elements({caller, view.strides, dtype}, {buffer, t.strides, own}, view.shape, t.t.ndim,
                  host);
  else
    copy_elements({buffer, t.strides, own}, {caller, view.strides, dtype}, view.shape, t.t.ndim,
                  host);
}

void MappedCall::copy_in(const yard_host_t* host) const noexcept {
  for (uint32_t i = 0; i < tensors_; ++i) {
    const Tensor& t = own_[i];
    if (!t.is_buffered || !t.param->read || t.size == 0) continue;
    const int32_t last = t.t.ndim - 1;
    const int64_t unpadded = last < 0 ? 1 : t.of->shape[t.param->order.axis(t.t.ndim, last)];
    if (last >= 0 && t.shape[last] != unpadded) std::memset(t.t.data, 0, t.size);
    copy(t, true, host);
  }
}

void MappedCall::copy_out(const yard_host_t* host) const noexcept {
  for (uint32_t i = 0; i < tensors_; ++i)
    if (own_[i].is_buffered && own_[i].param->written && own_[i].size > 0)
      copy(own_[i], false, host);
}

}  // namespace yard::exec
