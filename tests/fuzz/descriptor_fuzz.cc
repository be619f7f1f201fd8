// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as the answer of a plugin's query. The structs, their sizes and counts, text and
// lists come from the input. Pointers are NULL or lead into the input, as a plugin could do with
// valid memory. Reading ends, and errors have a message. The input may also choose an allocation
// that fails; then reading may report out_of_memory.
#include <yard/plugin.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/results.h"
#include "base/testing_allocations.h"
#include "registry/changes.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

int32_t run(yard_call_t*, const yard_value_t*, uint32_t) { return YARD_OK; }

// Reads the input from its front, and returns zeros after its end.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {
    for (size_t i = 0; i < size; ++i) checksum_ = (checksum_ ^ data[i]) * 0x100000001b3;
    checksum_ ^= checksum_ >> 32;
  }
  uint64_t checksum() const { return checksum_; }  // over the whole input

  uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  template <class T>
  T number() {
    T v{};
    uint8_t bytes[sizeof v];
    for (uint8_t& b : bytes) b = byte();
    std::memcpy(&v, bytes, sizeof v);
    return v;
  }
  // Usually returns the right size, sometimes any number.
  uint32_t size_like(size_t right) {
    const uint8_t how = byte();
    return how < 200 ? static_cast<uint32_t>(right) : number<uint32_t>();
  }
  uint32_t count_like(size_t right) {
    const uint8_t how = byte();
    // A count that is slightly too large would be a lie that no host can detect. Counts beyond
    // reason are detected.
    if (how < 220) return static_cast<uint32_t>(right);
    return how < 240 ? 0 : ~0u - how;
  }
  // Returns text from the input, a valid word, or NULL. This object owns the text.
  const char* text(std::vector<std::unique_ptr<std::string>>& keep,
                   std::initializer_list<const char*> words) {
    const uint8_t how = byte();
    if (how < 16) return nullptr;
    std::string to;
    if (how < 180) {
      to = words.begin()[how % words.size()];
    } else {
      const size_t n = how % 40;
      for (size_t i = 0; i < n; ++i) to += static_cast<char>(byte());
    }
    keep.push_back(std::make_unique<std::string>(std::move(to)));
    return keep.back()->c_str();
  }

 private:
  const uint8_t* data_;
  size_t left_;
  uint64_t checksum_ = 0xcbf29ce484222325;
};

// Owns everything that a plugin would own.
struct Shelf {
  std::vector<std::unique_ptr<std::string>> texts;
  std::vector<yard_backend_t> backends;
  std::vector<yard_op_t> ops;
  std::vector<yard_kernel_t> kernels;
  std::vector<yard_function_t> functions;
  std::vector<yard_limit_t> limits;
  std::vector<yard_param_t> params;
  std::vector<const yard_param_t*> param_list;
  std::vector<yard_tolerance_t> tolerances;
  std::vector<const yard_backend_t*> backend_list;
  std::vector<const yard_op_t*> op_list;
  std::vector<const yard_kernel_t*> kernel_list;
  std::vector<const yard_function_t*> function_list;
  std::vector<const char*> reasons;
};

yard_backend_t make_backend(Input& in, Shelf& shelf) {
  yard_backend_t b{};
  b.size = in.size_like(sizeof b);
  b.name = in.text(shelf.texts, {"acme", "other", "has blanks"});
  b.vendor = in.text(shelf.texts, {"acme", ""});
  b.enable = in.byte() < 200 ? 0 : in.number<decltype(b.enable)>();
  b.device_type = in.byte() < 200 ? 1 : in.number<decltype(b.device_type)>();
  return b;
}

yard_op_t make_op(Input& in, Shelf& shelf) {
  yard_op_t o{};
  o.size = in.size_like(sizeof o);
  o.schema = in.text(shelf.texts, {"f(out!: T[n], x: T[n])", "g(out!: f32[a, b], x: f32[a, b])",
                                   "f(out!: T[", "h(x~: i64[n]) where n % 8 == 0"});
  o.summary = in.text(shelf.texts, {"does it", "\xc3\x28"});
  if (in.byte() > 128) {
    o.tolerances = shelf.tolerances.data();
    o.tolerance_count = in.count_like(shelf.tolerances.size());
  }
  return o;
}

yard_param_t make_param(Input& in, Shelf& shelf) {
  yard_param_t p{};
  p.size = in.size_like(sizeof p);
  p.flags = in.byte() < 160 ? 0 : in.byte() % 16;
  p.name = in.text(shelf.texts, {"out", "x", "own", "odd name"});
  p.source = in.text(shelf.texts, {"out", "x", "", "y"});
  p.layout = in.text(shelf.texts, {"", "row-major", "column-major", "b a", "n", "BSHD", "a a"});
  p.dtypes = in.byte() < 160 ? 0 : in.number<uint64_t>();
  p.align = in.byte() < 160 ? 0 : in.number<int64_t>();
  p.pad = in.byte() < 160 ? 0 : in.number<int64_t>();
  p.constant.tag = in.byte() % 8;  // a string constant has NULL text
  return p;
}

yard_kernel_t make_kernel(Input& in, Shelf& shelf) {
  yard_kernel_t k{};
  k.size = in.size_like(sizeof k);
  k.flags = in.number<uint32_t>();
  k.op = in.text(shelf.texts, {"f", "g", "h", "rms_norm"});
  k.id = in.text(shelf.texts, {"default.a", "vendor.b", "reference.c", "odd id"});
  k.backend = in.text(shelf.texts, {"acme", "other", "nowhere"});
  k.kind = in.byte() < 220 ? 1 + in.byte() % 3 : in.number<decltype(k.kind)>();
  k.priority = in.byte() < 200 ? 0 : in.number<decltype(k.priority)>();
  k.run = in.byte() < 240 ? run : nullptr;
  if (in.byte() > 128) {
    k.limits = shelf.limits.data();
    k.limit_count = in.count_like(shelf.limits.size());
  }
  if (in.byte() > 160) {
    k.params = shelf.param_list.data();
    k.param_count = in.count_like(shelf.param_list.size());
  }
  k.typed_signature = in.text(shelf.texts, {"", "tt", "xyz"});
  k.options_schema = in.text(shelf.texts, {"", "window: int = 0", "x: T[n]", "=="});
  return k;
}

yard_function_t make_function(Input& in, Shelf& shelf) {
  yard_function_t f{};
  f.size = in.size_like(sizeof f);
  f.flags = in.byte() < 200 ? in.byte() % 32u : in.number<uint32_t>();
  f.name = in.text(shelf.texts, {"atomic_add", "matmul", "odd name"});
  f.group = in.byte() < 16 ? nullptr : in.text(shelf.texts, {"kda", "odd group"});
  f.backend = in.text(shelf.texts, {"acme", "other"});
  f.signature = in.text(shelf.texts, {"i64(i64)", "void()", "i64(\n)", ""});
  f.priority = in.byte() < 200 ? 0 : in.number<int32_t>();
  f.function = in.byte() < 240 ? reinterpret_cast<void (*)()>(run) : nullptr;
  f.verify = in.byte() < 200 ? nullptr : reinterpret_cast<void (*)()>(run);
  if (in.byte() > 128)
    f.reasons = shelf.reasons.data(), f.reason_count = in.count_like(shelf.reasons.size());
  return f;
}

template <class T>
void list(const std::vector<T>& from, Input& in, std::vector<const T*>& to) {
  for (const T& t : from) to.push_back(in.byte() < 245 ? &t : nullptr);
}

yard::Status read(const yard_plugin_t& p) {
  using namespace yard;
  std::vector<registry::Step> steps;
  YARD_RETURN_IF_ERROR(registry::read_plugin(p, std::make_shared<int>(0), steps));
  return registry::apply(registry::State(), steps).status();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard;
  Input in(data, size);
  Shelf shelf;
  for (int n = in.byte() % 3; n > 0; --n)
    shelf.limits.push_back({in.byte() < 200 ? in.byte() % 12u : in.number<uint32_t>(), 0,
                            in.text(shelf.texts, {"n", "x", "a", "hidden"}), in.number<int64_t>(),
                            in.number<int64_t>(), 0});
  for (int n = in.byte() % 3; n > 0; --n)
    shelf.tolerances.push_back({in.byte(), in.byte(), in.number<double>(), in.number<double>()});
  for (int n = in.byte() % 3; n > 0; --n) shelf.backends.push_back(make_backend(in, shelf));
  for (int n = in.byte() % 3; n > 0; --n) shelf.ops.push_back(make_op(in, shelf));
  for (int n = in.byte() % 4; n > 0; --n) shelf.params.push_back(make_param(in, shelf));
  list(shelf.params, in, shelf.param_list);
  for (int n = in.byte() % 4; n > 0; --n) shelf.kernels.push_back(make_kernel(in, shelf));
  for (int n = in.byte() % 3; n > 0; --n)
    shelf.reasons.push_back(in.text(shelf.texts, {"{0} is odd", "\xff"}));
  for (int n = in.byte() % 4; n > 0; --n) shelf.functions.push_back(make_function(in, shelf));
  list(shelf.backends, in, shelf.backend_list);
  list(shelf.ops, in, shelf.op_list);
  list(shelf.kernels, in, shelf.kernel_list);
  list(shelf.functions, in, shelf.function_list);

  yard_plugin_t p{};
  p.size = in.size_like(sizeof p);
  p.abi = in.byte() < 240 ? YARD_ABI_VERSION : in.number<uint32_t>();
  p.name = in.text(shelf.texts, {"acme"}), p.version = in.text(shelf.texts, {"1.0"});
  p.backends = shelf.backend_list.data(), p.backend_count = in.count_like(shelf.backends.size());
  p.ops = shelf.op_list.data(), p.op_count = in.count_like(shelf.ops.size());
  p.kernels = shelf.kernel_list.data(), p.kernel_count = in.count_like(shelf.kernels.size());
  p.functions = shelf.function_list.data(),
  p.function_count = in.count_like(shelf.functions.size());

  const Status s = read(p);
  require(s.ok() || s.message().size() > 8);
  using base::FailingAllocations;
  for (const auto which : {FailingAllocations::kOne, FailingAllocations::kAllLater}) {
    Status again;
    {
      const FailingAllocations failing(in.checksum() % 256, which);
      again = base::or_out_of_memory([&] { return read(p); });
    }
    require(again.code() == s.code() || again.code() == Code::kOutOfMemory);
  }
  const Status last = read(p);
  require(last.code() == s.code() && last.message() == s.message());
  return 0;
}
