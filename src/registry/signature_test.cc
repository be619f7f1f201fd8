// SPDX-License-Identifier: Apache-2.0
// The text of signatures: the same for the same types, whichever compiler is used, and another for every difference.
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
struct Node {
  double id;
  int32_t width;
  Node* next;
  const Opaque* owner;
  float scale[2][3];
};
// As older and newer versions of a header have one class.
namespace older {
struct Value {
  double id;
  int32_t width;
};
}  // namespace older
namespace newer {
struct Value {
  double id;
  int32_t width, height;
};
}  // namespace newer
struct Private {
  explicit Private(int v) : value(v) {}
  int value;
};
struct Outer {
  older::Value inner;
  std::string name;
};
}  // namespace ir

template <>
struct yard::TypeFields<ir::Node> : yard::Fields<&ir::Node::id, &ir::Node::width, &ir::Node::next,
                                                 &ir::Node::owner, &ir::Node::scale> {};
template <>
struct yard::TypeFields<ir::older::Value>
    : yard::Fields<&ir::older::Value::id, &ir::older::Value::width> {};
template <>
struct yard::TypeFields<ir::newer::Value>
    : yard::Fields<&ir::newer::Value::id, &ir::newer::Value::width, &ir::newer::Value::height> {};
template <>
struct yard::TypeFields<ir::Private> : yard::Fields<&ir::Private::value> {};
template <>
struct yard::TypeFields<ir::Outer> : yard::Fields<&ir::Outer::inner, &ir::Outer::name> {};

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

TEST(Signature, HoldsDeclaredFields) {
  static_assert(sizeof(ir::older::Value) == sizeof(ir::newer::Value));
  EXPECT_EQ((text<void(const ir::older::Value&)>()),
            "void(const ir::older::Value{16:8 id:f64 width:i32}&)");
  EXPECT_EQ((text<void(ir::newer::Value)>()),
            "void(ir::newer::Value{16:8 id:f64 width:i32 height:i32})");
  EXPECT_EQ((text<void(ir::Private)>()), "void(ir::Private{4:4 value:i32})");
}

TEST(Signature, OfFieldsThatAreArraysPointersAndClasses) {
  EXPECT_EQ((text<ir::Node*()>()),
            "ir::Node{56:8 id:f64 width:i32 next:ir::Node* owner:const ir::Opaque* "
            "scale:f32[2][3]}*()");
  EXPECT_EQ((text<void(ir::Outer)>()),
            "void(ir::Outer{" + std::to_string(sizeof(ir::Outer)) +
                ":8 inner:ir::older::Value{16:8 id:f64 width:i32} name:std::string{" +
                std::to_string(sizeof(std::string)) + ":8}})");
}

TEST(Signature, FieldsAreDeclaredCompletelyAndInOrder) {
  using V = ir::newer::Value;
  EXPECT_TRUE((detail::are_all_fields<V, &V::id, &V::width, &V::height>()));
  EXPECT_FALSE((detail::are_all_fields<V, &V::id, &V::width>()));
  EXPECT_FALSE((detail::are_all_fields<V, &V::width, &V::id, &V::height>()));
  EXPECT_FALSE((detail::are_all_fields<V, &V::id, &V::height, &V::width>()));
  EXPECT_TRUE((detail::are_all_fields<ir::Outer, &ir::Outer::inner, &ir::Outer::name>()));
  EXPECT_FALSE((detail::are_all_fields<ir::Outer, &ir::Outer::name, &ir::Outer::inner>()));
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
