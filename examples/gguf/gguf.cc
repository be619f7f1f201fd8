// SPDX-License-Identifier: Apache-2.0
#include "gguf.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yard/plugin.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace llm {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in place");

// The names of tensor types, indexed by GGUF's numbers. Some have no dtype in Switchyard.
constexpr const char* kTensorTypes[] = {
    "f32",     "f16",    "q4_0",    "q4_1",  "",       "",      "q5_0",  "q5_1",
    "q8_0",    "q8_1",   "q2_k",    "q3_k",  "q4_k",   "q5_k",  "q6_k",  "q8_k",
    "iq2_xxs", "iq2_xs", "iq3_xxs", "iq1_s", "iq4_nl", "iq3_s", "iq2_s", "iq4_xs",
    "i8",      "i16",    "i32",     "i64",   "f64",    "iq1_m", "bf16",  "",
    "",        "",       "tq1_0",   "tq2_0", "",       "",      "",      "mxfp4"};
// Bytes of a value, indexed by the number of its type. A string has at least 8, and 0 marks an
// array.
constexpr size_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
constexpr uint32_t kString = 8, kArray = 9;
constexpr uint32_t kMagic = 0x46554747;
constexpr bool is_integer(uint32_t type) { return type < 6 || type == 10 || type == 11; }

std::string quoted(std::string_view text) { return cat("'", text.substr(0, 80), "'"); }

}  // namespace

// Reads numbers, strings and compounds one after the other. Fails at the end of the file.
class Gguf::Reader {
 public:
  explicit Reader(const Gguf& file, size_t at = 0) : file_(file), at_(at) {}

  size_t position() const { return at_; }
  template <class T>
  T number() {
    T v;
    std::memcpy(&v, take(sizeof v), sizeof v);
    return v;
  }
  // Reads the number of elements, each of at least `bytes` bytes. Fails if the file is too short.
  uint64_t count(size_t bytes, const char* what) {
    const auto n = number<uint64_t>();
    const size_t most = (file_.bytes_.size() - at_) / bytes;
    if (n > most) file_.fail(cat("at most ", most, " ", what, " in the rest of the file"), n);
    return n;
  }
  uint64_t count_entries(size_t bytes, const char* what) {
    const uint64_t n = count(bytes, what);
    if (n > kMostEntries) file_.fail(cat("at most ", kMostEntries, " ", what), n);
    return n;
  }
  Text string(const char* what) {
    const uint64_t n = count(1, what);
    return {reinterpret_cast<const char*>(take(n)), n};
  }
  Value value() {
    const uint32_t type = value_type();
    if (type != kArray) return scalar(type);
    const uint32_t element = value_type();
    if (element == kArray) file_.fail("an array of numbers or strings", "an array of arrays");
    const Array all{element, count(kValueBytes[element], "elements"), at_};
    if (element != kString) return take(all.count * kValueBytes[element]), all;
    for (uint64_t n = all.count; n > 0; --n) string("bytes of a string");
    return all;
  }
  Value scalar(uint32_t type) {
    if (type == kString) return string("bytes of a string");
    const size_t bytes = kValueBytes[type];
    uint64_t raw = 0;
    std::memcpy(&raw, take(bytes), bytes);
    if (type == 6) return double{std::bit_cast<float>(static_cast<uint32_t>(raw))};
    if (type == 7) return raw != 0;
    if (type == 12) return std::bit_cast<double>(raw);
    const size_t unused = type % 2 == 0 ? 0 : 64 - 8 * bytes;  // odd numbers are signed types
    return static_cast<int64_t>(raw << unused) >> unused;
  }
  // Reads the rest of a tensor's description, after its name.
  GgufTensor tensor(const std::string& name) {
    GgufTensor t;
    const auto rank = number<uint32_t>();
    if (rank < 1 || rank > 4) file_.fail(cat("tensor ", name, " of 1 to 4 dimensions"), rank);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank; ++i) {
      const auto size = number<uint64_t>();
      if (size < 1 || size > INT64_MAX / 16 / elements)
        file_.fail(cat("sizes of tensor ", name, " that are positive and fit 64 bits"), size);
      elements *= size;
      t.shape.insert(t.shape.begin(), static_cast<int64_t>(size));
    }
    const auto type = number<uint32_t>();
    const std::string known = type < std::size(kTensorTypes) ? kTensorTypes[type] : "";
    t.dtype = yard::parse_dtype(known).value_or(yard::DType::invalid);
    if (t.dtype == yard::DType::invalid)
      file_.fail(cat("tensor ", name, " of type f32, f16, bf16, q8_0, q4_0, q4_1, q4_k or q6_k"),
                 known.empty() ? cat("type number ", type) : known);
    const yard_dtype_t unit = yard::to_dlpack(t.dtype);
    if (t.shape.back() % yard_unit_elements(unit) != 0)
      file_.fail(cat("rows of tensor ", name, " in blocks of ", yard_unit_elements(unit)),
                 "rows of ", t.shape.back());
    t.bytes = elements / static_cast<uint64_t>(yard_unit_elements(unit)) *
              static_cast<uint64_t>(yard_unit_bytes(unit));
    t.offset = number<uint64_t>();
    return t;
  }

 private:
  const std::byte* take(size_t bytes) {
    const size_t all = file_.bytes_.size();
    if (bytes > all - at_) file_.fail(cat(bytes, " bytes at ", at_), "a file of ", all, " bytes");
    at_ += bytes;
    return file_.bytes_.data() + (at_ - bytes);
  }
  uint32_t value_type() {
    const auto type = number<uint32_t>();
    if (type >= std::size(kValueBytes)) file_.fail("the type of a value, 0 to 12", type);
    return type;
  }
  const Gguf& file_;
  size_t at_ = 0;
};

Gguf Gguf::open(const std::string& path) {
  const auto fail_with = [&](const char* doing, const char* why) {
    throw std::runtime_error(cat("cannot ", doing, " the model ", path, ": ", why));
  };
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail_with("open", std::strerror(errno));
  const std::shared_ptr<void> closed(nullptr, [file](void*) { ::close(file); });
  struct stat info {};
  if (::fstat(file, &info) != 0) fail_with("open", std::strerror(errno));
  if (S_ISDIR(info.st_mode)) fail_with("read", "expected a GGUF file, got a folder");
  if (!S_ISREG(info.st_mode)) fail_with("read", "expected a regular file, got a pipe or a device");
  if (info.st_size == 0) fail_with("read", "expected a GGUF file, got an empty file");
  const auto size = static_cast<size_t>(info.st_size);
  std::byte start[sizeof kMagic];
  const ssize_t got = ::pread(file, start, sizeof start, 0);
  if (got < 0) fail_with("read", std::strerror(errno));
  if (got < ssize_t{sizeof start} || std::memcmp(start, &kMagic, sizeof start) != 0)
    return parse({start, static_cast<size_t>(got)}, path);  // throws
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (data == MAP_FAILED) fail_with("map", std::strerror(errno));
  const std::shared_ptr<const void> mapping(data, [=](const void*) { ::munmap(data, size); });
  Gguf g = parse({static_cast<const std::byte*>(data), size}, path);
  g.mapping_ = mapping;
  return g;
}

void Gguf::prefetch() const {
  if (mapping_ == nullptr || tensors_.empty()) return;
  const std::byte *first = bytes_.data() + bytes_.size(), *last = bytes_.data();
  for (const auto& [name, t] : tensors_)
    first = std::min(first, t.data), last = std::max(last, t.data + t.bytes);
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t from = static_cast<size_t>(first - bytes_.data()) / page * page;
  void* const start = const_cast<std::byte*>(bytes_.data() + from);
  const size_t size = static_cast<size_t>(last - bytes_.data()) - from;
  if (::madvise(start, size, MADV_POPULATE_READ) != 0) ::madvise(start, size, MADV_WILLNEED);
}

void Gguf::release(const yard::TensorView& tensor) const {
  if (mapping_ == nullptr) return;
  const yard_dtype_t dtype = tensor.c().dtype;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data());
  const auto bytes =
      static_cast<uintptr_t>(tensor.numel() / yard_unit_elements(dtype) * yard_unit_bytes(dtype));
  // Other tensors may share the first and the last page.
  const uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

Gguf Gguf::parse(std::span<const std::byte> bytes, std::string name) {
  Gguf g;
  g.bytes_ = bytes, g.name_ = std::move(name);
  Reader in(g);
  if (bytes.size() < 4 || in.number<uint32_t>() != kMagic)
    g.fail("the four letters GGUF", "a file of another kind");
  if (const auto version = in.number<uint32_t>(); version != 2 && version != 3)
    g.fail("version 2 or 3, little-endian", version);
  // The shortest tensor has an empty name and one size. The shortest value is a byte.
  const uint64_t tensors = in.count_entries(8 + 4 + 8 + 4 + 8, "tensors");
  for (uint64_t n = in.count_entries(8 + 4 + 1, "values"); n > 0; --n) {
    const Text key = in.string("bytes of a key");
    if (!g.values_.emplace(key, in.value()).second) g.fail("each key once", quoted(key), " again");
  }
  for (uint64_t n = tensors; n > 0; --n) {
    const Text key = in.string("bytes of a name");
    if (!g.tensors_.emplace(key, in.tensor(quoted(key))).second)
      g.fail("each tensor once", quoted(key), " again");
  }
  const auto step = static_cast<size_t>(g.integer("general.alignment", 32));
  if (step > 1 << 20 || !std::has_single_bit(step))
    g.fail("general.alignment as a power of two up to 1048576", g.integer("general.alignment"));
  const size_t start = std::min(bytes.size(), (in.position() + step - 1) / step * step);
  for (auto& [key, t] : g.tensors_) {
    const size_t room = bytes.size() - start;
    if (t.offset % step != 0)
      g.fail(cat("the offset of tensor ", quoted(key), " as a multiple of ", step), t.offset);
    if (t.offset > room || t.bytes > room - t.offset)
      g.fail(cat("the ", t.bytes, " bytes of tensor ", quoted(key), " at offset ", t.offset), room,
             " bytes of tensors");
    t.data = bytes.data() + start + t.offset;
  }
  return g;
}

const Gguf::Value* Gguf::find_value(Text key) const {
  const auto found = values_.find(key);
  return found != values_.end() ? &found->second : nullptr;
}

void Gguf::fail_type(Text key, const char* type) const {
  fail(cat("key '", key, "' with ", type), "a value of another type");
}

template <class T>
std::vector<T> Gguf::array(Text key, const Else<std::vector<T>>& fallback, const char* type) const {
  const Value* const found = find_value(key);
  if (found == nullptr && fallback) return *fallback;
  if (found == nullptr) fail(cat("key '", key, "'"), "none");
  const Array* const stored = std::get_if<Array>(found);
  const bool fits = stored != nullptr &&
                    (std::is_same_v<T, Text> ? stored->type == kString : is_integer(stored->type));
  if (!fits) fail_type(key, type);
  if (stored->count > kMostElements)
    fail(cat("key '", key, "' with at most ", kMostElements, " elements"), stored->count);
  Reader in(*this, stored->at);  // checks lengths again: the file may have been overwritten
  std::vector<T> all(stored->count);
  for (T& v : all) v = std::get<T>(in.scalar(stored->type));
  return all;
}

Gguf::Integers Gguf::integers(Text key, Else<Integers> fallback) const {
  return array<int64_t>(key, fallback, "an array of integers");
}
Gguf::Texts Gguf::texts(Text key, Else<Texts> fallback) const {
  return array<Text>(key, fallback, "an array of strings");
}

const GgufTensor* Gguf::find(Text name) const {
  const auto found = tensors_.find(name);
  return found != tensors_.end() ? &found->second : nullptr;
}
const GgufTensor& Gguf::tensor(Text name) const {
  if (const GgufTensor* t = find(name)) return *t;
  fail("tensor " + quoted(name), "none");
}

namespace {

const char* g_message;
int g_descriptor;
struct sigaction g_before;

void on_sigbus(int number, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // the signal comes again and reaches the previous handler
    ::sigaction(number, &g_before, nullptr);
    return;
  }
  [[maybe_unused]] const ssize_t written = ::write(g_descriptor, g_message, std::strlen(g_message));
  ::_exit(1);
}

}  // namespace

void end_on_truncation(const char* message, int descriptor) {
  g_message = message, g_descriptor = descriptor;
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &g_before);
}

}  // namespace llm
