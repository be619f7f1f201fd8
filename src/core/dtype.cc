// SPDX-License-Identifier: Apache-2.0
// The table of element types: our names and the spellings of others.
#include <yard/tensor.h>

#include <array>
#include <utility>

namespace yard {
namespace {

struct Entry {
  DType dtype;
  const char* name;
};

constexpr Entry kTable[] = {
    {DType::f32, "f32"}, {DType::f16, "f16"},       {DType::bf16, "bf16"},
    {DType::f64, "f64"}, {DType::f8e4m3, "f8e4m3"}, {DType::f8e5m2, "f8e5m2"},
    {DType::i8, "i8"},   {DType::i16, "i16"},       {DType::i32, "i32"},
    {DType::i64, "i64"}, {DType::u8, "u8"},         {DType::u16, "u16"},
    {DType::u32, "u32"}, {DType::u64, "u64"},       {DType::boolean, "bool"},
    {DType::i4, "i4"},   {DType::u4, "u4"},
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

}  // namespace

const char* to_string(DType t) noexcept {
  for (const Entry& e : kTable)
    if (e.dtype == t) return e.name;
  return "?";
}

std::optional<DType> parse_dtype(std::string_view text) noexcept {
  for (const Entry& e : kTable)
    if (text == e.name) return e.dtype;
  for (const auto& [name, dtype] : kSpellings)
    if (text == name) return dtype;
  return std::nullopt;
}

int bits(DType t) noexcept { return to_dlpack(t).bits; }

}  // namespace yard
