// SPDX-License-Identifier: Apache-2.0
// Memory and contents for calls read from text.
#include "tensors.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "elements.h"

namespace yard::tool {
namespace {

constexpr size_t kLine = YARD_MAX_ALIGN;

int64_t numel(const ParsedTensor& t) {
  int64_t n = 1;
  for (int64_t d : t.shape) n *= d;
  return n;
}

// How many elements lie below and above the first one.
struct Reach {
  uint64_t below = 0, above = 0;
};
Reach reach(const ParsedTensor& t) {
  Reach r;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (t.shape[i] <= 1) continue;
    const uint64_t steps = static_cast<uint64_t>(t.shape[i] - 1);
    if (t.strides[i] < 0)
      r.below += steps * static_cast<uint64_t>(-t.strides[i]);
    else
      r.above += steps * static_cast<uint64_t>(t.strides[i]);
  }
  return r;
}

template <class F>
void for_each_tensor(const ParsedArg& a, const F& f) {
  if (const auto* t = std::get_if<ParsedTensor>(&a.value)) f(*t);
  if (const auto* list = std::get_if<std::vector<ParsedTensor>>(&a.value))
    for (const ParsedTensor& t : *list) f(t);
}

// Calls f(pointer) for every element, in the order of indices.
template <class F>
void for_each_element(const TensorView& v, const F& f) {
  const auto size = static_cast<int64_t>(element_size(v.dtype()));
  std::vector<int64_t> index(static_cast<size_t>(v.rank()), 0);
  for (int64_t left = v.numel(); left > 0; --left) {
    int64_t offset = 0;
    for (size_t i = 0; i < index.size(); ++i) offset += index[i] * v.strides()[i];
    f(static_cast<char*>(v.data()) + offset * size);
    for (size_t i = index.size(); i-- > 0;) {
      if (++index[i] < v.shape()[i]) break;
      index[i] = 0;
    }
  }
}

// Integers are taken for indices into the tables of the call: tensors of numbers that are only read
// and have rows. Every index lies within the shortest of them.
uint64_t index_limit(const ParsedCall& call) {
  uint64_t limit = 1024;
  for (const ParsedArg& a : call.args)
    for_each_tensor(a, [&](const ParsedTensor& t) {
      if (a.read && !a.written && is_float(t.dtype) && t.shape.size() >= 2)
        limit = std::min(limit, static_cast<uint64_t>(t.shape[0]));
    });
  return limit;
}

void fill(const TensorView& v, Random random, uint64_t indices) {
  const DType t = v.dtype();
  const uint64_t most = std::min<uint64_t>(indices, t == DType::boolean            ? 2
                                                    : bits(t) < 8                  ? 8
                                                    : bits(t) == 8 && !is_float(t) ? 128
                                                                                   : ~0ull);
  for_each_element(v, [&](char* at) {
    if (is_float(t))
      store(t, at, 4 * random.unit() - 2);
    else
      store(t, at, static_cast<double>(random.below(most)));
  });
}

}  // namespace

void Buffer::Free::operator()(void* p) const noexcept { std::free(p); }

Buffer::Buffer(const ParsedTensor& t) {
  const size_t size = element_size(t.dtype);
  const Reach r = reach(t);
  const bool empty = numel(t) == 0;
  bytes_ = empty ? 0 : (r.below + r.above + 1) * size;
  const size_t before = empty ? 0 : (r.below * size + kLine - 1) / kLine * kLine;
  // An address with exactly the alignment asked for, never a better one.
  const size_t offset = before + (t.align < kLine ? t.align : 0);
  const size_t room = (offset + (empty ? 0 : (r.above + 1) * size) + 2 * kLine - 1) / kLine * kLine;
  memory_.reset(static_cast<char*>(std::aligned_alloc(kLine, room)));
  if (memory_ == nullptr) throw std::bad_alloc();
  std::memset(memory_.get(), 0, room);
  char* data = memory_.get() + offset;
  begin_ = data - (empty ? 0 : r.below * size);
  view_ = TensorView(static_cast<void*>(data), t.dtype, t.shape, t.strides, t.device);
}

void Buffer::restore() const {
  if (!image_.empty()) std::memcpy(begin_, image_.data(), bytes_);
}

Status CallTensors::check(const ParsedCall& call, int copies) {
  double bytes = 0;  // strides may be beyond all bounds
  for (const ParsedArg& a : call.args) {
    Status bad;
    for_each_tensor(a, [&](const ParsedTensor& t) {
      if (t.device.type != 1)
        bad = Status(Code::kUnsupported,
                     fmt::format("argument '{}' is on {}; tensors can be made on the cpu only",
                                 a.name, to_string(t.device)));
      double elements = numel(t) > 0 ? 1 : 0;
      for (size_t i = 0; i < t.shape.size() && elements > 0; ++i)
        elements +=
            static_cast<double>(t.shape[i] - 1) * std::fabs(static_cast<double>(t.strides[i]));
      bytes += elements * static_cast<double>(element_size(t.dtype));
    });
    YARD_RETURN_IF_ERROR(bad);
  }
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes * copies > 0.7 * memory)
    return Status(
        Code::kUnsupported,
        fmt::format("the call's tensors take {:.3g} GB and are made {} times over; this machine "
                    "has {:.3g} GB, so smaller shapes would be right",
                    bytes / 1e9, copies, memory / 1e9));
  return {};
}

Buffer& CallTensors::make(const ParsedArg& arg, const ParsedTensor& tensor, uint64_t seed,
                          uint64_t indices) {
  Buffer& b = buffers_.emplace_back(tensor);
  if (arg.read) fill(b.view(), Random(seed ^ (buffers_.size() * 0x9e3779b97f4a7c15ull)), indices);
  traffic_ += static_cast<uint64_t>(b.view().numel()) * element_size(tensor.dtype) *
              (arg.read && arg.written ? 2 : 1);
  return b;
}

CallTensors::CallTensors(ParsedCall call, uint64_t seed) : call_(std::move(call)) {
  const uint64_t indices = index_limit(call_);
  // Arguments keep pointers to views: make them all first.
  std::vector<std::pair<const ParsedArg*, Buffer*>> single;
  for (const ParsedArg& a : call_.args) {
    if (const auto* t = std::get_if<ParsedTensor>(&a.value)) {
      if (a.same_as.empty()) single.emplace_back(&a, &make(a, *t, seed, indices));
    } else if (const auto* list = std::get_if<std::vector<ParsedTensor>>(&a.value)) {
      auto& views = views_.emplace_back();
      for (const ParsedTensor& item : *list) {
        Buffer& b = make(a, item, seed, indices);
        views.push_back(b.view());
        if (a.written) overwritten_.push_back(&b);
      }
      args_.emplace_back(a.name, lists_.emplace_back(std::span<const TensorView>(views)));
      for (size_t i = 0; a.written && i < views.size(); ++i)
        written_.push_back({fmt::format("{}[{}]", a.name, i), &views[i]});
    } else if (!std::holds_alternative<std::monostate>(a.value)) {
      std::visit(
          [&](const auto& v) {
            if constexpr (std::is_constructible_v<Value, decltype(v)>)
              args_.emplace_back(a.name, v);
          },
          a.value);
    }
  }
  for (const ParsedArg& a : call_.args) {
    if (!std::holds_alternative<ParsedTensor>(a.value)) continue;
    const std::string& owner = a.same_as.empty() ? a.name : a.same_as;
    for (const auto& [arg, buffer] : single) {
      if (arg->name != owner) continue;
      args_.emplace_back(a.name, buffer->view());
      if (!a.same_as.empty())
        traffic_ +=
            static_cast<uint64_t>(buffer->view().numel()) * element_size(buffer->view().dtype());
      if (!a.written) continue;
      written_.push_back({a.name, &buffer->view()});
      overwritten_.push_back(buffer);
    }
  }
  for (Buffer* b : overwritten_) b->remember();
}

void CallTensors::restore() const {
  for (const Buffer* b : overwritten_) b->restore();
}

}  // namespace yard::tool
