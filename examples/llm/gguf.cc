// SPDX-License-Identifier: Apache-2.0
#include "gguf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace llm {
namespace {

using yard::DType;

static_assert(std::endian::native == std::endian::little, "files are read in place");

// Types of tensors, by GGUF's numbers; those without a dtype are known by name only.
struct TensorType {
  uint32_t number;
  const char* name;
  DType dtype = DType::invalid;
  uint32_t elements = 0, bytes = 0;  // of a block
};
// clang-format off
constexpr TensorType kTensorTypes[] = {
    {0, "f32", DType::f32, 1, 4}, {1, "f16", DType::f16, 1, 2}, {30, "bf16", DType::bf16, 1, 2},
    {2, "q4_0", DType::q4_0, 32, 18}, {3, "q4_1", DType::q4_1, 32, 20}, {8, "q8_0", DType::q8_0, 32, 34},
    {12, "q4_k", DType::q4_k, 256, 144}, {14, "q6_k", DType::q6_k, 256, 210},
    {6, "q5_0"}, {7, "q5_1"}, {9, "q8_1"}, {10, "q2_k"}, {11, "q3_k"}, {13, "q5_k"}, {15, "q8_k"}, {16, "iq2_xxs"},
    {17, "iq2_xs"}, {18, "iq3_xxs"}, {19, "iq1_s"}, {20, "iq4_nl"}, {21, "iq3_s"}, {22, "iq2_s"}, {23, "iq4_xs"},
    {24, "i8"}, {25, "i16"}, {26, "i32"}, {27, "i64"}, {28, "f64"}, {29, "iq1_m"}, {34, "tq1_0"}, {35, "tq2_0"},
    {39, "mxfp4"}};
// Bytes of a value, by the number of its type: of a string the fewest; 0: an array.
constexpr size_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
// clang-format on
constexpr uint32_t kString = 8, kArray = 9;
constexpr bool is_integer(uint32_t type) { return type < 6 || type == 10 || type == 11; }

std::string quoted(std::string_view text) { return cat("'", text.substr(0, 80), "'"); }

}  // namespace

// Takes numbers and strings one after the other, within the bounds of the file.
class Gguf::Reader {
 public:
  explicit Reader(const Gguf& file) : file_(file) {}

  size_t position() const { return at_; }
  template <class T>
  T number() {
    T v;
    std::memcpy(&v, take(sizeof v), sizeof v);
    return v;
  }
  // A number of things of at least so many bytes each.
  uint64_t count(size_t bytes, const char* what) {
    const auto n = number<uint64_t>();
    const size_t most = (file_.bytes_.size() - at_) / bytes;
    if (n > most) file_.fail(cat("at most ", most, " ", what, " in the rest of the file"), cat(n));
    return n;
  }
  std::string_view string(const char* what) {
    const uint64_t n = count(1, what);
    return {reinterpret_cast<const char*>(take(n)), n};
  }
  Value value() {
    const uint32_t type = value_type();
    if (type != kArray) return scalar(type);
    const uint32_t element = value_type();
    if (element == kArray) file_.fail("an array of numbers or strings", "an array of arrays");
    const uint64_t n = count(kValueBytes[element], "elements");
    if (element == kString) {
      Texts all(n);
      for (std::string_view& t : all) t = string("bytes of a string");
      return all;
    }
    Integers all(is_integer(element) ? n : 0);
    for (int64_t& v : all) v = std::get<int64_t>(scalar(element));
    if (is_integer(element)) return all;
    take(n * kValueBytes[element]);
    return {};
  }
  GgufTensor tensor(const std::string& name);  // after its name

 private:
  const std::byte* take(size_t bytes) {
    const size_t all = file_.bytes_.size();
    if (bytes > all - at_)
      file_.fail(cat(bytes, " bytes at ", at_), cat("a file of ", all, " bytes"));
    at_ += bytes;
    return file_.bytes_.data() + (at_ - bytes);
  }
  uint32_t value_type() {
    const auto type = number<uint32_t>();
    if (type >= std::size(kValueBytes)) file_.fail("the type of a value, 0 to 12", cat(type));
    return type;
  }
  Value scalar(uint32_t type) {
    if (type == kString) return string("bytes of a string");
    const size_t bytes = kValueBytes[type];
    uint64_t raw = 0;
    std::memcpy(&raw, take(bytes), bytes);
    if (type == 6) return double{std::bit_cast<float>(static_cast<uint32_t>(raw))};
    if (type == 7) return raw != 0;
    if (type == 12) return std::bit_cast<double>(raw);
    const size_t unused = 64 - 8 * bytes;  // odd numbers are of signed types
    return type % 2 == 0 ? static_cast<int64_t>(raw)
                         : static_cast<int64_t>(raw << unused) >> unused;
  }

  const Gguf& file_;
  size_t at_ = 0;
};

Gguf Gguf::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  void* data = MAP_FAILED;
  if (file >= 0 && ::fstat(file, &info) == 0)
    data = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  if (file >= 0) ::close(file);
  if (data == MAP_FAILED)
    throw std::runtime_error(cat("cannot map the file ", path, ": ", std::strerror(error)));
  const auto size = static_cast<size_t>(info.st_size);
  const std::shared_ptr<const void> mapping(data, [=](const void*) { ::munmap(data, size); });
  // All of it is read for the first token.
  if (::madvise(data, size, MADV_POPULATE_READ) != 0) ::madvise(data, size, MADV_WILLNEED);
  Gguf g = parse({static_cast<const std::byte*>(data), size}, path);
  g.mapping_ = mapping;
  return g;
}

Gguf Gguf::parse(std::span<const std::byte> bytes, std::string name) {
  Gguf g;
  g.bytes_ = bytes;
  g.name_ = std::move(name);
  g.read();
  return g;
}

void Gguf::read() {
  Reader in(*this);
  if (bytes_.size() < 4 || in.number<uint32_t>() != 0x46554747)
    fail("the four letters GGUF", "a file of another kind");
  if (const auto version = in.number<uint32_t>(); version != 2 && version != 3)
    fail("version 2 or 3, little-endian", std::to_string(version));
  // The shortest tensor has an empty name and one size; the shortest value is a byte.
  const uint64_t tensors = in.count(8 + 4 + 8 + 4 + 8, "tensors");
  for (uint64_t n = in.count(8 + 4 + 1, "values"); n > 0; --n) {
    const Key key = in.string("bytes of a key");
    if (!values_.emplace(key, in.value()).second) fail("each key once", quoted(key) + " again");
  }
  for (uint64_t n = tensors; n > 0; --n) {
    const Key name = in.string("bytes of a name");
    if (!tensors_.emplace(name, in.tensor(quoted(name))).second)
      fail("each tensor once", quoted(name) + " again");
  }
  const auto step = static_cast<size_t>(integer("general.alignment", 32));
  if (step > 1 << 20 || !std::has_single_bit(step))
    fail("general.alignment as a power of two up to 1048576", cat(integer("general.alignment")));
  const size_t start = (in.position() + step - 1) / step * step;
  for (auto& [name, t] : tensors_) {
    const auto offset = static_cast<size_t>(t.data - bytes_.data()), from = start + offset;
    if (offset % step != 0)
      fail(cat("the offset of tensor ", quoted(name), " as a multiple of ", step), cat(offset));
    if (from > bytes_.size() || t.bytes > bytes_.size() - from)
      fail(cat("the ", t.bytes, " bytes of tensor ", quoted(name), " from byte ", from, " on"),
           cat("a file of ", bytes_.size(), " bytes"));
    t.data += start;
  }
}

// `data` is as if tensors began with the file.
GgufTensor Gguf::Reader::tensor(const std::string& name) {
  GgufTensor t;
  const auto rank = number<uint32_t>();
  if (rank < 1 || rank > 4) file_.fail(cat("tensor ", name, " of 1 to 4 dimensions"), cat(rank));
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = number<uint64_t>();
    if (size < 1 || size > INT64_MAX / 16 / elements)
      file_.fail(cat("sizes of tensor ", name, " that are positive and fit 64 bits"), cat(size));
    elements *= size;
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(size));
  }
  const auto type = number<uint32_t>();
  const auto* const known = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                         [&](const TensorType& k) { return k.number == type; });
  if (known == std::end(kTensorTypes) || known->dtype == DType::invalid)
    file_.fail(cat("tensor ", name, " of type f32, f16, bf16, q8_0, q4_0, q4_1, q4_k or q6_k"),
               known == std::end(kTensorTypes) ? cat("type number ", type) : known->name);
  if (t.shape.back() % known->elements != 0)
    file_.fail(cat("rows of tensor ", name, " in blocks of ", known->elements),
               cat("rows of ", t.shape.back()));
  t.dtype = known->dtype;
  t.bytes = elements / known->elements * known->bytes;
  const auto offset = number<uint64_t>();
  if (offset > file_.bytes_.size())
    file_.fail(cat("the offset of tensor ", name, " within the file"), cat(offset));
  t.data = file_.bytes_.data() + offset;
  return t;
}

void Gguf::fail(const std::string& expected, const std::string& got) const {
  throw std::runtime_error(
      cat("invalid GGUF file: expected ", expected, ", got ", got, ", in ", name_));
}

const GgufTensor* Gguf::find(Key name) const {
  const auto found = tensors_.find(name);
  return found != tensors_.end() ? &found->second : nullptr;
}
const GgufTensor& Gguf::tensor(Key name) const {
  if (const GgufTensor* t = find(name)) return *t;
  fail("tensor " + quoted(name), "none");
}

}  // namespace llm
