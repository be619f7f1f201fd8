// SPDX-License-Identifier: Apache-2.0
// CallTensors and compare() of yard/call_spec.h.
#include <fmt/format.h>
#include <unistd.h>
#include <yard/call_spec.h>

#include <cmath>
#include <deque>

#include "base/text.h"
#include "verify/elements.h"
#include "verify/parsed_call.h"

namespace yard {
namespace {

using verification::Buffer;
using verification::FloatType;

constexpr uint8_t kFirstGarbage = 0xcb, kOtherGarbage = 0x3d;
constexpr verification::IntegerRange kData{-100, 101};

TensorView form_of(const ParsedTensor& t) {
  return TensorView(nullptr, t.dtype, t.shape, t.strides, t.device);
}

std::span<const ParsedTensor> tensors_of(const ParsedArg& a) {
  if (const auto* t = std::get_if<ParsedTensor>(&a.value)) return {t, 1};
  if (const auto* list = std::get_if<std::vector<ParsedTensor>>(&a.value)) return *list;
  return {};
}

// If the schema states no range, integers of 16 bits or more that are only read are taken for
// indices into the smallest table that the call reads. Others are data.
verification::IntegerRange integers_of(const ParsedCall& call, const ParsedArg& arg, DType dtype) {
  if (arg.elements) return {arg.elements->least, std::min(arg.elements->most, INT64_MAX - 1) + 1};
  verification::IntegerRange indices;
  bool is_data = bits(dtype) < 16;
  for (const ParsedArg& a : call.args)
    for (const ParsedTensor& t : tensors_of(a)) {
      is_data |= a.written && t.dtype == dtype;
      if (a.read && !a.written && t.shape.size() >= 2 &&
          verification::float_type(t.dtype) != nullptr)
        indices.most = std::min(indices.most, t.shape[0]);
    }
  return is_data ? kData : indices;
}

// Returns the first index for tensor_name().
int first_item(const ParsedArg& a) {
  return std::holds_alternative<ParsedTensor>(a.value) ? -1 : 0;
}

using verification::kInfinity;

yard_tolerance_t tolerance_of(const CallTensors::Written& of,
                              std::span<const yard_tolerance_t> stated) {
  const DType t = of.view->dtype();
  for (const yard_tolerance_t& s : stated)
    if (s.dtype == static_cast<uint32_t>(t) &&
        (s.input == 0 || (s.input < 64 && (of.inputs & YARD_DTYPE_BIT(s.input)) != 0)))
      return s;
  const FloatType* const type = verification::float_type(t);
  return {0, 0, type != nullptr ? type->rtol : 0, type != nullptr ? type->atol : 0};
}

// Returns the absolute and the relative error.
std::pair<double, double> errors(double found, double expected) {
  if (found == expected || (std::isnan(found) && std::isnan(expected))) return {0, 0};
  if (!std::isfinite(found) || !std::isfinite(expected)) return {kInfinity, kInfinity};
  const double abs = std::fabs(found - expected);
  return {abs, expected != 0 ? abs / std::fabs(expected) : 0};
}

// Compares one pair of tensors, row by row.
struct Comparison {
  const CallTensors::Written &found, &expected;
  const yard_tolerance_t tolerance;
  const TensorView* magnitudes;
  Difference& d;
  const DType dtype = found.view->dtype();
  const FloatType* const type = verification::float_type(dtype);
  const double overflow = type != nullptr ? type->overflow : kInfinity;  // stands for an infinity

  void row(const std::vector<int64_t>& index, int64_t from, int64_t width) {
    const auto size = static_cast<int64_t>(verification::element_size(dtype));
    const int64_t step = index.empty() ? 0 : found.view->strides()[index.size() - 1];
    const auto at = [&](const TensorView& v, int64_t i) {
      return static_cast<const char*>(v.data()) + (from + i * step) * size;
    };
    const auto number = [&](const TensorView& v, int64_t i) {
      return verification::load(dtype, at(v, i));
    };
    double of_row = -1;  // computed at its first difference
    for (int64_t i = 0; i < width; ++i) {
      if (std::memcmp(at(*found.view, i), at(*expected.view, i), static_cast<size_t>(size)) == 0)
        continue;
      d.equal_bits = false;
      if (of_row < 0) {
        of_row = 1;
        for (int64_t k = 0; k < width; ++k)
          if (const double v = std::fabs(number(*expected.view, k)); std::isfinite(v))
            of_row = std::max(of_row, v);
      }
      double magnitude = of_row;
      if (magnitudes != nullptr)  // a NaN magnitude is not used
        magnitude = std::max(magnitude, std::min(number(*magnitudes, i), overflow));
      element(index, i, number(*found.view, i), number(*expected.view, i), magnitude);
    }
  }

  void element(const std::vector<int64_t>& row, int64_t column, double value, double right,
               double magnitude) {
    auto [abs, relative] = errors(value, right);
    d.max_abs = std::max(d.max_abs, abs), d.max_rel = std::max(d.max_rel, relative);
    double reference = std::fabs(right);
    // Exactly one of the two overflowed: infinity counts as the next number beyond the range.
    if (std::isinf(abs) && !std::isnan(value) && !std::isnan(right)) {
      const auto near = [&](double v) { return std::isinf(v) ? std::copysign(overflow, v) : v; };
      abs = std::fabs(near(value) - near(right));
      reference = std::fabs(near(right));
    }
    if (!(abs > 0)) return;
    const double allowed = tolerance.rtol * reference + tolerance.atol * magnitude;
    const double ratio = std::isinf(abs) || allowed == 0 ? kInfinity : abs / allowed;
    if (ratio > 1) d.within = false;
    if (ratio <= d.ratio) return;
    d.ratio = ratio, d.worst_found = value, d.worst_expected = right;
    std::vector<int64_t> index = row;
    if (!index.empty()) index.back() = column;
    d.worst = fmt::format("{}[{}]", found.name, fmt::join(index, ","));
  }
};

}  // namespace

struct CallTensors::Parts {
  struct Tensor {
    Buffer buffer;
    std::string name;
    bool read, written;
  };

  // Makes tensors and arguments. fill(arg, index in its list or -1, tensor) writes the elements.
  template <class F>
  void make(const F& fill) {
    for (const ParsedArg& a : call.args) {
      if (!a.same_as.empty()) continue;
      // An output aliased to this input writes it.
      bool changes = a.written;
      for (const ParsedArg& b : call.args) changes |= b.same_as == a.name;
      int item = first_item(a);
      for (const ParsedTensor& form : tensors_of(a)) {
        Tensor& t =
            tensors.emplace_back(Tensor{Buffer(form_of(form), form.align, changes),
                                        verification::tensor_name(a.name, item), a.read, changes});
        fill(a, item++, t);
        if (a.read) inputs |= YARD_DTYPE_BIT(static_cast<uint32_t>(form.dtype));
        traffic += verification::packed_bytes(t.buffer.view()) *
                   ((a.read ? 1u : 0u) + (changes ? 1u : 0u));
      }
    }
    for (const ParsedArg& a : call.args) {
      std::vector<TensorView>& list = views.emplace_back();
      const TensorView* last = nullptr;
      int item = first_item(a);
      for (size_t k = 0; k < tensors_of(a).size(); ++k, ++item) {
        const std::string owner =
            verification::tensor_name(a.same_as.empty() ? a.name : a.same_as, item);
        last = &std::ranges::find(tensors, owner, &Tensor::name)->buffer.view();
        list.push_back(*last);
        if (a.written) written.push_back({verification::tensor_name(a.name, item), last, inputs});
      }
      if (std::holds_alternative<ParsedTensor>(a.value))
        args.emplace_back(a.name, *last);
      else if (std::holds_alternative<std::vector<ParsedTensor>>(a.value))
        args.emplace_back(a.name, lists.emplace_back(std::span<const TensorView>(list)));
      else
        std::visit(
            [&](const auto& v) {
              if constexpr (std::is_constructible_v<Value, decltype(v)>)
                args.emplace_back(a.name, v);
            },
            a.value);
    }
  }

  ParsedCall call;  // arguments refer to its names and strings
  std::deque<Tensor> tensors;
  std::deque<std::vector<TensorView>> views;
  std::deque<TensorList> lists;
  std::vector<Arg> args;
  std::vector<CallTensors::Written> written;
  uint64_t traffic = 0, inputs = 0;
};

Status CallTensors::check(const ParsedCall& call, int sets) {
  double bytes = 0;
  for (const ParsedArg& a : call.args)
    for (const ParsedTensor& t : tensors_of(a)) {
      if (t.device.type != Device().type)
        return Status(Code::kUnsupported,
                      fmt::format("argument '{}' is on {}; tensors can be made on the cpu only",
                                  a.name, to_string(t.device)));
      bytes += 2 * verification::reach_in_bytes(form_of(t));
    }
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes * sets > 0.7 * memory)
    return Status(
        Code::kUnsupported,
        fmt::format("the call's tensors and a copy of them take {:.3g} GB, {} times over; this "
                    "machine has {:.3g} GB; expected smaller shapes",
                    bytes / 1e9, sets, memory / 1e9));
  return {};
}

CallTensors::CallTensors(ParsedCall parsed, uint64_t seed, Contents contents)
    : parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  p.call = std::move(parsed);
  p.make([&](const ParsedArg& a, int, Parts::Tensor& t) {
    const TensorView& view = t.buffer.view();
    const verification::Random random(seed ^ (p.tensors.size() * 0x9e3779b97f4a7c15ull));
    if (a.read)
      verification::fill(view, random, contents, integers_of(p.call, a, view.dtype()));
    else
      t.buffer.scramble(kFirstGarbage);
    t.buffer.save();
  });
}

CallTensors::CallTensors(ParsedCall parsed, const yard_value_t* args)
    : parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  p.call = std::move(parsed);
  for (ParsedArg& a : p.call.args) a.same_as.clear();
  p.make([&](const ParsedArg& a, int item, Parts::Tensor& t) {
    if (!t.read) return;
    const yard_value_t& from = args[&a - p.call.args.data()];
    verification::copy_elements(TensorView(item < 0 ? *from.u.tensor : *from.u.list[item]),
                                t.buffer.view());
    if (t.written) t.buffer.save();
  });
}

CallTensors::~CallTensors() = default;

const ParsedCall& CallTensors::call() const noexcept { return parts_->call; }
const std::vector<Arg>& CallTensors::args() const noexcept { return parts_->args; }
const std::vector<CallTensors::Written>& CallTensors::written() const noexcept {
  return parts_->written;
}
uint64_t CallTensors::traffic() const noexcept { return parts_->traffic; }

Status CallTensors::fill(std::span<const TensorBytes> contents) {
  const auto bad = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  std::map<std::string, Buffer*> missing, filled;
  for (Parts::Tensor& t : parts_->tensors)
    if (t.read) missing[t.name] = &t.buffer;
  for (const TensorBytes& t : contents) {
    if (filled.contains(t.name))
      return bad(fmt::format("the contents of '{}' are given twice", t.name));
    if (!missing.contains(t.name))
      return bad(fmt::format("the call reads no tensor {}", base::excerpt(t.name)));
    Buffer* const buffer = filled[t.name] = missing.extract(t.name).mapped();
    if (const uint64_t bytes = verification::packed_bytes(buffer->view()); t.bytes.size() != bytes)
      return bad(fmt::format("invalid contents of '{}': expected {} bytes, got {}", t.name, bytes,
                             t.bytes.size()));
  }
  if (!missing.empty())
    return bad(fmt::format("the contents of '{}' are missing", missing.begin()->first));
  for (const TensorBytes& t : contents) {
    verification::unpack_elements(t.bytes, filled[t.name]->view());
    filled[t.name]->save();
  }
  return {};
}

std::vector<TensorBytes> CallTensors::inputs() const {
  std::vector<TensorBytes> to;
  for (const Parts::Tensor& t : parts_->tensors) {
    if (!t.read) continue;
    t.buffer.restore();
    to.push_back({t.name, verification::packed_elements(t.buffer.view())});
  }
  return to;
}

void CallTensors::restore() const {
  for (const Parts::Tensor& t : parts_->tensors)
    if (t.written) t.buffer.restore();
}

void CallTensors::scramble() const {
  for (const Parts::Tensor& t : parts_->tensors)
    if (t.written && !t.read) t.buffer.scramble(kOtherGarbage);
}

std::string CallTensors::damage(bool written) const {
  for (const Parts::Tensor& t : parts_->tensors) {
    const std::string what = t.buffer.damage(!t.written || written);
    if (what.empty()) continue;
    return t.written ? fmt::format("wrote to the memory of '{}', {}", t.name, what)
                     : fmt::format("changed '{}', which is only read, {}", t.name, what);
  }
  return "";
}

std::vector<char> CallTensors::bits() const {
  std::vector<char> to;
  for (const CallTensors::Written& w : parts_->written) {
    const std::string bytes = verification::packed_elements(*w.view);
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
  return to;
}

Difference compare(std::span<const CallTensors::Written> found,
                   std::span<const CallTensors::Written> expected,
                   std::span<const yard_tolerance_t> tolerances,
                   std::span<const CallTensors::Written> magnitudes) {
  Difference d;
  for (size_t k = 0; k < found.size(); ++k) {
    Comparison pair{found[k], expected[k], tolerance_of(found[k], tolerances),
                    k < magnitudes.size() ? magnitudes[k].view : nullptr, d};
    verification::for_each_row(
        *found[k].view,
        [&](const auto& index, int64_t offset, int64_t width) { pair.row(index, offset, width); });
  }
  return d;
}

}  // namespace yard
