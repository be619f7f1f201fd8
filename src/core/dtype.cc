// SPDX-License-Identifier: Apache-2.0
// The table of element types: our names, the spellings of others, and DLPack's numbers.
#include <yard/tensor.h>

#include <array>
#include <utility>

namespace yard {
namespace {

struct Entry {
  DType dtype;
  const char* name;
  yard_dtype_t dlpack;
};

constexpr Entry kTable[] = {
    {DType::f32, "f32", {2, 32, 1}},       {DType::f16, "f16", {2, 16, 1}},
    {DType::bf16, "bf16", {4, 16, 1}},     {DType::f64, "f64", {2, 64, 1}},
    {DType::f8e4m3, "f8e4m3", {10, 8, 1}}, {DType::f8e5m2, "f8e5m2", {12, 8, 1}},
    {DType::i8, "i8", {0, 8, 1}},          {DType::i16, "i16", {0, 16, 1}},
    {DType::i32, "i32", {0, 32, 1}},       {DType::i64, "i64", {0, 64, 1}},
    {DType::u8, "u8", {1, 8, 1}},          {DType::u16, "u16", {1, 16, 1}},
    {DType::u32, "u32", {1, 32, 1}},       {DType::u64, "u64", {1, 64, 1}},
    {DType::boolean, "bool", {6, 8, 1}},   {DType::i4, "i4", {0, 4, 1}},
    {DType::u4, "u4", {1, 4, 1}},
};

// What numpy, torch and C call them.
constexpr std::pair<std::string_view, DType> kSpellings[] = {
    {"float32", DType::f32},        {"float", DType::f32},
    {"float16", DType::f16},        {"half", DType::f16},
    {"bfloat16", DType::bf16},      {"float64", DType::f64},
    {"double", DType::f64},         {"float8_e4m3fn", DType::f8e4m3},
    {"float8_e5m2", DType::f8e5m2}, {"int8", DType::i8},
    {"int16", DType::i16},          {"short", DType::i16},
    {"int32", DType::i32},          {"int", DType::i32},
    {"int64", DType::i64},          {"long", DType::i64},
    {"uint8", DType::u8},           {"uint16", DType::u16},
    {"uint32", DType::u32},         {"uint64", DType::u64},
    {"boolean", DType::boolean},    {"int4", DType::i4},
    {"uint4", DType::u4},
};

const Entry* find(DType t) noexcept {
  for (const Entry& e : kTable)
    if (e.dtype == t) return &e;
  return nullptr;
}

}  // namespace

const char* to_string(DType t) noexcept {
  const Entry* e = find(t);
  return e ? e->name : "?";
}

std::optional<DType> parse_dtype(std::string_view text) noexcept {
  for (const Entry& e : kTable)
    if (text == e.name) return e.dtype;
  for (const auto& [name, dtype] : kSpellings)
    if (text == name) return dtype;
  return std::nullopt;
}

int bits(DType t) noexcept {
  const Entry* e = find(t);
  return e ? e->dlpack.bits : 0;
}

yard_dtype_t to_dlpack(DType t) noexcept {
  const Entry* e = find(t);
  return e ? e->dlpack : yard_dtype_t{};
}

}  // namespace yard
