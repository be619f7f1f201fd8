// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files for tests, valid and invalid ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace llm {

class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;
  uint64_t more_values = 0,
           more_tensors = 0;  // tensors that the header promises and the file lacks

  template <class T>
  void value(std::string_view key, const T& v) {
    ++value_count_;
    put(values_, key);
    put(values_, type_of<T>());
    put(values_, v);
  }
  template <class T>
  void values(std::string_view key, const std::vector<T>& all) {
    ++value_count_;
    put(values_, key);
    put(values_, uint32_t{9});
    put(values_, type_of<T>());
    put(values_, uint64_t{all.size()});
    for (const T& v : all) put(values_, v);
  }
  // Writes a value from raw bytes, which include its type.
  void raw_value(std::string_view key, std::string_view bytes) {
    ++value_count_;
    put(values_, key);
    values_ += bytes;
  }
  // Sizes are in the order of the file, innermost first. `type` is the number that GGUF uses. An
  // offset of -1 puts the tensor behind the last one.
  void tensor(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type,
              std::string_view bytes, int64_t offset = -1) {
    ++tensor_count_;
    put(tensors_, name);
    put(tensors_, static_cast<uint32_t>(sizes.size()));
    for (const uint64_t n : sizes) put(tensors_, n);
    put(tensors_, type);
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    put(tensors_, offset < 0 ? uint64_t{data_.size()} : static_cast<uint64_t>(offset));
    data_ += bytes;
  }
  void floats(std::string_view name, const std::vector<uint64_t>& sizes,
              const std::vector<float>& all) {
    tensor(name, sizes, 0, {reinterpret_cast<const char*>(all.data()), all.size() * sizeof(float)});
  }

  std::string bytes() const {
    std::string out = "GGUF";
    put(out, version);
    put(out, tensor_count_ + more_tensors);
    put(out, value_count_ + more_values);
    out += values_ + tensors_;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

  template <class T>
  static void put(std::string& to, const T& v) {
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      const std::string_view s = v;
      put(to, uint64_t{s.size()});
      to += s;
    } else {
      to.append(reinterpret_cast<const char*>(&v), sizeof v);
    }
  }

 private:
  template <class T>
  static uint32_t type_of() {
    if constexpr (std::is_convertible_v<T, std::string_view>) return 8;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, double>) return 12;
    constexpr uint32_t kSize = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : sizeof(T) == 4 ? 4 : 10;
    return kSize + (std::is_signed_v<T> ? 1 : 0);
  }

  uint64_t value_count_ = 0, tensor_count_ = 0;
  std::string values_, tensors_, data_;
};

inline std::span<const std::byte> as_bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

}  // namespace llm
