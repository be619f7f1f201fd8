// SPDX-License-Identifier: Apache-2.0
// GGUF files: named values and tensors of a model, read in place.
//
//   const llm::Gguf file = llm::Gguf::open("model.gguf");
//   const int64_t layers = file.integer("llama.block_count");
//   const llm::GgufTensor& table = file.tensor("token_embd.weight");   // yard::TensorView(table.data, table.dtype, table.shape)
//
// The file is mapped, not read: tensors and strings point into it, and stay valid as long as any copy of the Gguf lives.
// Every number of the file is checked before it is used, so a truncated or lying file is an error, never a bad access.
// Errors are std::runtime_error: `invalid GGUF file: expected X, got Y, at byte N of NAME`. A Gguf does not change once
// made; threads may share it.
#pragma once

#include <yard/tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llm {

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
  bool has(std::string_view key) const { return values_.contains(key); }
  int64_t integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  double number(std::string_view key, std::optional<double> fallback = {}) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string_view text(std::string_view key, std::optional<std::string_view> fallback = {}) const;
  std::vector<std::string_view> texts(std::string_view key) const;  // arrays
  std::vector<int64_t> integers(std::string_view key) const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;  // null: none
  const GgufTensor& tensor(std::string_view name) const;

  const std::string& name() const { return name_; }
  size_t bytes() const { return bytes_.size(); }
  // For errors of those who use the file: `invalid GGUF file: expected X, got Y, in NAME`.
  [[noreturn]] void fail(const std::string& expected, const std::string& got) const;

 private:
  struct Value {
    uint32_t type = 0;     // GGUF's number
    uint32_t element = 0;  // of an array: the type of its elements
    uint64_t count = 1;
    const std::byte* at = nullptr;
  };
  class Reader;

  void read();
  void read_tensor(Reader& in);
  void place_tensors(size_t start, size_t alignment);
  const Value* value(std::string_view key, bool required, bool array, uint32_t types,
                     const char* expected) const;

  std::string name_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> mapping_;
  std::map<std::string_view, Value> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, size_t> by_name_;
};

}  // namespace llm
