// SPDX-License-Identifier: Apache-2.0
// A kernel behind random transforms equals the kernel on prepared inputs. Layouts, dtypes, padding,
// alignment, strides and empty sizes vary, and calls are selected again and served from the cache.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <numeric>
#include <random>

#include "op/facts.h"
#include "op/numbers.h"
#include "testing.h"

namespace yard::testing {
namespace {

using plugin::Param;

constexpr const char* kMix =
    "mix(out!: T[batch, seq, heads, dim], x: T[batch, seq, heads, dim], bias?: T[heads, dim], "
    "total~: f32[batch, heads], by: float = 1.0) where T in {f32, f16, bf16, f64}, out may_alias x";

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool chance(int64_t percent) { return below(100) < percent; }
  template <class C>
  const auto& of(const C& c) {
    return *(std::begin(c) + below(static_cast<int64_t>(std::size(c))));
  }

 private:
  std::mt19937_64 engine_;
};

float load(const yard_tensor_t& t, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  size_t axis = 0;
  for (const int64_t i : index) offset += i * t.strides[axis++];
  const auto* at = static_cast<const std::byte*>(t.data) + t.byte_offset;
  return static_cast<float>(op::load(from_dlpack(t.dtype), at + offset * (t.dtype.bits / 8)));
}
void store(const yard_tensor_t& t, std::initializer_list<int64_t> index, float v) {
  int64_t offset = 0;
  size_t axis = 0;
  for (const int64_t i : index) offset += i * t.strides[axis++];
  auto* at = static_cast<std::byte*>(t.data) + t.byte_offset;
  op::store(from_dlpack(t.dtype), at + offset * (t.dtype.bits / 8), static_cast<double>(v));
}

// Layouts of the four-dimensional tensors, each with the positions of b, s, h and d.
struct Layout {
  const char* text;
  int at[4];
};
constexpr Layout kLayouts[] = {{nullptr, {0, 1, 2, 3}},
                               {"BSHD", {0, 1, 2, 3}},
                               {"BHSD", {0, 2, 1, 3}},
                               {"NHD", {0, 1, 2, 3}},
                               {"dim seq batch heads", {2, 1, 3, 0}},
                               {"column-major", {0, 1, 3, 2}}};

// What the kernel wants of its arguments, and where it finds them.
struct Wants {
  Layout out, x;
  bool bias_swapped = false;
  int64_t pad = 0;
  uint64_t dtypes = 0;
  int64_t align = 0;
  bool rows = false;
  int place[6];  // positions of out, x, bias, total, by and a constant
  std::deque<Param> params;
  std::vector<const yard_param_t*> list;
  std::string wrong;  // arguments that the kernel did not want
};

const yard_tensor_t* tensor(const yard_value_t& v) {
  return v.tag == YARD_TAG_TENSOR ? v.u.tensor : nullptr;
}

void check(Wants& w, const yard_tensor_t& t, const Layout& layout, const char* name) {
  const auto say = [&](const char* what) { w.wrong += std::string(name) + " " + what + "; "; };
  const uint64_t facts = op::facts_of(&t);
  if (layout.text != nullptr && !w.rows && (facts & YARD_FACTS_COMPACT) == 0) say("has gaps");
  if (layout.text != nullptr && w.rows && (facts & YARD_FACTS_INNER_DENSE) == 0) say("has no rows");
  if (w.dtypes != 0 && (w.dtypes >> yard_dtype_index(t.dtype) & 1) == 0) say("has another dtype");
  if (w.align != 0 && reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(w.align) != 0)
    say("is not aligned");
  if (w.pad != 0 && t.shape[3] % w.pad != 0) say("is not padded");
}

int32_t run_mix(yard_call_t* call, const yard_value_t* args, uint32_t) {
  auto& w = *static_cast<Wants*>(call->self);
  const yard_tensor_t &out = *tensor(args[w.place[0]]), &x = *tensor(args[w.place[1]]);
  const yard_tensor_t *bias = tensor(args[w.place[2]]), &total = *tensor(args[w.place[3]]);
  const auto by = static_cast<float>(args[w.place[4]].u.f);
  if (args[w.place[5]].u.i != 42) w.wrong += "no constant; ";
  check(w, out, w.out, "out");
  check(w, x, w.x, "x");
  const auto at = [](const Layout& l, int64_t b, int64_t s, int64_t h, int64_t d, int place) {
    const int64_t logical[] = {b, s, h, d};
    for (int i = 0; i < 4; ++i)
      if (l.at[i] == place) return logical[i];
    return int64_t{0};
  };
  const auto at4 = [&](const Layout& l, int64_t b, int64_t s, int64_t h, int64_t d, const auto& f) {
    return f(at(l, b, s, h, d, 0), at(l, b, s, h, d, 1), at(l, b, s, h, d, 2),
             at(l, b, s, h, d, 3));
  };
  // These are the sizes of x, whose last dimension may be padded.
  const int64_t sizes[] = {x.shape[w.x.at[0]], x.shape[w.x.at[1]], x.shape[w.x.at[2]],
                           x.shape[w.x.at[3]]};
  for (int64_t b = 0; b < sizes[0]; ++b)
    for (int64_t s = 0; s < sizes[1]; ++s)
      for (int64_t h = 0; h < sizes[2]; ++h)
        for (int64_t d = 0; d < sizes[3]; ++d) {
          const float v = at4(w.x, b, s, h, d, [&](int64_t i, int64_t j, int64_t k, int64_t l) {
            return load(x, {i, j, k, l});
          });
          // Padding with zeros does not change the sums.
          const bool real = b < total.shape[0] && h < total.shape[1];
          float more = 0;
          if (bias != nullptr) {
            const int64_t bh = bias->shape[w.bias_swapped ? 1 : 0],
                          bd = bias->shape[w.bias_swapped ? 0 : 1];
            if (h < bh && d < bd) more = w.bias_swapped ? load(*bias, {d, h}) : load(*bias, {h, d});
          }
          if (real) store(total, {b, h}, load(total, {b, h}) + v);
          at4(w.out, b, s, h, d, [&](int64_t i, int64_t j, int64_t k, int64_t l) {
            if (i < out.shape[0] && j < out.shape[1] && k < out.shape[2] && l < out.shape[3])
              store(out, {i, j, k, l}, v * by + more);
            return 0;
          });
        }
  return YARD_OK;
}

// A tensor with memory. Its dimensions have a random order in memory, with gaps and perhaps without
// alignment.
class Tensor {
 public:
  Tensor(Random& r, DType t, std::vector<int64_t> shape, bool may_repeat)
      : shape_(std::move(shape)), strides_(shape_.size()) {
    std::vector<size_t> order(shape_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (r.chance(50))
      for (size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[static_cast<size_t>(r.below(static_cast<int64_t>(i)))]);
    int64_t step = r.chance(15) ? 2 : 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides_[order[i]] = step;
      step = step * std::max<int64_t>(shape_[order[i]], 1) + (r.chance(15) ? r.below(6) : 0);
    }
    if (may_repeat && r.chance(10)) strides_[0] = 0;
    const auto item = static_cast<size_t>(bits(t) / 8);
    memory_.assign(static_cast<size_t>(step) * item + 128, std::byte{0});
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    offset_ = (64 - at % 64) + (r.chance(30) ? item : 0);
    for (size_t i = offset_; i + item <= memory_.size(); i += item)
      op::store(t, memory_.data() + i, static_cast<double>(r.below(64)) - 32);
    view_ = TensorView(memory_.data() + offset_, t, std::span<const int64_t>(shape_),
                       std::span<const int64_t>(strides_));
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  const TensorView& view() const { return view_; }
  std::vector<std::byte>& memory() { return memory_; }

 private:
  std::vector<int64_t> shape_, strides_;
  std::vector<std::byte> memory_;
  size_t offset_ = 0;
  TensorView view_;
};

void make_params(Random& r, Wants& w) {
  w.out = r.of(kLayouts), w.x = r.of(kLayouts);
  w.rows = r.chance(25);
  if (r.chance(40)) w.pad = r.of(std::initializer_list<int64_t>{2, 4, 8});
  if (r.chance(40)) w.align = r.of(std::initializer_list<int64_t>{4, 16, 64});
  if (r.chance(50))
    w.dtypes = YARD_DTYPE_BIT(YARD_F64) | (r.chance(70) ? YARD_DTYPE_BIT(YARD_F32) : 0);
  const char* const names[] = {"out", "x", "bias", "total", "by", "answer"};
  size_t order[] = {0, 1, 2, 3, 4, 5};
  for (size_t i = 6; i > 1; --i) std::swap(order[i - 1], order[r.below(static_cast<int64_t>(i))]);
  for (size_t place = 0; place < 6; ++place) {
    const size_t i = order[place];
    w.place[i] = static_cast<int>(place);
    Param& p = i == 5 ? w.params.emplace_back("answer", 42)
                      : w.params.emplace_back(r.chance(50) ? names[i] : "own");
    if (i < 5 && std::strcmp(p.d.name, "own") == 0) {
      static const char* const own[] = {"own0", "own1", "own2", "own3", "own4"};
      p.d.name = own[i], p.from(names[i]);
    }
    if (i < 2) {
      const char* layout = (i == 0 ? w.out : w.x).text;
      if (layout != nullptr && w.rows) p.rows(layout);
      if (layout != nullptr && !w.rows) p.layout(layout);
      p.d.dtypes = w.dtypes;
      p.align(w.align).pad(w.pad);
    }
    if (i == 2 && r.chance(50)) w.bias_swapped = true, p.layout("column-major");
  }
  for (const Param& p : w.params) w.list.push_back(&p.d);
}

// Computes the expected result on the caller's own tensors.
void expect_mix(const TensorView& out, const TensorView& x, const TensorView* bias,
                const TensorView& total, float by) {
  const auto n = x.shape();
  for (int64_t b = 0; b < n[0]; ++b)
    for (int64_t s = 0; s < n[1]; ++s)
      for (int64_t h = 0; h < n[2]; ++h)
        for (int64_t d = 0; d < n[3]; ++d) {
          const float v = load(x.c(), {b, s, h, d});
          store(total.c(), {b, h}, load(total.c(), {b, h}) + v);
          store(out.c(), {b, s, h, d}, v * by + (bias != nullptr ? load(bias->c(), {h, d}) : 0.0f));
        }
}

std::string try_once(uint64_t seed) {
  Random r(seed);
  Wants w;
  make_params(r, w);
  Bare bare(kMix);
  yard_kernel_t d = kernel_of("mix", "default.mix", 0);
  d.self = &w, d.run = run_mix, d.params = w.list.data(), d.param_count = 6;
  if (const Status s = bare.add(d); !s.ok()) return s.to_string();
  constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16, DType::f64};
  for (int call = 0; call < 4; ++call) {
    const DType t = r.chance(70) ? r.of(kTypes) : DType::f32;
    const auto size = [&] { return r.chance(6) ? 0 : 1 + r.below(5); };
    const std::vector<int64_t> sizes = {size(), size(), size(), size() + (r.chance(30) ? 7 : 0)};
    Tensor x(r, t, sizes, true), out(r, t, sizes, false), bias(r, t, {sizes[2], sizes[3]}, true);
    Tensor total(r, DType::f32, {sizes[0], sizes[2]}, false);
    const bool has_bias = r.chance(60);
    const bool in_place = r.chance(25) && (op::facts_of(&x.view().c()) & YARD_FACTS_PLAIN) != 0;
    const std::vector<std::byte> x_before = x.memory(), out_before = out.memory();
    const std::vector<std::byte> total_before = total.memory();
    const TensorView& to = in_place ? x.view() : out.view();
    // Reads a copy of the input, because the output may overwrite it.
    std::vector<std::byte> copy = x_before;
    const TensorView source(
        copy.data() + (static_cast<std::byte*>(x.view().data()) - x.memory().data()), t,
        x.view().shape(), x.view().strides());
    expect_mix(to, source, has_bias ? &bias.view() : nullptr, total.view(), 0.5f);
    const std::vector<std::byte> expected = in_place ? x.memory() : out.memory();
    const std::vector<std::byte> expected_total = total.memory();
    // The calls are selected, then served from the cache, then from a memo if there is one.
    for (int again = 0; again < 3; ++again) {
      x.memory() = x_before, out.memory() = out_before, total.memory() = total_before;
      Options o;
      o.cache = again > 0;
      std::vector<Arg> named = {{"out", to}, {"x", x.view()}, {"total", total.view()}, {"by", 0.5}};
      if (has_bias) named.push_back({"bias", bias.view()});
      const Status s =
          again == 0 ? bare.runtime.call("mix", named, o) : bare.runtime.call("mix", named);
      if (!s.ok()) return s.to_string();
      if (!w.wrong.empty()) return w.wrong;
      if ((in_place ? x.memory() : out.memory()) != expected) return "another result";
      if (total.memory() != expected_total) return "another total";
    }
  }
  return "";
}

TEST(Transforms, AKernelBehindThemEqualsTheKernelOnPreparedInputs) {
  for (uint64_t seed = 1; seed <= 250; ++seed) ASSERT_EQ(try_once(seed), "") << "seed " << seed;
}

}  // namespace
}  // namespace yard::testing
