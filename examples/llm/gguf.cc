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
#include <type_traits>

namespace llm {
namespace {

using yard::DType;

static_assert(std::endian::native == std::endian::little, "files are read in place");

// Types of values, by GGUF's numbers.
enum : uint32_t { kBool = 7, kString = 8, kArray = 9, kValueTypes = 13 };
struct ValueType {
  const char* name;
  size_t bytes;  // 0: not of a fixed size
};
// clang-format off
constexpr ValueType kValueType[kValueTypes] = {
    {"u8", 1}, {"i8", 1}, {"u16", 2}, {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0},
    {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

// Types of tensors, by GGUF's numbers; those without a dtype are known by name only.
struct TensorType {
  uint32_t number;
  const char* name;
  DType dtype = DType::invalid;
  uint32_t elements = 0, bytes = 0;  // of a block
};
constexpr TensorType kTensorTypes[] = {
    {0, "f32", DType::f32, 1, 4}, {1, "f16", DType::f16, 1, 2}, {30, "bf16", DType::bf16, 1, 2},
    {2, "q4_0", DType::q4_0, 32, 18}, {3, "q4_1", DType::q4_1, 32, 20}, {8, "q8_0", DType::q8_0, 32, 34},
    {12, "q4_k", DType::q4_k, 256, 144}, {14, "q6_k", DType::q6_k, 256, 210},
    {6, "q5_0"}, {7, "q5_1"}, {9, "q8_1"}, {10, "q2_k"}, {11, "q3_k"}, {13, "q5_k"}, {15, "q8_k"}, {16, "iq2_xxs"},
    {17, "iq2_xs"}, {18, "iq3_xxs"}, {19, "iq1_s"}, {20, "iq4_nl"}, {21, "iq3_s"}, {22, "iq2_s"}, {23, "iq4_xs"},
    {24, "i8"}, {25, "i16"}, {26, "i32"}, {27, "i64"}, {28, "f64"}, {29, "iq1_m"}, {34, "tq1_0"}, {35, "tq2_0"},
    {39, "mxfp4"}};
// clang-format on

constexpr size_t kMostNameBytes = 65535;
constexpr int64_t kMostAlignment = 1 << 20;

std::string quoted(std::string_view text) { return "'" + std::string(text.substr(0, 80)) + "'"; }

}  // namespace

// Takes numbers and strings one after the other, within the bounds of the file.
class Gguf::Reader {
 public:
  explicit Reader(const Gguf& file) : file_(file) {}

  size_t position() const { return at_; }
  size_t rest() const { return file_.bytes_.size() - at_; }
  const std::byte* here() const { return file_.bytes_.data() + at_; }

  [[noreturn]] void fail(const std::string& expected, const std::string& got) const {
    throw std::runtime_error("invalid GGUF file: expected " + expected + ", got " + got +
                             ", at byte " + std::to_string(at_) + " of " + file_.name_);
  }
  // So many elements of so many bytes, which must be there.
  void skip(uint64_t count, size_t bytes, const char* what) {
    if (count > rest() / bytes)
      fail(std::to_string(count) + " " + what + " of " + std::to_string(bytes) + " bytes or more",
           std::to_string(rest()) + " bytes to the end of the file");
    at_ += count * bytes;
  }
  template <class T>
  T number() {
    T v;
    const std::byte* from = here();
    skip(1, sizeof v, "number");
    std::memcpy(&v, from, sizeof v);
    return v;
  }
  // A number of things of at least so many bytes each.
  uint64_t count(size_t bytes, const char* what) {
    const auto n = number<uint64_t>();
    if (n > rest() / bytes)
      fail("at most " + std::to_string(rest() / bytes) + " " + what + " in the rest of the file",
           std::to_string(n));
    return n;
  }
  std::string_view string(const char* what) {
    const uint64_t n = count(1, what);
    const auto* text = reinterpret_cast<const char*>(here());
    at_ += n;
    return {text, n};
  }
  std::string_view name(const char* what) {
    const std::string_view s = string(what);
    if (s.empty() || s.size() > kMostNameBytes)
      fail(std::string(what) + " of a name of 1 to 65535 bytes", std::to_string(s.size()));
    return s;
  }
  uint32_t value_type() {
    const auto type = number<uint32_t>();
    if (type >= kValueTypes) fail("the type of a value, 0 to 12", std::to_string(type));
    return type;
  }
  Value value() {
    Value v;
    v.type = v.element = value_type();
    if (v.type == kArray) {
      v.element = value_type();
      if (v.element == kArray) fail("an array of numbers or strings", "an array of arrays");
      v.count = count(std::max<size_t>(kValueType[v.element].bytes, 1), "elements");
    }
    v.at = here();
    if (v.element != kString)
      skip(v.count, kValueType[v.element].bytes, "elements");
    else
      for (uint64_t i = 0; i < v.count; ++i) string("bytes of a string");
    return v;
  }

 private:
  const Gguf& file_;
  size_t at_ = 0;
};

Gguf Gguf::open(const std::string& path) {
  const auto failed = [&](const char* what) {
    const std::string why = std::strerror(errno);
    throw std::runtime_error(std::string(what) + " " + path + ": " + why);
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) failed("cannot open");
  const std::shared_ptr<const void> close_at_end(nullptr, [file](const void*) { ::close(file); });
  struct stat info {};
  if (::fstat(file, &info) != 0) failed("cannot read the size of");
  if (!S_ISREG(info.st_mode))
    throw std::runtime_error("cannot map " + path + ": not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0)
    throw std::runtime_error("invalid GGUF file: expected a header, got no bytes, in " + path);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) failed("cannot map");
  const std::shared_ptr<const void> mapping(data,
                                            [data, size](const void*) { ::munmap(data, size); });
  ::madvise(data, size, MADV_WILLNEED);  // all of it is read for the first token
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
  if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0)
    in.fail("the four letters GGUF", "a file of another kind");
  in.skip(4, 1, "letters");
  if (const auto version = in.number<uint32_t>(); version != 2 && version != 3)
    in.fail("version 2 or 3, little-endian", std::to_string(version));
  // The shortest tensor has a name of one byte and one size; the shortest value is a byte.
  const uint64_t tensors = in.count(8 + 1 + 4 + 8 + 4 + 8, "tensors");
  const uint64_t values = in.count(8 + 1 + 4 + 1, "values");
  for (uint64_t i = 0; i < values; ++i) {
    const std::string_view key = in.name("key");
    if (!values_.emplace(key, in.value()).second) in.fail("each key once", quoted(key) + " again");
  }
  const int64_t alignment = integer("general.alignment", 32);
  if (alignment < 1 || alignment > kMostAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(alignment)))
    in.fail("general.alignment as a power of two up to 1048576", std::to_string(alignment));
  for (uint64_t i = 0; i < tensors; ++i) read_tensor(in);
  const auto step = static_cast<size_t>(alignment);
  place_tensors((in.position() + step - 1) / step * step, step);
}

// Its offset is kept in `data` until it is known where the data begins.
void Gguf::read_tensor(Reader& in) {
  GgufTensor t;
  t.name = in.name("tensor");
  const auto rank = in.number<uint32_t>();
  if (rank < 1 || rank > 4)
    in.fail("tensor " + quoted(t.name) + " of 1 to 4 dimensions", std::to_string(rank));
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const auto size = in.number<uint64_t>();
    if (size < 1 || size > INT64_MAX / 16 / elements)
      in.fail("sizes of tensor " + quoted(t.name) + " that are positive and fit 64 bits",
              std::to_string(size));
    elements *= size;
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(size));
  }
  const auto number = in.number<uint32_t>();
  const auto* type = std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes),
                                  [&](const TensorType& k) { return k.number == number; });
  const bool is_known = type != std::end(kTensorTypes);
  if (!is_known || type->dtype == DType::invalid)
    in.fail("tensor " + quoted(t.name) + " of type f32, f16, bf16, q8_0, q4_0, q4_1, q4_k or q6_k",
            is_known ? type->name : "type number " + std::to_string(number));
  if (t.shape.back() % type->elements != 0)
    in.fail("rows of tensor " + quoted(t.name) + " in blocks of " + std::to_string(type->elements),
            "rows of " + std::to_string(t.shape.back()));
  t.dtype = type->dtype;
  t.bytes = elements / type->elements * type->bytes;
  const auto offset = in.number<uint64_t>();
  if (offset > bytes_.size())
    in.fail("the offset of tensor " + quoted(t.name) + " within " + std::to_string(bytes_.size()) +
                " bytes",
            std::to_string(offset));
  t.data = bytes_.data() + offset;
  if (!by_name_.emplace(t.name, tensors_.size()).second)
    in.fail("each tensor once", quoted(t.name) + " again");
  tensors_.push_back(std::move(t));
}

void Gguf::place_tensors(size_t start, size_t alignment) {
  for (GgufTensor& t : tensors_) {
    const auto offset = static_cast<size_t>(t.data - bytes_.data());
    if (offset % alignment != 0)
      fail("the offset of tensor " + quoted(t.name) + " as a multiple of " +
               std::to_string(alignment),
           std::to_string(offset));
    if (start > bytes_.size() || offset > bytes_.size() - start ||
        t.bytes > bytes_.size() - start - offset)
      fail("the " + std::to_string(t.bytes) + " bytes of tensor " + quoted(t.name) + " from byte " +
               std::to_string(start + offset) + " on",
           "a file of " + std::to_string(bytes_.size()) + " bytes");
    t.data += start;
  }
}

void Gguf::fail(const std::string& expected, const std::string& got) const {
  throw std::runtime_error("invalid GGUF file: expected " + expected + ", got " + got + ", in " +
                           name_);
}

namespace {
template <class T>
T take(const std::byte*& at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  at += sizeof v;
  return v;
}
std::string_view take_text(const std::byte*& at) {
  const auto n = take<uint64_t>(at);
  at += n;
  return {reinterpret_cast<const char*>(at - n), n};
}
int64_t take_integer(uint32_t type, const std::byte*& at) {
  switch (type) {
    case 0: return take<uint8_t>(at);
    case 1: return take<int8_t>(at);
    case 2: return take<uint16_t>(at);
    case 3: return take<int16_t>(at);
    case 4: return take<uint32_t>(at);
    case 5: return take<int32_t>(at);
    default:
      return take<int64_t>(at);  // beyond the range of i64: negative, which no reader accepts
  }
}
constexpr uint32_t kIntegers = 0b110000111111, kFloats = 1 << 6 | 1 << 12;  // sets of types
}  // namespace

// The value of a key if its type, or that of its elements, is one of a set. Null: there is none, and that is allowed.
const Gguf::Value* Gguf::value(std::string_view key, bool required, bool array, uint32_t types,
                               const char* expected) const {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    if (required) fail("key " + quoted(key), "none");
    return nullptr;
  }
  const Value& v = found->second;
  if ((types >> v.element & 1) == 0 || (v.type == kArray) != array)
    fail("key " + quoted(key) + " with " + expected,
         std::string(v.type == kArray ? "an array of " : "a value of type ") +
             kValueType[v.element].name);
  return &v;
}

int64_t Gguf::integer(std::string_view key, std::optional<int64_t> fallback) const {
  const Value* v = value(key, !fallback, false, kIntegers, "an integer");
  if (v == nullptr) return *fallback;
  const std::byte* at = v->at;
  return take_integer(v->type, at);
}

double Gguf::number(std::string_view key, std::optional<double> fallback) const {
  const Value* v = value(key, !fallback, false, kFloats, "an f32 or f64");
  if (v == nullptr) return *fallback;
  const std::byte* at = v->at;
  return v->type == 12 ? take<double>(at) : static_cast<double>(take<float>(at));
}

bool Gguf::flag(std::string_view key, bool fallback) const {
  const Value* v = value(key, false, false, 1 << kBool, "a bool");
  return v != nullptr ? *v->at != std::byte{0} : fallback;
}

std::string_view Gguf::text(std::string_view key, std::optional<std::string_view> fallback) const {
  const Value* v = value(key, !fallback, false, 1 << kString, "a string");
  if (v == nullptr) return *fallback;
  const std::byte* at = v->at;
  return take_text(at);
}

std::vector<std::string_view> Gguf::texts(std::string_view key) const {
  const Value& v = *value(key, true, true, 1 << kString, "an array of strings");
  std::vector<std::string_view> all(v.count);
  const std::byte* at = v.at;
  for (std::string_view& t : all) t = take_text(at);
  return all;
}

std::vector<int64_t> Gguf::integers(std::string_view key) const {
  const Value& v = *value(key, true, true, kIntegers, "an array of integers");
  std::vector<int64_t> all(v.count);
  const std::byte* at = v.at;
  for (int64_t& n : all) n = take_integer(v.element, at);
  return all;
}

const GgufTensor* Gguf::find(std::string_view tensor) const {
  const auto found = by_name_.find(tensor);
  return found != by_name_.end() ? &tensors_[found->second] : nullptr;
}

const GgufTensor& Gguf::tensor(std::string_view tensor) const {
  if (const GgufTensor* t = find(tensor)) return *t;
  fail("tensor " + quoted(tensor), "none");
}

}  // namespace llm
