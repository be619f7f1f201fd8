// SPDX-License-Identifier: Apache-2.0
// The parts of TensorView that are not inlined, and the names of dtypes, devices and kinds.
#include <yard/policy.h>
#include <yard/tensor.h>

#include "base/text.h"
#include "op/facts.h"

namespace yard {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "forms and dtypes are packed as words");
static_assert(TensorView::Form::kRank == YARD_FACTS_RANK_SHIFT &&
              TensorView::Form::kCompact ==
                  (YARD_FACTS_COMPACT | YARD_FACTS_INNER_DENSE | YARD_FACTS_PLAIN));

DType from_dlpack(yard_dtype_t t) noexcept {
  for (const yard_dtype_t& d : detail::kDlpack)
    if (t.code == d.code && t.bits == d.bits && t.lanes == d.lanes)
      return static_cast<DType>(&d - detail::kDlpack);
  return DType::invalid;
}

TensorView::TensorView(const yard_tensor_t& t) noexcept {
  if (t.ndim < 0 || t.ndim > YARD_MAX_RANK || (t.ndim > 0 && t.shape == nullptr)) {
    make_invalid();
    return;
  }
  const auto n = static_cast<size_t>(t.ndim);
  const std::span<const int64_t> shape(t.shape, n);
  init(t.data, from_dlpack(t.dtype), shape,
       t.strides != nullptr ? Sizes(std::span(t.strides, n)) : Sizes(),
       {t.device.type, t.device.index});
  t_.byte_offset = t.byte_offset;
  t_.origin = t.origin;
  if (t.byte_offset != 0) find_form(dtype());
}

TensorView TensorView::too_short(Sizes shape, size_t there) noexcept {
  TensorView v(nullptr, DType::invalid, shape);
  if (v.t_.ndim == 0 && !shape.empty()) return v;  // too many dimensions
  v.t_.dtype = op::kTooShort;
  v.t_.origin = reinterpret_cast<void*>(there);
  return v;
}

bool TensorView::valid() const noexcept { return op::facts_of(&t_) != 0; }

void TensorView::set_dims(DType dtype, Sizes shape, Sizes strides) noexcept {
  const size_t rank = shape.size();
  uint64_t compact = 1;
  for (size_t i = rank; i-- > 0;) {
    dims_[i] = shape[i];
    dims_[rank + i] = strides.empty() ? static_cast<int64_t>(compact) : strides[i];
    // A product that overflows belongs to sizes that every reader refuses.
    compact *= static_cast<uint64_t>(shape[i]);
  }
  find_form(dtype);
}

void TensorView::find_form(DType dtype) noexcept {
  const int32_t rank = t_.ndim;
  bool compact = true, rest_is_compact = true;
  uint64_t step = 1;
  for (int32_t i = rank; i-- > 0;) {
    const bool is_next = static_cast<uint64_t>(dims_[rank + i]) == step;
    compact &= is_next;
    if (rank + i >= 4) rest_is_compact &= is_next;
    step *= static_cast<uint64_t>(dims_[i]);
  }
  const bool exact = t_.data != nullptr && t_.byte_offset == 0 && t_.dtype.bits != 0 && rank <= 4 &&
                     rest_is_compact;
  int64_t first[4] = {};
  for (int32_t i = 0; i < 4 && i < 2 * rank; ++i) first[i] = dims_[i];
  set_form(dtype, device(), exact, static_cast<uint32_t>(rank), compact, first);
}

namespace {

constexpr std::pair<DType, const char*> kDTypes[] = {
    {DType::f32, "f32"},   {DType::f16, "f16"},       {DType::bf16, "bf16"},
    {DType::f64, "f64"},   {DType::f8e4m3, "f8e4m3"}, {DType::f8e5m2, "f8e5m2"},
    {DType::i8, "i8"},     {DType::i16, "i16"},       {DType::i32, "i32"},
    {DType::i64, "i64"},   {DType::u8, "u8"},         {DType::u16, "u16"},
    {DType::u32, "u32"},   {DType::u64, "u64"},       {DType::boolean, "bool"},
    {DType::i4, "i4"},     {DType::u4, "u4"},         {DType::q8_0, "q8_0"},
    {DType::q4_0, "q4_0"}, {DType::q4_1, "q4_1"},     {DType::q4_k, "q4_k"},
    {DType::q6_k, "q6_k"},
};

// The names in numpy, torch and C.
constexpr std::pair<DType, const char*> kSpellings[] = {
    {DType::f32, "float32"},        {DType::f32, "float"},
    {DType::f16, "float16"},        {DType::f16, "half"},
    {DType::bf16, "bfloat16"},      {DType::f64, "float64"},
    {DType::f64, "double"},         {DType::f8e4m3, "float8_e4m3fn"},
    {DType::f8e5m2, "float8_e5m2"}, {DType::i8, "int8"},
    {DType::i16, "int16"},          {DType::i16, "short"},
    {DType::i32, "int32"},          {DType::i32, "int"},
    {DType::i64, "int64"},          {DType::i64, "long"},
    {DType::u8, "uint8"},           {DType::u16, "uint16"},
    {DType::u32, "uint32"},         {DType::u64, "uint64"},
    {DType::boolean, "boolean"},    {DType::i4, "int4"},
    {DType::u4, "uint4"},
};

// The numbers of DLPack.
constexpr std::pair<int32_t, const char*> kDeviceTypes[] = {
    {1, "cpu"},     {2, "cuda"},    {3, "cuda_host"},  {4, "opencl"}, {7, "vulkan"},
    {8, "metal"},   {10, "rocm"},   {11, "rocm_host"}, {12, "ext"},   {13, "cuda_managed"},
    {14, "oneapi"}, {15, "webgpu"}, {16, "hexagon"},
};
constexpr std::string_view kUnnamed = "device";  // before the number of a type without a name

constexpr std::pair<Kind, const char*> kKinds[] = {
    {Kind::kDefault, "default"}, {Kind::kVendor, "vendor"}, {Kind::kReference, "reference"}};

template <class T, size_t n>
const char* name_in(const std::pair<T, const char*> (&table)[n], T of) noexcept {
  const auto* const row = std::ranges::find(table, of, &std::pair<T, const char*>::first);
  return row != std::end(table) ? row->second : "?";
}
template <class T, size_t n>
std::optional<T> named_in(const std::pair<T, const char*> (&table)[n],
                          std::string_view name) noexcept {
  for (const auto& row : table)
    if (name == row.second) return row.first;
  return std::nullopt;
}

// Reads a number of 1 to 9 digits.
std::optional<int32_t> small_number(std::string_view text) noexcept {
  return text.size() <= 9 && !text.starts_with('-') ? base::number<int32_t>(text) : std::nullopt;
}

}  // namespace

const char* to_string(DType t) noexcept { return name_in(kDTypes, t); }
std::optional<DType> parse_dtype(std::string_view text) noexcept {
  const auto dtype = named_in(kDTypes, text);
  return dtype ? dtype : named_in(kSpellings, text);
}
const char* to_string(Kind k) noexcept { return name_in(kKinds, k); }
std::optional<Kind> parse_kind(std::string_view text) noexcept { return named_in(kKinds, text); }

int bits(DType t) noexcept {
  const yard_dtype_t d = to_dlpack(t);
  return yard_is_blocks(d) ? d.bits * 8 : d.bits;
}
int block_elements(DType t) noexcept { return static_cast<int>(yard_unit_elements(to_dlpack(t))); }

std::string to_string(Device d) {
  std::string text = name_in(kDeviceTypes, d.type);
  if (text == "?") text = std::string(kUnnamed) + std::to_string(d.type);
  return d.index == 0 ? text : text + ":" + std::to_string(d.index);
}

std::optional<Device> parse_device(std::string_view text) noexcept {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto type = name.starts_with(kUnnamed) ? small_number(name.substr(kUnnamed.size()))
                                               : named_in(kDeviceTypes, name);
  const auto index = colon != text.npos ? small_number(text.substr(colon + 1)) : 0;
  return type && index ? std::optional(Device{*type, *index}) : std::nullopt;
}

}  // namespace yard
