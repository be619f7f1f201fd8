// SPDX-License-Identifier: Apache-2.0
// Tests that equal types have equal signature texts with every compiler, and different types do
// not.
#include <gtest/gtest.h>
#include <yard/detail/signature.h>

#include <cstdint>

namespace ir {
struct Builder {
  int64_t words[6];
};
enum class Mode : uint8_t { kFast };
template <class T>
struct Pair {
  T a, b;
};
struct Opaque;
}  // namespace ir

template <>
struct yard::TypeName<ir::Opaque> {
  static constexpr std::string_view text = "ir::Opaque";
};

namespace yard {
namespace {

template <class S>
std::string text() {
  return signature_of<S>();
}

TEST(Signature, OfNumbers) {
  EXPECT_EQ((text<void()>()), "void()");
  EXPECT_EQ((text<bool(char, int8_t, uint8_t, int16_t, uint64_t)>()),
            "bool(char, i8, u8, i16, u64)");
  EXPECT_EQ((text<float(double, int, unsigned)>()), "f32(f64, i32, u32)");
  EXPECT_EQ((text<void(long)>()), (text<void(long long)>())) << "both are 64 bits";
}

TEST(Signature, OfPointersAndReferences) {
  EXPECT_EQ((text<const char*(int*, const int*, int* const*)>()),
            "const char*(i32*, const i32*, i32* const*)");
  EXPECT_EQ((text<int&(const int&, int&&)>()), "i32&(const i32&, i32&&)");
  EXPECT_EQ((text<void(void (*)(int), int (*)() noexcept)>()), "void(void(i32)*, i32()*)");
  EXPECT_EQ((text<int(int) noexcept>()), "i32(i32)") << "noexcept is not part of a signature";
}

TEST(Signature, OfClassesHoldsTheirLayout) {
  EXPECT_EQ((text<void(ir::Builder&, ir::Mode)>()), "void(ir::Builder{48:8}&, ir::Mode{1:1})");
  EXPECT_EQ((text<void(const ir::Pair<ir::Mode>&)>()), "void(const ir::Pair<ir::Mode>{2:1}&)");
  EXPECT_EQ((text<void(ir::Opaque*)>()), "void(ir::Opaque*)");
}

TEST(Signature, OfTheStandardLibraryIsSpelledTheSameByAllCompilers) {
  const std::string string = "std::string{" + std::to_string(sizeof(std::string)) + ":8}";
  EXPECT_EQ((text<std::string(std::string_view)>()), string + "(std::string_view{16:8})");
  EXPECT_EQ((text<std::optional<int>(std::vector<ir::Mode>)>()),
            "std::optional<i32>{8:4}(std::vector<ir::Mode{1:1}>{24:8})");
  EXPECT_EQ((text<void(std::unique_ptr<int>, std::shared_ptr<const int>)>()),
            "void(std::unique_ptr<i32>{8:8}, std::shared_ptr<const i32>{16:8})");
}

TEST(Signature, IsMadeWhileCompiling) {
  static_assert(std::string_view(signature_of<int(int)>()) == "i32(i32)");
}

}  // namespace
}  // namespace yard
