// SPDX-License-Identifier: Apache-2.0
// GGUF files: named values and tensors of a model, read in place.
//
//   const llm::Gguf file = llm::Gguf::open("model.gguf");
//   const int64_t layers = file.integer("llama.block_count");
//   const llm::GgufTensor& t = file.tensor("output_norm.weight");   // yard::TensorView(t.data, t.dtype, t.shape)
//
// The file is mapped, not read: tensors and strings point into it, and stay valid as long as any copy of the Gguf lives.
// Every number of the file is checked before it is used, so a truncated or lying file is an error, never a bad access.
// Errors are std::runtime_error: `invalid GGUF file: expected X, got Y, in NAME`. A Gguf does not change once made;
// threads may share it.
#pragma once

#include <yard/tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
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
  std::string_view name;
  yard::DType dtype = yard::DType::invalid;
  std::vector<int64_t> shape;  // outermost first: the reverse of the file's order
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

class Gguf {
 public:
  // Maps the file.
  static Gguf open(const std::string& path);
  // Reads bytes that must outlive the Gguf; `name` is for error messages.
  static Gguf parse(std::span<const std::byte> bytes, std::string name = "memory");

  // Values by key. A missing key gives the fallback, or is an error if there is none; so is a value of another type.
  int64_t integer(std::string_view key, std::optional<int64_t> fallback = {}) const {
    return value(key, fallback, "an integer");
  }
  double number(std::string_view key, std::optional<double> fallback = {}) const {
    return value(key, fallback, "an f32 or f64");
  }
  bool flag(std::string_view key, std::optional<bool> fallback = {}) const {
    return value(key, fallback, "a bool");
  }
  std::string_view text(std::string_view key, std::optional<std::string_view> fallback = {}) const {
    return value(key, fallback, "a string");
  }
  using Integers = std::vector<int64_t>;
  Integers integers(std::string_view key, const std::optional<Integers>& fallback = {}) const {
    return value(key, fallback, "an array of integers");
  }
  using Texts = std::vector<std::string_view>;
  Texts texts(std::string_view key, const std::optional<Texts>& fallback = {}) const {
    return value(key, fallback, "an array of strings");
  }

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;  // null: none
  const GgufTensor& tensor(std::string_view name) const;

  // An error of a file that is used for something.
  [[noreturn]] void fail(const std::string& expected, const std::string& got) const;

 private:
  class Reader;
  // Arrays of other types than these are not kept.
  using Value =
      std::variant<std::monostate, int64_t, double, bool, std::string_view, Integers, Texts>;
  void read();
  template <class T>
  T value(std::string_view key, const std::optional<T>& fallback, const char* expected) const {
    const auto found = values_.find(key);
    if (found == values_.end() && fallback) return *fallback;
    if (found == values_.end()) fail(cat("key '", key, "'"), "none");
    if (const T* const v = std::get_if<T>(&found->second)) return *v;
    fail(cat("key '", key, "' with ", expected), "a value of another type");
  }

  std::string name_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> mapping_;
  std::map<std::string_view, Value> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, size_t> by_name_;
};

}  // namespace llm
