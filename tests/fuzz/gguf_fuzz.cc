// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a GGUF file. Reading ends with the reader's error, or with values and tensors
// that lie inside the bytes.
#include "gguf.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Runs f, which may throw the reader's error.
template <class F>
void attempt(const F& f) {
  try {
    f();
  } catch (const std::runtime_error& e) {
    require(std::string_view(e.what()).starts_with("invalid GGUF file: "));
  }
}

constexpr const char* kKeys[] = {"general.architecture",  "general.alignment",
                                 "llama.block_count",     "llama.rope.freq_base",
                                 "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                 "tokenizer.ggml.merges", "tokenizer.ggml.add_bos_token"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::unique_ptr<std::byte[]> bytes(
      new std::byte[size]);  // without slack, so that the sanitizer sees reads beyond the end
  if (size > 0) std::memcpy(bytes.get(), data, size);
  attempt([&] {
    const llm::Gguf file = llm::Gguf::parse({bytes.get(), size});
    for (const char* key : kKeys) {
      attempt([&] { file.integer(key); });
      attempt([&] { file.number(key); });
      attempt([&] { file.flag(key, true); });
      attempt([&] {
        size_t sum = 0;
        for (const char c : file.text(key)) sum += static_cast<uint8_t>(c);
        require(sum <= 255 * size);
      });
      attempt([&] {
        size_t all = 0;
        for (const std::string_view text : file.texts(key)) all += text.size();
        require(all <= size);
      });
      attempt([&] { require(file.integers(key).size() <= size); });
    }
    for (const auto& [name, t] : file.tensors()) {
      require(file.find(name) == &t);
      require(t.data >= bytes.get() && t.bytes <= size && t.data <= bytes.get() + (size - t.bytes));
    }
  });
  return 0;
}
