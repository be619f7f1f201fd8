// SPDX-License-Identifier: Apache-2.0
#include "exec/saved_inputs.h"

#include <yard/tensor.h>

#include <cstring>
#include <new>

#include "op/overlap.h"

namespace yard::exec {
namespace {

bool on_host(const yard_tensor_t& t) noexcept { return t.device.type == Device{}.type; }

uint64_t item_bytes(const yard_tensor_t& t) noexcept {
  return (uint64_t{t.dtype.bits} * t.dtype.lanes + 7) / 8;
}

uint64_t elements(const yard_tensor_t& t) noexcept {
  uint64_t n = 1;
  for (int32_t i = 0; i < t.ndim; ++i) n *= static_cast<uint64_t>(t.shape[i]);
  return n;
}

int64_t stride(const yard_tensor_t& t, int32_t axis) noexcept {
  if (t.strides != nullptr) return t.strides[axis];
  int64_t s = 1;
  for (int32_t i = t.ndim - 1; i > axis; --i) s *= t.shape[i];
  return s;
}

// Calls f for each run of contiguous elements, in the order of the shape.
template <class F>
void for_each_run(const yard_tensor_t& t, int32_t axis, std::byte* at, uint64_t item, const F& f) {
  const auto step = [&](int32_t a) { return stride(t, a) * static_cast<int64_t>(item); };
  if (axis >= t.ndim) return f(at, item);
  if (axis == t.ndim - 1 && stride(t, axis) == 1)
    return f(at, item * static_cast<uint64_t>(t.shape[axis]));
  for (int64_t i = 0; i < t.shape[axis]; ++i)
    for_each_run(t, axis + 1, at + i * step(axis), item, f);
}

template <class F>
void for_each_run(const yard_tensor_t& t, const F& f) {
  if (elements(t) != 0)
    for_each_run(t, 0, static_cast<std::byte*>(t.data) + t.byte_offset, item_bytes(t), f);
}

// Calls f for each tensor of a value.
template <class F>
void for_each_tensor(const yard_value_t& v, const F& f) {
  if (v.tag == YARD_TAG_TENSOR && v.u.tensor != nullptr) f(*v.u.tensor);
  if (v.tag == YARD_TAG_LIST)
    for (uint32_t i = 0; i < v.count; ++i) f(*v.u.list[i]);
}

bool shares_memory_with_written(const op::Program& program, const yard_value_t* args,
                                const yard_tensor_t& t) {
  bool shares = false;
  for (uint32_t i = 0; i < program.arg_count(); ++i)
    if (program.schema().params[i].is_written())
      for_each_tensor(args[i], [&](const yard_tensor_t& w) {
        shares |= op::overlap(t, w) != op::Overlap::kNone;
      });
  return shares;
}

}  // namespace

bool SavedInputs::add(const yard_tensor_t& t) {
  const uint64_t bytes = elements(t) * item_bytes(t);
  if (bytes == 0) return true;
  if (!on_host(t)) return false;
  Copy c{&t, std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[bytes])};
  if (c.bytes == nullptr) return false;
  std::byte* to = c.bytes.get();
  for_each_run(t, [&](const std::byte* from, uint64_t n) {
    std::memcpy(to, from, n);
    to += n;
  });
  copies_.push_back(std::move(c));
  return true;
}

bool SavedInputs::save(const op::Program& program, const yard_value_t* args) {
  bool all = true;
  for (uint32_t i = 0; i < program.arg_count() && all; ++i) {
    const op::Access access = program.schema().params[i].access;
    if (access == op::Access::kWrite) continue;
    for_each_tensor(args[i], [&](const yard_tensor_t& t) {
      if (access == op::Access::kReadWrite || shares_memory_with_written(program, args, t))
        all = all && add(t);
    });
  }
  if (!all) copies_.clear();
  held_ = all;
  return all;
}

void SavedInputs::restore() const noexcept {
  for (const Copy& c : copies_) {
    const std::byte* from = c.bytes.get();
    for_each_run(*c.tensor, [&](std::byte* to, uint64_t n) {
      std::memcpy(to, from, n);
      from += n;
    });
  }
}

}  // namespace yard::exec
