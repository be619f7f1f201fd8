// SPDX-License-Identifier: Apache-2.0
// GGUF files: named values and tensors of a model, read in place.
//
//   const llm::Gguf file = llm::Gguf::open("model.gguf");
//   const int64_t layers = file.integer("llama.block_count");
//   const llm::GgufTensor& t = file.tensor("output_norm.weight");   // yard::TensorView(t.data, t.dtype, t.shape)
//
// The file is mapped: tensors and strings point into it, and stay valid as long as any copy of the Gguf lives. Every number
// is checked before it is used. Errors are std::runtime_error: `invalid GGUF file: expected X, got Y, in NAME`. A Gguf does
// not change once made; threads may share it.
#pragma once

#include <yard/tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace llm {

// The text of all, one after the other.
std::string cat(const auto&... a) {
  std::ostringstream out;
  (out << ... << a);
  return out.str();
}

struct GgufTensor {
  yard::DType dtype = yard::DType::invalid;
  std::vector<int64_t> shape;  // outermost first: the reverse of the file's order
  const std::byte* data = nullptr;
  size_t bytes = 0, offset = 0;  // offset: from where the file's tensors begin
};

class Gguf {
 public:
  using Text = std::string_view;
  using Integers = std::vector<int64_t>;
  using Texts = std::vector<Text>;
  template <class T>
  using Else = std::optional<T>;

  static Gguf open(const std::string& path);
  // Bytes that must outlive the Gguf; `name` is for error messages.
  static Gguf parse(std::span<const std::byte> bytes, std::string name = "memory");

  // Values by key. A missing key gives the fallback, or is an error if there is none; so is a value of another type.
  int64_t integer(Text key, Else<int64_t> fallback = {}) const { return value(key, fallback); }
  double number(Text key, Else<double> fallback = {}) const { return value(key, fallback); }
  bool flag(Text key, Else<bool> fallback = {}) const { return value(key, fallback); }
  Text text(Text key, Else<Text> fallback = {}) const { return value(key, fallback); }
  Integers integers(Text key, Else<Integers> fallback = {}) const { return value(key, fallback); }
  Texts texts(Text key, Else<Texts> fallback = {}) const { return value(key, fallback); }

  const std::map<Text, GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(Text name) const;  // null: none
  const GgufTensor& tensor(Text name) const;

  // An error of a file that is used for something.
  [[noreturn]] void fail(const std::string& expected, const auto&... got) const {
    throw std::runtime_error(
        cat("invalid GGUF file: expected ", expected, ", got ", got..., ", in ", name_));
  }

 private:
  class Reader;
  // Arrays of other types than these are not kept.
  using Value = std::variant<std::monostate, int64_t, double, bool, Text, Integers, Texts>;
  template <class T>
  T value(Text key, const Else<T>& fallback) const {
    static constexpr const char* kTypes[] = {
        "",         "an integer",           "an f32 or f64",      "a bool",
        "a string", "an array of integers", "an array of strings"};
    const auto found = values_.find(key);
    if (found == values_.end() && fallback) return *fallback;
    if (found == values_.end()) fail(cat("key '", key, "'"), "none");
    if (const T* const v = std::get_if<T>(&found->second)) return *v;
    fail(cat("key '", key, "' with ", kTypes[Value(T()).index()]), "a value of another type");
  }

  std::string name_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> mapping_;
  std::map<Text, Value> values_;
  std::map<Text, GgufTensor> tensors_;
};

}  // namespace llm
