// SPDX-License-Identifier: Apache-2.0
#include "exec/mapped_call.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "op/facts.h"
#include "op/numbers.h"
#include "op/overlap.h"

// A copy runs row by row along the dimension in which the target is densest. If the source is
// densest in another one, the copy walks both in tiles, so that each cache line is used only once.

namespace yard::exec {
namespace {

float from_bf16(uint16_t v) noexcept { return std::bit_cast<float>(uint32_t{v} << 16); }

uint16_t to_bf16(float v) noexcept {
  const auto u = std::bit_cast<uint32_t>(v);
  const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16, nan = (u >> 16) | 0x40;
  return static_cast<uint16_t>((u & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

// Returns all bits set if the condition holds. Has no branches, so that loops are vectorised.
uint32_t mask_if(bool condition) noexcept { return 0 - uint32_t{condition}; }

float from_f16(uint16_t v) noexcept {
  constexpr uint32_t kRebase = 112 << 23, kSmallest = 113 << 23;  // 2^-14
  const uint32_t sign = uint32_t{v} << 16 & 0x80000000, digits = (v & 0x7fffu) << 13;
  const uint32_t special = mask_if((v & 0x7c00) == 0x7c00) & kRebase;  // infinity and NaN
  const float tiny = std::bit_cast<float>(digits + kSmallest) - std::bit_cast<float>(kSmallest);
  const uint32_t is_tiny = mask_if((v & 0x7c00) == 0);
  return std::bit_cast<float>(sign | (std::bit_cast<uint32_t>(tiny) & is_tiny) |
                              ((digits + kRebase + special) & ~is_tiny));
}

uint16_t to_f16(float v) noexcept {
  const auto u = std::bit_cast<uint32_t>(v);
  const uint32_t sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  uint32_t to = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Adding 0.5 leaves a multiple of 2^-24, the smallest number of f16, in the lowest bits.
  const auto tiny = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  to = magnitude < 0x38800000 ? tiny : to;
  to = magnitude >= 0x477ff000 ? 0x7c00 : to;  // nearer to infinity
  to = magnitude > 0x7f800000 ? 0x7e00 : to;   // NaN
  return static_cast<uint16_t>(sign | to);
}

// `n` elements at from, from + from_step and so on. Steps are in bytes.
struct Row {
  const std::byte* from;
  int64_t from_step;
  std::byte* to;
  int64_t to_step, n;
  DType from_type, to_type;

  void next() noexcept { from += from_step, to += to_step; }
};
using CopyRow = void (*)(Row);

template <class F, class T, T (*kConvert)(F)>
void convert_row(Row r) {
  // Loops over a fixed number of elements are vectorised even at -O2.
  constexpr int64_t kFrom = sizeof(F), kTo = sizeof(T), kAtOnce = 64;
  if (r.from_step == kFrom && r.to_step == kTo)
    for (; r.n >= kAtOnce; r.n -= kAtOnce, r.from += kAtOnce * kFrom, r.to += kAtOnce * kTo) {
      F values[kAtOnce];
      T converted[kAtOnce];
      std::memcpy(values, r.from, sizeof values);
      for (int64_t i = 0; i < kAtOnce; ++i) converted[i] = kConvert(values[i]);
      std::memcpy(r.to, converted, sizeof converted);
    }
  for (int64_t i = 0; i < r.n; ++i, r.next()) {
    F value;
    std::memcpy(&value, r.from, sizeof value);
    const T converted = kConvert(value);
    std::memcpy(r.to, &converted, sizeof converted);
  }
}

template <class T>
T unchanged(T v) noexcept {
  return v;
}
template <class T>
void same_row(Row r) {
  constexpr int64_t kSize = sizeof(T);
  if (r.from_step == kSize && r.to_step == kSize)
    std::memcpy(r.to, r.from, static_cast<size_t>(r.n) * sizeof(T));
  else
    convert_row<T, T, unchanged<T>>(r);
}

void any_float_row(Row r) {
  for (int64_t i = 0; i < r.n; ++i, r.next())
    op::store(r.to_type, r.to, op::load(r.from_type, r.from));
}

void integer_row(Row r) {
  const int from_bits = bits(r.from_type), unused = 64 - from_bits;
  const bool is_signed =
      r.from_type == DType::i8 || r.from_type == DType::i16 || r.from_type == DType::i32;
  for (int64_t i = 0; i < r.n; ++i, r.next()) {
    uint64_t v = 0;
    std::memcpy(&v, r.from, static_cast<size_t>(from_bits) / 8);
    if (is_signed) v = static_cast<uint64_t>(static_cast<int64_t>(v << unused) >> unused);
    std::memcpy(r.to, &v, static_cast<size_t>(bits(r.to_type)) / 8);
  }
}

bool is_float(DType t) noexcept {
  return t == DType::f32 || t == DType::f16 || t == DType::bf16 || t == DType::f64 ||
         t == DType::f8e4m3 || t == DType::f8e5m2;
}

CopyRow row_for(DType from, DType to) noexcept {
  if (from == to) switch (bits(to)) {
      case 64: return same_row<uint64_t>;
      case 32: return same_row<uint32_t>;
      case 16: return same_row<uint16_t>;
      default: return same_row<uint8_t>;
    }
  if (!is_float(from)) return integer_row;
  if (from == DType::bf16 && to == DType::f32) return convert_row<uint16_t, float, from_bf16>;
  if (from == DType::f32 && to == DType::bf16) return convert_row<float, uint16_t, to_bf16>;
  if (from == DType::f16 && to == DType::f32) return convert_row<uint16_t, float, from_f16>;
  if (from == DType::f32 && to == DType::f16) return convert_row<float, uint16_t, to_f16>;
  return any_float_row;
}

struct Axis {
  int64_t size, from, to;  // steps in bytes
};

class Copier {
 public:
  Copier(const Side<const std::byte>& from, const Side<std::byte>& to, const int64_t* sizes,
         int32_t rank) noexcept
      : row_(row_for(from.dtype, to.dtype)),
        write_row_(row_for(to.dtype, to.dtype)),
        from_type_(from.dtype),
        to_type_(to.dtype),
        to_bytes_((bits(to.dtype) + 7) / 8) {
    const int64_t from_bytes = (bits(from.dtype) + 7) / 8;
    for (int32_t i = 0; i < rank; ++i) {
      empty_ |= sizes[i] == 0;
      if (sizes[i] != 1)
        axes_[count_++] = {sizes[i], from.strides[i] * from_bytes, to.strides[i] * to_bytes_};
    }
    sort();
    merge();
  }

  void run(const std::byte* from, std::byte* to) const noexcept {
    if (empty_) return;
    if (count_ == 0) return row_({from, 0, to, 0, 1, from_type_, to_type_});
    walk(0, from, to);
  }

  int64_t bytes_of_target() const noexcept {
    int64_t n = empty_ ? 0 : to_bytes_;
    for (int32_t i = 0; i < count_; ++i) n *= axes_[i].size;
    return n;
  }

  // Returns false if the host could not run all pieces.
  bool run_shared(const std::byte* from, std::byte* to, const yard_host_t& host) const noexcept {
    struct Loop {
      const Copier& copier;
      int32_t axis;
      const std::byte* from;
      std::byte* to;
    } loop{*this, 0, from, to};
    for (int32_t i = 1; i < count_; ++i)
      if (axes_[i].size > axes_[loop.axis].size) loop.axis = i;
    const int64_t size = axes_[loop.axis].size, each = bytes_of_target() / size;
    // Split between tiles, so that threads seldom write to one cache line.
    const int64_t grain = (kSharedCopyBytes / 4 / each / kTile + 1) * kTile;
    const auto body = [](void* context, int64_t begin, int64_t end) {
      const Loop& l = *static_cast<const Loop*>(context);
      Copier part = l.copier;
      Axis& a = part.axes_[l.axis];
      a.size = end - begin;
      part.run(l.from + begin * a.from, l.to + begin * a.to);
    };
    return host.parallel_for(host.self, size, grain, body, &loop) == YARD_OK;
  }

 private:
  static constexpr int64_t kTile = 32;

  // Puts large steps first. This is an insertion sort, because std::stable_sort allocates.
  void sort() noexcept {
    for (int32_t i = 1; i < count_; ++i)
      for (int32_t k = i; k > 0 && std::abs(axes_[k - 1].to) < std::abs(axes_[k].to); --k)
        std::swap(axes_[k - 1], axes_[k]);
  }

  void merge() noexcept {
    int32_t n = 0;
    for (int32_t i = 0; i < count_; ++i) {
      const Axis& a = axes_[i];
      if (n > 0 && axes_[n - 1].from == a.from * a.size && axes_[n - 1].to == a.to * a.size)
        axes_[n - 1] = {axes_[n - 1].size * a.size, a.from, a.to};
      else
        axes_[n++] = a;
    }
    count_ = n;
    if (count_ < 2) return;
    // Move the dimension in which the source is densest to the second last place.
    int32_t best = count_ - 1;
    for (int32_t i = 0; i < count_; ++i)
      if (std::abs(axes_[i].from) < std::abs(axes_[best].from)) best = i;
    tiled_ = best != count_ - 1;
    if (tiled_) std::rotate(axes_ + best, axes_ + best + 1, axes_ + count_ - 1);
  }

  void walk(int32_t axis, const std::byte* from, std::byte* to) const noexcept {
    const Axis& a = axes_[axis];
    if (axis == count_ - 1) return row_({from, a.from, to, a.to, a.size, from_type_, to_type_});
    if (tiled_ && axis == count_ - 2) return walk_tiles(a, axes_[axis + 1], from, to);
    for (int64_t i = 0; i < a.size; ++i) walk(axis + 1, from + i * a.from, to + i * a.to);
  }

  // Reads along the outer dimension, in which the source is dense, and writes along the inner one.
  void walk_tiles(const Axis& outer, const Axis& inner, const std::byte* from,
                  std::byte* to) const noexcept {
    alignas(64) std::byte tile[kTile * kTile * sizeof(uint64_t)];
    const int64_t row = kTile * to_bytes_;
    for (int64_t x = 0; x < inner.size; x += kTile)
      for (int64_t y = 0; y < outer.size; y += kTile) {
        const int64_t rows = std::min(kTile, outer.size - y), n = std::min(kTile, inner.size - x);
        const std::byte* const f = from + y * outer.from + x * inner.from;
        std::byte* const t = to + y * outer.to + x * inner.to;
        for (int64_t i = 0; i < n; ++i)
          row_({f + i * inner.from, outer.from, tile + i * to_bytes_, row, rows, from_type_,
                to_type_});
        for (int64_t i = 0; i < rows; ++i)
          write_row_(
              {tile + i * row, to_bytes_, t + i * outer.to, inner.to, n, to_type_, to_type_});
      }
  }

  CopyRow row_, write_row_;
  DType from_type_, to_type_;
  int64_t to_bytes_;
  Axis axes_[YARD_MAX_RANK];
  int32_t count_ = 0;
  bool empty_ = false, tiled_ = false;
};

constexpr uint64_t kBufferAlign = 64;

void fill_row_major(const yard_tensor_t& t, int64_t* strides) noexcept {
  int64_t step = 1;
  for (int32_t i = t.ndim - 1; i >= 0; --i) strides[i] = step, step *= t.shape[i];
}

struct Ordered {
  int64_t shape[YARD_MAX_RANK], strides[YARD_MAX_RANK];

  Ordered(const op::AxisOrder& order, const yard_tensor_t& t) noexcept {
    int64_t row_major[YARD_MAX_RANK];
    fill_row_major(t, row_major);
    for (int32_t place = 0; place < t.ndim; ++place) {
      const int32_t axis = order.axis(t.ndim, place);
      shape[place] = t.shape[axis];
      strides[place] = t.strides != nullptr ? t.strides[axis] : row_major[axis];
    }
  }
};

std::byte* data_of(const yard_tensor_t& t) noexcept {
  return static_cast<std::byte*>(t.data) + t.byte_offset;
}

void copy_between(const Side<std::byte>& a, const Side<std::byte>& b, bool back,
                  const int64_t* sizes, int32_t rank, const yard_host_t* host) noexcept {
  const Side<std::byte>&from = back ? b : a, &to = back ? a : b;
  copy_elements({from.data, from.strides, from.dtype}, to, sizes, rank, host);
}

}  // namespace

void copy_elements(const Side<const std::byte>& from, const Side<std::byte>& to,
                   const int64_t* sizes, int32_t rank, const yard_host_t* host) noexcept {
  const Copier copier(from, to, sizes, rank);
  if (host == nullptr || host->parallel_for == nullptr ||
      copier.bytes_of_target() <= kSharedCopyBytes || !copier.run_shared(from.data, to.data, *host))
    copier.run(from.data, to.data);
}

uint64_t compact_bytes(const yard_tensor_t& t) noexcept {
  auto bytes = static_cast<uint64_t>(yard_unit_bytes(t.dtype));
  for (int32_t i = 0; i < t.ndim; ++i) bytes *= static_cast<uint64_t>(t.shape[i]);
  return bytes / static_cast<uint64_t>(yard_unit_elements(t.dtype));
}

void copy_compact(const yard_tensor_t& of, std::byte* buffer, bool back) noexcept {
  const op::ByteTensor addressable(of);
  const yard_tensor_t& t = addressable.get();
  const Ordered view({}, t);
  int64_t compact[YARD_MAX_RANK];
  fill_row_major(t, compact);
  const DType dtype = from_dlpack(t.dtype);
  copy_between({data_of(t), view.strides, dtype}, {buffer, compact, dtype}, back, view.shape,
               t.ndim, nullptr);
}

MappedCall::MappedCall(const op::ArgumentMap& map, const yard_value_t* args) noexcept : map_(map) {
  for (size_t i = 0; i < map.params.size(); ++i) {
    const op::KernelParam& p = map.params[i];
    args_[i] = p.source < 0 ? p.constant : args[p.source];
    if (args_[i].tag == YARD_TAG_TENSOR && (!p.requirements.empty() || p.order.count > 0))
      is_own_[i] = map_tensor(p, args_[i]);
    else
      writes_through_ |= p.written && args_[i].tag != YARD_TAG_NONE;
  }
}

bool MappedCall::map_tensor(const op::KernelParam& param, yard_value_t& value) noexcept {
  Tensor& own = own_[tensors_];
  own.t = *value.u.tensor, own.of = value.u.tensor, own.param = &param;
  if ((own.t.facts & YARD_FACTS_VALID) == 0) own.t.facts = op::facts_of(&own.t);
  own.is_buffered = param.transforms(own.t) != 0;
  writes_through_ |= param.written && !own.is_buffered;
  if (!own.is_buffered && param.order.count == 0) return false;
  ++tensors_;
  value.u.tensor = &own.t;
  lay_out(own);
  return true;
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
    if (const int64_t pad = to.param->pad; t.ndim > 0 && pad > 0) {
      int64_t& last = to.shape[t.ndim - 1];
      last = (last + pad - 1) / pad * pad;
    }
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
  for (Tensor& t : std::span(own_, tensors_))
    if (t.is_buffered) t.t.data = static_cast<std::byte*>(memory) + t.at;
}

void MappedCall::pass_on(const yard_value_t* given) noexcept {
  for (size_t i = 0; i < map_.params.size(); ++i)
    if (const int source = map_.params[i].source; source >= 0 && !is_own_[i])
      args_[i] = given[source];
}

void MappedCall::copy(const Tensor& t, bool back, const yard_host_t* host) const noexcept {
  const Ordered view(t.param->order, *t.of);
  copy_between({data_of(*t.of), view.strides, from_dlpack(t.of->dtype)},
               {data_of(t.t), t.strides, from_dlpack(t.t.dtype)}, back, view.shape, t.t.ndim, host);
}

void MappedCall::copy_in(const yard_host_t* host) const noexcept {
  for (const Tensor& t : std::span(own_, tensors_)) {
    if (!t.is_buffered || !t.param->read || t.size == 0) continue;
    const int32_t last = t.t.ndim - 1;
    const int64_t unpadded = last < 0 ? 1 : t.of->shape[t.param->order.axis(t.t.ndim, last)];
    if (last >= 0 && t.shape[last] != unpadded) std::memset(t.t.data, 0, t.size);
    copy(t, false, host);
  }
}

void MappedCall::copy_out(const yard_host_t* host) const noexcept {
  for (const Tensor& t : std::span(own_, tensors_))
    if (t.is_buffered && t.param->written && t.size > 0) copy(t, true, host);
}

}  // namespace yard::exec
