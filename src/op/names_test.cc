// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <yard/plugin.h>
#include <yard/tensor.h>

namespace yard {
namespace {

TEST(DType, EveryOneHasANameThatReadsBack) {
  int count = 0;
  for (int i = 0; i < 64; ++i) {
    const auto t = static_cast<DType>(i);
    if (bits(t) == 0) {
      EXPECT_STREQ(to_string(t), "?");
      continue;
    }
    ++count;
    EXPECT_EQ(parse_dtype(to_string(t)), t);
    EXPECT_EQ(from_dlpack(to_dlpack(t)), t) << to_string(t);
    if (block_elements(t) == 1)
      EXPECT_EQ(to_dlpack(t).bits, bits(t));
    else
      EXPECT_EQ(to_dlpack(t).bits * 8, bits(t));
  }
  EXPECT_EQ(count, 22);
}

TEST(DType, IsThatOfKernelsForEveryDLPackType) {
  for (int code = 0; code < 256; ++code)
    for (int width = 0; width < 256; ++width)
      for (uint16_t lanes : {0, 1, 2, 32, 256}) {
        const yard_dtype_t t = {static_cast<uint8_t>(code), static_cast<uint8_t>(width), lanes};
        EXPECT_EQ(static_cast<uint32_t>(from_dlpack(t)), yard_dtype_index(t))
            << code << " " << width;
      }
}

TEST(DType, OfElementTypes) {
  EXPECT_EQ(dtype_of<float>, DType::f32);
  EXPECT_EQ(dtype_of<double>, DType::f64);
  EXPECT_EQ(dtype_of<bool>, DType::boolean);
  EXPECT_EQ(dtype_of<int8_t>, DType::i8);
  EXPECT_EQ(dtype_of<int16_t>, DType::i16);
  EXPECT_EQ(dtype_of<int32_t>, DType::i32);
  EXPECT_EQ(dtype_of<int64_t>, DType::i64);
  EXPECT_EQ(dtype_of<uint8_t>, DType::u8);
  EXPECT_EQ(dtype_of<uint64_t>, DType::u64);
  for (const DType none :
       {dtype_of<char>, dtype_of<wchar_t>, dtype_of<long double>, dtype_of<void*>})
    EXPECT_EQ(none, DType::invalid);
}

TEST(DType, SpellingsOfOthers) {
  for (const auto& [text, dtype] : {std::pair{"float32", DType::f32},
                                    {"float", DType::f32},
                                    {"float16", DType::f16},
                                    {"half", DType::f16},
                                    {"bfloat16", DType::bf16},
                                    {"double", DType::f64},
                                    {"int8", DType::i8},
                                    {"int64", DType::i64},
                                    {"uint8", DType::u8},
                                    {"bool", DType::boolean},
                                    {"float8_e4m3fn", DType::f8e4m3}})
    EXPECT_EQ(parse_dtype(text), dtype) << text;
  for (const char* text : {"", "f31", "F32", "f32 ", "floaty"})
    EXPECT_FALSE(parse_dtype(text)) << text;
}

TEST(DType, UnknownOnesAreInvalid) {
  EXPECT_EQ(from_dlpack({2, 32, 4}), DType::invalid);
  EXPECT_EQ(from_dlpack({9, 9, 1}), DType::invalid);
  EXPECT_EQ(bits(DType::invalid), 0);
  EXPECT_EQ(to_dlpack(DType::invalid).lanes, 0);
}

TEST(Device, TextAndBack) {
  EXPECT_EQ(to_string(Device{}), "cpu");
  EXPECT_EQ(to_string(Device{2, 1}), "cuda:1");
  EXPECT_EQ(to_string(Device{31, 2}), "device31:2");
  for (const Device d : {Device{1, 0}, Device{1, 3}, Device{2, 0}, Device{14, 255}, Device{30, 1}})
    EXPECT_EQ(parse_device(to_string(d)), d);
  EXPECT_EQ(parse_device("cuda:0"), (Device{2, 0}));
  for (const char* text : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "cuda:99999999999",
                           "device", "deviceX", "cpu "})
    EXPECT_FALSE(parse_device(text)) << text;
}

}  // namespace
}  // namespace yard
