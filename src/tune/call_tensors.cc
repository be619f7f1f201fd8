// SPDX-License-Identifier: Apache-2.0
// CallTensors of yard/call_spec.h.
#include <yard/call_spec.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <deque>

#include "base/text.h"
#include "tune/buffer.h"
namespace yard {
namespace {

using tune::Buffer;
using tune::element_size;
using tune::is_float;

constexpr uint8_t kFirstGarbage = 0xcb, kOtherGarbage = 0x3d;
constexpr tune::IntegerRange kData{-100, 101};

template <class F>
void for_each_tensor(const ParsedArg& a, const F& f) {
  if (const auto* t = std::get_if<ParsedTensor>(&a.value)) f(*t);
  if (const auto* list = std::get_if<std::vector<ParsedTensor>>(&a.value))
    for (const ParsedTensor& t : *list) f(t);
}

// Integers that are no data are taken for indices into the smallest table that the call reads.
int64_t index_limit(const ParsedCall& call) {
  int64_t limit = tune::IntegerRange().most;
  for (const ParsedArg& a : call.args)
    for_each_tensor(a, [&](const ParsedTensor& t) {
      if (a.read && !a.written && is_float(t.dtype) && t.shape.size() >= 2)
        limit = std::min(limit, t.shape[0]);
    });
  return limit;
}

// Integers of a dtype that is also written are data, not indices.
bool is_data(const ParsedCall& call, DType dtype) {
  bool written = false;
  for (const ParsedArg& a : call.args)
    for_each_tensor(a, [&](const ParsedTensor& t) { written |= a.written && t.dtype == dtype; });
  return written;
}

}  // namespace

struct CallTensors::Parts {
  struct Tensor {
    Tensor(const ParsedTensor& t, std::string n, bool r, bool w)
        : buffer(t, w), name(std::move(n)), read(r), written(w) {}
    Buffer buffer;
    std::string name;
    bool read, written;
  };

  Tensor& make(const ParsedArg& arg, const ParsedTensor& tensor, std::string name, uint64_t seed,
               Contents contents) {
    // An output aliased to this input writes it.
    bool changes = arg.written;
    for (const ParsedArg& a : call.args) changes |= a.same_as == arg.name;
    Tensor& t = tensors.emplace_back(tensor, std::move(name), arg.read, changes);
    const tune::Random random(seed ^ (tensors.size() * 0x9e3779b97f4a7c15ull));
    if (arg.read)
      tune::fill(t.buffer.view(), random, contents,
                 is_data(call, tensor.dtype) ? kData : tune::IntegerRange{0, index_limit(call)});
    else
      t.buffer.scramble(kFirstGarbage);
    t.buffer.save();
    traffic += tune::packed_bytes(t.buffer.view()) * ((arg.read ? 1u : 0u) + (changes ? 1u : 0u));
    return t;
  }

  ParsedCall call;  // arguments refer to its names and strings
  std::deque<Tensor> tensors;
  std::deque<std::vector<TensorView>> views;
  std::deque<TensorList> lists;
  std::vector<Arg> args;
  std::vector<WrittenTensor> written;
  uint64_t traffic = 0;
};

Status CallTensors::check(const ParsedCall& call, int sets) {
  double bytes = 0;
  for (const ParsedArg& a : call.args) {
    Status bad;
    for_each_tensor(a, [&](const ParsedTensor& t) {
      if (t.device.type != 1)
        bad = Status(Code::kUnsupported,
                     fmt::format("argument '{}' is on {}; tensors can be made on the cpu only",
                                 a.name, to_string(t.device)));
      bytes += 2 * tune::reach_in_bytes(t);
    });
    YARD_RETURN_IF_ERROR(bad);
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
  // Arguments point to views, so the tensors are made first.
  std::vector<std::pair<const ParsedArg*, Parts::Tensor*>> single;
  for (const ParsedArg& a : p.call.args) {
    if (const auto* t = std::get_if<ParsedTensor>(&a.value)) {
      if (a.same_as.empty()) single.emplace_back(&a, &p.make(a, *t, a.name, seed, contents));
    } else if (const auto* list = std::get_if<std::vector<ParsedTensor>>(&a.value)) {
      auto& views = p.views.emplace_back();
      for (size_t i = 0; i < list->size(); ++i)
        views.push_back(
            p.make(a, (*list)[i], fmt::format("{}[{}]", a.name, i), seed, contents).buffer.view());
      p.args.emplace_back(a.name, p.lists.emplace_back(std::span<const TensorView>(views)));
      for (size_t i = 0; a.written && i < views.size(); ++i)
        p.written.push_back({fmt::format("{}[{}]", a.name, i), &views[i]});
    } else if (!std::holds_alternative<std::monostate>(a.value)) {
      std::visit(
          [&](const auto& v) {
            if constexpr (std::is_constructible_v<Value, decltype(v)>)
              p.args.emplace_back(a.name, v);
          },
          a.value);
    }
  }
  for (const ParsedArg& a : p.call.args) {
    if (!std::holds_alternative<ParsedTensor>(a.value)) continue;
    const std::string& owner = a.same_as.empty() ? a.name : a.same_as;
    for (const auto& [arg, tensor] : single) {
      if (arg->name != owner) continue;
      p.args.emplace_back(a.name, tensor->buffer.view());
      if (a.written) p.written.push_back({a.name, &tensor->buffer.view()});
    }
  }
}

CallTensors::~CallTensors() = default;

const std::vector<Arg>& CallTensors::args() const noexcept { return parts_->args; }
const std::vector<WrittenTensor>& CallTensors::written() const noexcept { return parts_->written; }
uint64_t CallTensors::traffic() const noexcept { return parts_->traffic; }

Status CallTensors::fill(std::span<const TensorBytes> contents) {
  const auto bad = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  std::vector<Parts::Tensor*> read;
  for (Parts::Tensor& t : parts_->tensors)
    if (t.read) read.push_back(&t);
  for (const TensorBytes& t : contents)
    if (std::none_of(read.begin(), read.end(), [&](const auto* h) { return h->name == t.name; }))
      return bad(fmt::format("the call reads no tensor {}", base::excerpt(t.name)));
  std::vector<const TensorBytes*> found;
  for (const Parts::Tensor* r : read) {
    const auto is = [&](const TensorBytes& t) { return t.name == r->name; };
    const auto it = std::find_if(contents.begin(), contents.end(), is);
    if (it == contents.end()) return bad(fmt::format("the contents of '{}' are missing", r->name));
    if (std::find_if(it + 1, contents.end(), is) != contents.end())
      return bad(fmt::format("the contents of '{}' are given twice", r->name));
    if (const uint64_t bytes = tune::packed_bytes(r->buffer.view()); it->bytes.size() != bytes)
      return bad(fmt::format("invalid contents of '{}': expected {} bytes, got {}", r->name, bytes,
                             it->bytes.size()));
    found.push_back(&*it);
  }
  for (size_t i = 0; i < read.size(); ++i) {
    tune::unpack_elements(found[i]->bytes, read[i]->buffer.view());
    read[i]->buffer.save();
  }
  return {};
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
  for (const WrittenTensor& w : parts_->written) {
    const std::string bytes = tune::packed_elements(*w.view);
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
  return to;
}

}  // namespace yard
