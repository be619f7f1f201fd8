// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/fork.h"

namespace yard::base {
namespace {

// A library context of our own: the program's configuration of OpenSSL is neither read nor changed. Never
// freed, since digests may be made until the process ends.
constinit Lazy<const EVP_MD* const> g_algorithm([]() -> const EVP_MD* const* {
  return new const EVP_MD*(EVP_MD_fetch(OSSL_LIB_CTX_new(), "SHA256", nullptr));
});

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    const EVP_MD* algorithm = g_algorithm.get();
    good_ = context_ != nullptr && algorithm != nullptr &&
            EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1;
  }
  void add(const void* bytes, size_t size) {
    good_ = good_ && EVP_DigestUpdate(context_.get(), bytes, size) == 1;
  }
  Result<std::string> hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    good_ = good_ && EVP_DigestFinal_ex(context_.get(), digest, &size) == 1;
    if (!good_) return Status(Code::kInternal, "libcrypto cannot make a SHA-256 digest");
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
      text += "0123456789abcdef"[digest[i] >> 4];
      text += "0123456789abcdef"[digest[i] & 15];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
  bool good_;
};

}  // namespace

Result<std::string> sha256(std::string_view bytes) {
  Sha256 s;
  s.add(bytes.data(), bytes.size());
  return s.hex();
}

Result<std::string> sha256(const File& file) {
  Sha256 s;
  constexpr size_t kPiece = size_t{1} << 18;
  const auto piece = std::make_unique_for_overwrite<char[]>(kPiece);
  for (off_t at = 0;;) {
    const ssize_t n = file.read_at(piece.get(), kPiece, at);
    if (n < 0)
      return Status(Code::kNotFound, std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0) return s.hex();
    s.add(piece.get(), static_cast<size_t>(n));
    at += n;
  }
}

bool is_sha256(std::string_view text) noexcept {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace yard::base
