// SPDX-License-Identifier: Apache-2.0
// Calls ops that are known only at run time, in code or in text form, and compares their results.
//
//   yard::call("rms_norm", {out, x, weight, {"eps", 1e-6}}).or_throw();
//
//   yard::ParsedCall call = runtime.parse("softmax(f32[4,8;16,1])").value();
//   yard::CallTensors found(call, 1), expected(call, 1);  // the same seed, the same numbers
//   runtime.call(call.op, found.args()).or_throw();
//   yard::Difference d = yard::compare(found.written(), expected.written(), {});
//
// docs/reference/call_spec.md describes the text form. Only one thread at a time may use an object.
#pragma once

#include <yard/detail/params.h>
#include <yard/plugin.h>

#include <functional>
#include <map>
#include <memory>
#include <variant>
#include <vector>

namespace yard {

// A list of tensors that is one argument. Borrows the views.
class TensorList {
 public:
  TensorList(std::initializer_list<std::reference_wrapper<const TensorView>> views) {
    for (const TensorView& v : views) items_.push_back(&v.c());
  }
  explicit TensorList(std::span<const TensorView> views) {
    for (const TensorView& v : views) items_.push_back(&v.c());
  }
  std::span<const yard_tensor_t* const> items() const noexcept { return items_; }

 private:
  std::vector<const yard_tensor_t*> items_;
};

struct InList {  // the type of a typed op's parameter that takes a TensorList
  InList(const TensorList& l) noexcept : items(l.items()) {}  // NOLINT: implicit on purpose
  std::span<const yard_tensor_t* const> items;
};
template <>
struct detail::Param<InList> {
  static constexpr bool is_tensor = false;
  static constexpr char letter = 'l';
  using Type = void;
  static yard_value_t pack(const InList& l) noexcept {
    return {YARD_TAG_LIST, static_cast<uint32_t>(l.items.size()), {.list = l.items.data()}};
  }
};

// The value of an argument. Borrows the view or string that it is made from.
class Value {
 public:
  Value(std::nullptr_t) noexcept {}  // NOLINT: implicit on purpose, like all of these
  Value(const TensorView& t) noexcept : v_{YARD_TAG_TENSOR, 0, {.tensor = &t.c()}} {}
  Value(const TensorList& l) noexcept
      : v_{YARD_TAG_LIST, static_cast<uint32_t>(l.items().size()), {.list = l.items().data()}} {}
  template <std::integral I>
  Value(I i) noexcept
      : v_{std::same_as<I, bool> ? YARD_TAG_BOOL : YARD_TAG_INT,
           0,
           {.i = static_cast<int64_t>(i)}} {}
  Value(double d) noexcept : v_{YARD_TAG_FLOAT, 0, {.f = d}} {}
  Value(std::string_view s) noexcept
      : v_{YARD_TAG_STRING, static_cast<uint32_t>(s.size()), {.string = s.data()}} {}
  Value(const char* s) noexcept : Value(std::string_view(s)) {}
  Value(const std::string& s) noexcept : Value(std::string_view(s)) {}
  explicit Value(const yard_value_t& v) noexcept : v_(v) {
    if (v.tag == YARD_TAG_TENSOR) v_.count = kOther;
  }

  yard_value_t c() const noexcept {
    yard_value_t v = v_;
    if (v.tag == YARD_TAG_TENSOR) v.count = 0;
    return v;
  }
  // For the library. `count` is kOther for a tensor that is not part of a view.
  static constexpr uint32_t kOther = 1;
  const yard_value_t& cell() const noexcept { return v_; }

 private:
  yard_value_t v_{};
};

struct Arg {  // an argument by position, or by name
  template <class T>
  requires std::constructible_from<Value, T> Arg(const T& v)
  noexcept : value(v) {}  // NOLINT: implicit on purpose
  template <class T>
  requires std::constructible_from<Value, T> Arg(std::string_view n, const T& v)
  noexcept : name(n), value(v) {}
  std::string_view name;
  Value value;
};

struct ParsedTensor {  // a tensor of a call, without data
  DType dtype = DType::invalid;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;     // in elements; of the same size as `shape`
  uint32_t align = YARD_MAX_ALIGN;  // of the data, in bytes
  Device device;
};

struct ParsedArg {
  std::string name;
  bool read = true;      // false for `!` in the schema
  bool written = false;  // true for `!` and `~`
  // An absent optional is std::monostate, and an enumerator is a string.
  std::variant<std::monostate, int64_t, double, bool, std::string, ParsedTensor,
               std::vector<ParsedTensor>>
      value;
  std::string same_as;  // for an output that is an input (`out=&x`): the input's name
  // The range of the elements of an integer tensor, with both ends, if the schema states it.
  struct Range {
    int64_t least = 0, most = 0;
  };
  std::optional<Range> elements;
};

struct ParsedCall {
  std::string op;
  std::string text;             // the canonical CallSpec
  std::vector<ParsedArg> args;  // every parameter, in the order of the schema
  Device device;
  uint32_t flags = 0;  // YARD_CALL_*
  std::map<std::string, std::string, std::less<>> labels;
};

// The contents of float tensors that are read. Integers are always indices or small numbers.
enum class Contents : uint8_t {
  kNormal,    // about normally distributed, mean 0, deviation 1, within 6 of it
  kNan,       // normal, with NaN in about half of the rows
  kInfinity,  // normal, with infinities of both signs in about half of the rows
  kDenormal,  // mostly subnormal numbers
  kZero,      // zeros of both signs
  kLarge,     // normal times 8192 (less where the dtype ends earlier)
};
YARD_API const char* to_string(Contents c) noexcept;  // "normal", "nan", ...
YARD_API std::optional<Contents> parse_contents(std::string_view text) noexcept;
YARD_API std::span<const Contents> all_contents() noexcept;

struct TensorBytes {  // the elements of a tensor in the order of indices, without gaps
  std::string name;   // "x", "xs[1]"
  std::string bytes;
  bool operator==(const TensorBytes&) const = default;
};

// Allocates guarded memory for the tensors of a call and fills it with numbers.
class YARD_API CallTensors {
 public:
  struct Written {
    std::string name;  // "out", "outs[1]"
    const TensorView* view;
    uint64_t inputs = 0;  // for tolerances: dtypes that the kernel reads, as YARD_DTYPE_BIT
  };

  // Fails if the call is not on the cpu or `sets` sets of its tensors need too much memory.
  static Status check(const ParsedCall& call, int sets);

  // Equal seeds and contents give equal numbers on every machine.
  CallTensors(ParsedCall call, uint64_t seed, Contents contents = Contents::kNormal);
  // For the library. Copies the elements of `args`, which are in the order of the schema. Outputs
  // share no memory with inputs, and damage() has no meaning.
  CallTensors(ParsedCall call, const yard_value_t* args);
  ~CallTensors();
  CallTensors(const CallTensors&) = delete;
  CallTensors& operator=(const CallTensors&) = delete;

  const ParsedCall& call() const noexcept;
  // The arguments by name for Runtime::call. They borrow from this object.
  const std::vector<Arg>& args() const noexcept;
  const std::vector<Written>& written() const noexcept;
  uint64_t traffic() const noexcept;  // bytes of the elements that a call reads and writes

  // Replaces the numbers of the tensors that are read. Fails unless all are given in their size.
  Status fill(std::span<const TensorBytes> contents);
  // Restores all tensors that are read, and returns their numbers.
  std::vector<TensorBytes> inputs() const;

  void restore() const;   // restores everything that calls may write
  void scramble() const;  // fills outputs with other garbage, to find kernels that read them
  // Describes changed memory except outputs, or with outputs if `written`. Empty if there is none.
  std::string damage(bool written = false) const;
  std::vector<char> bits() const;  // the elements of everything written

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

struct Difference {
  bool equal_bits = true;
  bool within = true;  // every element within its tolerance: ratio <= 1
  double max_abs = 0;  // infinite where one is NaN or infinite and the other is not
  double max_rel = 0;  // over elements whose reference is not 0
  double ratio = 0;    // the largest error in units of the allowed error
  std::string worst;   // "out[3,17]", where the ratio is largest; empty if there is none
  double worst_found = 0, worst_expected = 0;
};

// `found` and `expected` must have equal forms. An element may be off by
//   rtol * |expected| + atol * max(1, largest finite |expected| in its row, its magnitude)
// where `magnitudes` comes from yard_op_t::magnitude. docs/guides/verify.md has the details.
YARD_API Difference compare(std::span<const CallTensors::Written> found,
                            std::span<const CallTensors::Written> expected,
                            std::span<const yard_tolerance_t> tolerances,
                            std::span<const CallTensors::Written> magnitudes = {});

}  // namespace yard
