// SPDX-License-Identifier: Apache-2.0
// Reads GGUF files, which contain named values and tensors of a model.
//
//   const llm::Gguf file = llm::Gguf::open("model.gguf");
//   const int64_t layers = file.integer("llama.block_count");
//   const llm::GgufTensor& t = file.tensor("output_norm.weight");
//   const yard::TensorView weight(t.data, t.dtype, t.shape);
//
// The file is mapped. Tensors and strings point into the mapping and stay valid as long as any copy
// of the Gguf lives. Every number is checked before it is used. Errors are std::runtime_error:
// `invalid GGUF file: expected X, got Y, in NAME`. A Gguf is immutable, so threads may share it.
//
// Only the tables of a file take memory, at most about 200 MB for a million values and tensors.
// Arrays of up to kMostElements elements are decoded on demand.
//
// Do not overwrite or truncate the file while it is mapped; rename a new file to its name instead.
// Overwritten weights change the results. Access beyond the end of a truncated file raises SIGBUS,
// which ends the process. A program can install end_on_truncation() to end with a message.
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

std::string cat(const auto&... a) {
  std::ostringstream out;
  (out << ... << a);
  return out.str();
}

struct GgufTensor {
  yard::DType dtype = yard::DType::invalid;
  std::vector<int64_t> shape;  // outermost first: the reverse of the file's order
  const std::byte* data = nullptr;
  size_t bytes = 0, offset = 0;  // offset from the start of the tensors in the file
};

class Gguf {
 public:
  using Text = std::string_view;
  using Integers = std::vector<int64_t>;
  using Texts = std::vector<Text>;
  template <class T>
  using Else = std::optional<T>;

  static constexpr uint64_t kMostElements = 1 << 22;  // of an array
  static constexpr uint64_t kMostEntries = 1 << 20;   // limit for values and for tensors

  // Opens a regular file. Checks the first four bytes before mapping the file.
  static Gguf open(const std::string& path);
  // Reads bytes that must outlive the Gguf. `name` appears in error messages.
  static Gguf parse(std::span<const std::byte> bytes, std::string name = "memory");

  // These functions return the value of a key, or the fallback if the key is missing. A missing key
  // without a fallback is an error, and so is a value of another type.
  int64_t integer(Text key, Else<int64_t> fallback = {}) const { return value(key, fallback); }
  double number(Text key, Else<double> fallback = {}) const { return value(key, fallback); }
  bool flag(Text key, Else<bool> fallback = {}) const { return value(key, fallback); }
  Text text(Text key, Else<Text> fallback = {}) const { return value(key, fallback); }
  Integers integers(Text key, Else<Integers> fallback = {}) const;
  Texts texts(Text key, Else<Texts> fallback = {}) const;

  const std::map<Text, GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(Text name) const;  // returns null if the tensor is missing
  const GgufTensor& tensor(Text name) const;
  // Reads the tensors of an opened file from the disk now instead of on first use.
  void prefetch() const;
  // Gives the memory of a tensor of an opened file back. The next access reads the file again.
  void release(const yard::TensorView& tensor) const;

  [[noreturn]] void fail(const std::string& expected, const auto&... got) const {
    throw std::runtime_error(
        cat("invalid GGUF file: expected ", expected, ", got ", got..., ", in ", name_));
  }

 private:
  class Reader;
  struct Array {
    uint32_t type;
    uint64_t count;
    size_t at;  // position of the elements in the file
  };
  using Value = std::variant<int64_t, double, bool, Text, Array>;
  template <class T>
  T value(Text key, const Else<T>& fallback) const {
    static constexpr const char* kTypes[] = {"an integer", "an f32 or f64", "a bool", "a string"};
    const Value* const found = find_value(key);
    if (found == nullptr && fallback) return *fallback;
    if (found == nullptr) fail(cat("key '", key, "'"), "none");
    if (const T* const v = std::get_if<T>(found)) return *v;
    fail_type(key, kTypes[Value(T()).index()]);
  }
  template <class T>
  std::vector<T> array(Text key, const Else<std::vector<T>>& fallback, const char* type) const;
  const Value* find_value(Text key) const;  // returns null if the key is missing
  [[noreturn]] void fail_type(Text key, const char* type) const;

  std::string name_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> mapping_;
  std::map<Text, Value> values_;
  std::map<Text, GgufTensor> tensors_;
};

// Installs a handler for access beyond the end of a mapped file. The handler writes `message` to
// the descriptor and ends the process with exit code 1, without running destructors. Other causes
// of SIGBUS keep their previous handler. The message must live as long as the process.
void end_on_truncation(const char* message, int descriptor);

}  // namespace llm
