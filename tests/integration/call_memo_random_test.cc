// SPDX-License-Identifier: Apache-2.0
// A call through a memo has the same result as a call that is checked and selected: the same kernel
// with the same flags, or the same refusal. The test makes random forms of calls, each followed by
// forms that differ in one property.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>

#include "call_memo_testing.h"
#include "test_scale.h"

namespace yard::testing::memo_random {
namespace {

int32_t run_work(yard_call_t* call, Tensor, Tensor, Tensor, int64_t, int32_t, int64_t, double) {
  return note(call);
}
int32_t run_pair(yard_call_t* call, Tensor, Tensor, Tensor, Tensor, Tensor) { return note(call); }
int32_t run_lead(yard_call_t* call, Tensor, Tensor, Tensor, double) { return note(call); }
int32_t run_quad(yard_call_t* call, Tensor, Tensor, Tensor, Tensor) { return note(call); }

constexpr Op<void(Out, In, OptIn, int64_t, bool, int64_t, double)> work{"work"};
constexpr Op<void(Out, Out, InOut, In, OptInOut)> pair{"pair"};
// These ops have no optional tensors, like most ops.
constexpr Op<void(Out, In, In, double)> lead{"lead"};
constexpr Op<void(Out, InOut, In, In)> quad{"quad"};

enum Kind : uint8_t { kWork, kPair, kLead, kQuad };
constexpr const char* kOps[] = {"work", "pair", "lead", "quad"};

// ---- Forms ----

// Describes a tensor. The kernels here never follow its address.
struct Spec {
  bool there = true, has_data = true;
  DType dtype = DType::f32;
  std::vector<int64_t> shape, strides;
  uint64_t at = 0;
  Device device;

  TensorView view() const {
    return TensorView(has_data ? reinterpret_cast<void*>(at) : nullptr, dtype,
                      std::span<const int64_t>(shape), std::span<const int64_t>(strides), device);
  }
};
struct Form {
  std::vector<Spec> tensors;
  int64_t k = 4, how = 0;
  bool on = false;
  double by = 1;
};

uint64_t bytes_of(DType d) { return d == DType::f16 || d == DType::bf16 ? 2 : 4; }

class Forms {
 public:
  explicit Forms(uint64_t seed) : random_(seed) {}

  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class T>
  T of(std::initializer_list<T> c) {
    return *(c.begin() + below(c.size()));
  }

  Form work_form() {
    Form f;
    const std::vector<int64_t> shape = sizes(1);
    f.k = chance(60) ? shape.back() : static_cast<int64_t>(below(5));
    f.tensors = tensors(3, shape);
    f.tensors[2].shape = {chance(90) ? shape.back() : 3}, f.tensors[2].strides = {1};
    f.tensors[2].there = chance(60);
    scalars(f);
    return f;
  }
  Form pair_form() {
    Form f;
    f.tensors = tensors(5, sizes(0));
    f.tensors[4].there = chance(60);
    return f;
  }
  Form form_of(Kind kind) {
    if (kind == kPair) return pair_form();
    Form f;
    if (kind == kQuad) f.tensors = tensors(4, sizes(0));
    if (kind != kQuad) f = work_form();
    if (kind == kLead) f.tensors[2].there = true;
    return f;
  }

  // Returns a form that differs from f in one thing.
  Form near(Form f, bool may_be_absent) {
    Spec& t = f.tensors[below(f.tensors.size())];
    Spec& out = f.tensors[0];
    const auto element = static_cast<int64_t>(bytes_of(t.dtype));
    switch (below(15)) {
      case 0:
      case 1:
        t.at += static_cast<uint64_t>(of<int64_t>({element, -element, 8, 16, 32, 64, -64, 128}));
        break;
      case 2: t.at = f.tensors[below(f.tensors.size())].at; break;
      case 3: std::swap(out.at, f.tensors[1].at); break;
      case 4: t.dtype = other(t.dtype); break;
      case 5:
        for (Spec& s : f.tensors) s.dtype = other(s.dtype);
        break;
      case 6:
        if (!t.shape.empty()) t.shape[below(t.shape.size())] += of<int64_t>({1, -1});
        break;
      case 7:
        if (!t.strides.empty()) t.strides[below(t.strides.size())] += of<int64_t>({1, -1, 4});
        break;
      case 8: {  // all tensors, in one dimension
        if (out.shape.empty()) break;
        const size_t axis = below(out.shape.size());
        for (Spec& s : f.tensors)
          if (axis < s.shape.size() && s.shape.size() == out.shape.size()) ++s.shape[axis];
        break;
      }
      case 9: f.tensors.back().there = !may_be_absent || !f.tensors.back().there; break;
      case 10: f.k += of<int64_t>({1, -1, 3}); break;
      case 11: f.how = of<int64_t>({0, 1, 2, 3, -1}); break;
      case 12: f.on = !f.on, f.by = f.by + 1; break;
      case 13: t.device.index ^= 1; break;
      default:
        if (chance(30)) t.has_data = false;
        break;
    }
    return f;
  }

 private:
  static DType other(DType d) {
    switch (d) {
      case DType::f32: return DType::i32;
      case DType::i32: return DType::f32;
      case DType::f16: return DType::bf16;
      default: return DType::f16;
    }
  }
  std::vector<int64_t> sizes(size_t least_rank) {
    std::vector<int64_t> shape(least_rank + below(6 - least_rank));
    for (int64_t& n : shape) n = chance(3) ? 0 : of<int64_t>({1, 2, 3, 4, 8});
    return shape;
  }
  void scalars(Form& f) {
    f.how = static_cast<int64_t>(below(3)), f.on = chance(50), f.by = of<double>({1, 2});
  }

  // Chooses a layout: compact, rows with gaps, transposed, reversed, broadcast or every second
  // element.
  void lay_out(Spec& s, bool may_repeat) {
    const size_t rank = s.shape.size();
    s.strides.assign(rank, 0);
    const size_t layout = chance(50) ? 0 : below(6);
    int64_t step = layout == 5 ? 2 : 1;
    for (size_t i = rank; i-- > 0;) {
      const size_t axis = layout == 2 ? rank - 1 - i : i;
      s.strides[axis] = step;
      step *= std::max<int64_t>(s.shape[axis], 1);
      if (layout == 1 && i + 1 == rank) step += of<int64_t>({step, 8});
    }
    if (rank == 0) return;
    if (layout == 3) {
      s.at += static_cast<uint64_t>(std::max<int64_t>(s.shape[0] - 1, 0) * s.strides[0]) *
              bytes_of(s.dtype);
      s.strides[0] = -s.strides[0];
    }
    if (layout == 4 && may_repeat) s.strides[0] = 0;
  }

  std::vector<Spec> tensors(size_t count, const std::vector<int64_t>& shape) {
    const DType dtype = of({DType::f32, DType::i32, DType::f16, DType::bf16});
    std::vector<Spec> all(count);
    for (size_t i = 0; i < count; ++i) {
      all[i].dtype = dtype, all[i].shape = shape;
      all[i].at = (uint64_t{1} << 36) + (i << 20) + (chance(60) ? 64 : of<uint64_t>({16, 8, 32}));
      lay_out(all[i], i == 1 || i == 3);
    }
    place(all[0], all[count == 3 ? 1 : 3]);
    return all;
  }
  void place(Spec& out, Spec& x) {
    const uint64_t element = bytes_of(out.dtype);
    const int64_t last = out.shape.empty() ? 1 : out.shape.back();
    switch (below(6)) {
      case 0:
      case 1: x = out; break;  // in place
      case 2:                  // overlapping
        x = out;
        x.at += element;
        break;
      case 3:  // interleaved slices of one buffer
        out.strides.assign(out.shape.size(), 0);
        for (size_t i = out.shape.size(), step = 1; i-- > 0;) {
          out.strides[i] = static_cast<int64_t>(step);
          step *= static_cast<size_t>(std::max<int64_t>(out.shape[i], 1));
          if (i + 1 == out.shape.size()) step *= 2;
        }
        x = out;
        x.at += static_cast<uint64_t>(last) * element;
        break;
      case 4: {  // adjacent
        uint64_t n = element;
        for (int64_t s : out.shape) n *= static_cast<uint64_t>(s);
        x = out;
        x.at += n;
        break;
      }
      default: break;
    }
  }

  std::mt19937_64 random_;
};

// ---- Runtimes ----

constexpr const char* kWorkSchemas[] = {
    "work(out!: T[*rows, d], x: T[*rows, d], w?: T[d], k: int, on: bool = false, "
    "how: enum{a, b, c} = a, by: float = 1.0) where out may_alias x",
    "work(out!: T[*rows, d], x: T[*rows, d], w?: T[k], k: int, on: bool = false, "
    "how: int = 0, by: float = 1.0) where out may_alias x",
    "work(out!: T[*rows, d], x: T[*rows, d], w?: T[d], k: int, on: bool = false, "
    "how: int = 0, by: float = 1.0) where out may_alias x",
    "work(out!: T[*rows, d], x: T[*rows, d], w?: U[*more], k: int, on: bool = false, "
    "how: int = 0, by: float = 1.0)",
};
constexpr const char* kPairSchema =
    "pair(out!: T[*s], y!: T[*s], z~: T[*s], x: T[*s], m~?: T[*s]) where out may_alias x";

constexpr const char* kLeadSchema =
    "lead(out!: T[*rows, d], x: T[*rows, d], w: T[d], by: float = 1.0) where out may_alias x";
constexpr const char* kQuadSchema =
    "quad(out!: T[*s], z~: T[*s], y: T[*s], x: T[*s]) where out may_alias x";

// A verifier that accepts an argument if the first value that it reads is odd.
int32_t odd_sum(const yard_query_t* q, yard_verdict_t* verdict) {
  int64_t sum = 0;
  for (uint32_t i = 0; q->read != nullptr && i < 1; ++i) sum += q->read[i];
  if (sum % 2 == 0) verdict->reason = YARD_REASON_REFUSED;
  return YARD_OK;
}

// A runtime with a random set of kernels with typed and packed entries.
class World {
 public:
  World(uint64_t seed, const char* schema, Kind kind) : bare_(schema), forms_(seed) {
    const char* op = kOps[kind];
    const bool is_work = kind == kWork;
    std::vector<std::vector<yard_limit_t>> limits = {{},
                                                     {plugin::aligned(64, "x")},
                                                     {plugin::aligned(16)},
                                                     {plugin::compact("x")},
                                                     {plugin::inner_dense("out")},
                                                     {plugin::rank_between("x", 2, 3)},
                                                     {plugin::dtypes({YARD_F16, YARD_I32})}};
    switch (kind) {
      case kWork:
        limits.insert(limits.end(), {{plugin::absent("w")},
                                     {plugin::at_least("d", 3)},
                                     {plugin::equals("how", 1)},
                                     {plugin::at_least("k", 3)},
                                     {plugin::equals("on", 1)}});
        break;
      case kPair:
        limits.insert(limits.end(), {{plugin::absent("m")},
                                     {plugin::at_least("x.size", 9)},
                                     {plugin::aligned(32, "m")},
                                     {plugin::aligned(8, "y")},
                                     {plugin::rank_between("z", 4, 8)}});
        break;
      case kLead: limits.insert(limits.end(), {{plugin::at_least("d", 3)}}); break;
      case kQuad: limits.insert(limits.end(), {{plugin::at_least("x.size", 9)}}); break;
    }
    using Entry = void (*)();
    static const Entry kEntries[] = {
        reinterpret_cast<Entry>(run_work), reinterpret_cast<Entry>(run_pair),
        reinterpret_cast<Entry>(run_lead), reinterpret_cast<Entry>(run_quad)};
    static constexpr const char* kSignatures[] = {"tttibif", "ttttt", "tttf", "tttt"};
    bool some = false;
    for (size_t i = 0; i < std::size(limits); ++i) {
      if (i > 0 && !forms_.chance(some ? 20 : 40)) continue;
      some |= i > 0;
      kept_.push_back(limits[i]);
      const std::string& id = ids_.emplace_back("k" + std::to_string(i));
      yard_kernel_t k = kernel_of(op, id.c_str(), static_cast<intptr_t>(i + 1),
                                  i == 0 ? 1 : static_cast<int32_t>(10 + forms_.below(90)));
      k.run = run_packed;
      k.typed = kEntries[kind], k.typed_signature = kSignatures[kind];
      if (i == 0 || !forms_.chance(80)) k.typed = nullptr, k.typed_signature = nullptr;
      k.limits = kept_.back().data(), k.limit_count = static_cast<uint32_t>(kept_.back().size());
      if (is_work && i > 0 && forms_.chance(10)) {
        static const char* const kReads[] = {"k", nullptr};
        k.verify = odd_sum, k.verify_reads = kReads;
      }
      bare_.add(k).or_throw();
      described_ += " " + id;
    }
  }

  Runtime& runtime() { return bare_.runtime; }
  Forms& forms() { return forms_; }
  const std::string& described() const { return described_; }

 private:
  Bare bare_;
  Forms forms_;
  std::deque<std::vector<yard_limit_t>> kept_;
  std::deque<std::string> ids_;
  std::string described_;
};

struct Arguments {
  std::vector<TensorView> views;
  std::vector<yard_tensor_t> plain;  // the tensors for packed calls, written in another way
  std::vector<Arg> packed, by_view;

  Arguments(const Form& f, Kind kind, bool other_way) {
    for (const Spec& s : f.tensors) views.push_back(s.view());
    for (size_t i = 0; i < views.size(); ++i) {
      plain.push_back(views[i].c());
      if (!other_way || i % 2 == 0 || plain.back().data == nullptr) continue;
      // Like many tensors of other libraries, this one has an offset, and no strides if it is
      // compact.
      plain.back().data = static_cast<char*>(plain.back().data) - 4096;
      plain.back().byte_offset = 4096;
      int64_t step = 1;
      bool compact = true;
      for (int d = views[i].rank() - 1; d >= 0; --d) {
        compact &= views[i].strides()[static_cast<size_t>(d)] == step;
        step *= views[i].shape()[static_cast<size_t>(d)];
      }
      if (compact) plain.back().strides = nullptr;
    }
    for (size_t i = 0; i < plain.size(); ++i) {
      yard_value_t v{};
      if (f.tensors[i].there) v.tag = YARD_TAG_TENSOR, v.u.tensor = &plain[i];
      packed.push_back(Value(v));
      by_view.push_back(f.tensors[i].there ? Value(views[i]) : Value(nullptr));
    }
    for (std::vector<Arg>* args : {&packed, &by_view}) {
      if (kind == kWork) args->push_back(f.k), args->push_back(f.on), args->push_back(f.how);
      if (kind == kWork || kind == kLead) args->push_back(f.by);
    }
  }
};

std::string describe(const Form& f) {
  std::string text =
      "k " + std::to_string(f.k) + " how " + std::to_string(f.how) + " on " + std::to_string(f.on);
  for (const Spec& s : f.tensors) {
    text += std::string("\n") + (s.there ? to_string(s.dtype) : "none");
    for (int64_t n : s.shape) text += " " + std::to_string(n);
    text += " strides";
    for (int64_t n : s.strides) text += " " + std::to_string(n);
    text += " at " + std::to_string(s.at) + (s.has_data ? "" : " null");
  }
  return text;
}

class Checker {
 public:
  Checker(World& world, Kind kind)
      : world_(world),
        kind_(kind),
        work_(work.on(world.runtime())),
        pair_(pair.on(world.runtime())),
        lead_(lead.on(world.runtime())),
        quad_(quad.on(world.runtime())) {
    fresh_.cache = false;
  }

  Status typed(const Form& f, const Arguments& a) {
    const auto opt = [&]<class P>(size_t i, P) {
      return f.tensors[i].there ? P(a.views[i]) : P(nullptr);
    };
    const std::vector<TensorView>& v = a.views;
    switch (kind_) {
      case kWork: return work_(v[0], v[1], opt(2, OptIn(nullptr)), f.k, f.on, f.how, f.by);
      case kPair: return pair_(v[0], v[1], v[2], v[3], opt(4, OptInOut(nullptr)));
      case kLead: return lead_(v[0], v[1], v[2], f.by);
      default: return quad_(v[0], v[1], v[2], v[3]);
    }
  }

  // Calls `times` times, typed and packed, and compares with a call that is checked in full.
  void check(const Form& f, int times) {
    const Arguments one(f, kind_, false), other(f, kind_, true);
    const char* const op = kOps[kind_];
    Runtime& r = world_.runtime();
    const Outcome expected = result_of([&] { return r.call(op, one.packed, fresh_); });
    ++(expected.code == Code::kOk ? ran_ : refused_);
    aliased_ += (expected.flags & YARD_CALL_ALIASED) != 0;
    for (int i = 0; i < times; ++i) {
      ASSERT_EQ(result_of([&] { return typed(f, one); }), expected) << "typed, call " << i;
      ASSERT_EQ(result_of([&] { return r.call(op, one.by_view); }), expected) << "views " << i;
      ASSERT_EQ(result_of([&] { return r.call(op, one.packed); }), expected) << "packed " << i;
      ASSERT_EQ(result_of([&] { return r.call(op, other.packed); }), expected)
          << "packed without strides " << i;
    }
  }

  uint64_t ran() const { return ran_; }
  uint64_t refused() const { return refused_; }
  uint64_t aliased() const { return aliased_; }

 private:
  World& world_;
  Kind kind_;
  OpOn<void(Out, In, OptIn, int64_t, bool, int64_t, double)> work_;
  OpOn<void(Out, Out, InOut, In, OptInOut)> pair_;
  OpOn<void(Out, In, In, double)> lead_;
  OpOn<void(Out, InOut, In, In)> quad_;
  Options fresh_;
  uint64_t ran_ = 0, refused_ = 0, aliased_ = 0;
};

struct Totals {
  uint64_t ran = 0, refused = 0, aliased = 0;
};

void walk(uint64_t seed, const char* schema, Kind kind, Totals& totals) {
  World world(seed, schema, kind);
  SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + schema + "\nkernels" + world.described());
  Checker checker(world, kind);
  Forms& forms = world.forms();
  const auto random_form = [&] { return forms.form_of(kind); };
  std::vector<Form> pool;
  while (pool.size() < 8) pool.push_back(random_form());
  for (int step = 0; step < 150; ++step) {
    Form& f = pool[forms.below(pool.size())];
    if (forms.chance(15)) f = random_form();
    {
      SCOPED_TRACE(describe(f));
      checker.check(f, 3);
    }
    // The similar form comes while the first form is still remembered.
    for (int i = 0; i < 3; ++i) {
      const Form other = forms.near(f, kind == kWork || kind == kPair);
      SCOPED_TRACE("step " + std::to_string(step) + "\n" + describe(other) + "\nafter\n" +
                   describe(f));
      checker.check(other, forms.chance(70) ? 1 : 3);
      if (::testing::Test::HasFatalFailure()) return;
      if (forms.chance(20)) f = other;
    }
  }
  totals.ran += checker.ran(), totals.refused += checker.refused();
  totals.aliased += checker.aliased();
}

TEST(CallMemoRandom, WithOptionalInputAndScalars) {
  Totals totals;
  for (uint64_t seed = 1; seed <= fewer(40u); ++seed) {
    walk(seed, kWorkSchemas[seed % std::size(kWorkSchemas)], kWork, totals);
    if (HasFatalFailure()) return;
  }
  // Both outcomes must be frequent.
  EXPECT_GT(totals.ran, fewer(4000u));
  EXPECT_GT(totals.refused, fewer(4000u));
  EXPECT_GT(totals.aliased, fewer(400u));
}

TEST(CallMemoRandom, WithSeveralWrittenTensors) {
  Totals totals;
  for (uint64_t seed = 1; seed <= fewer(30u); ++seed) {
    walk(seed, kPairSchema, kPair, totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(totals.ran, fewer(2000u));
  EXPECT_GT(totals.refused, fewer(2000u));
  EXPECT_GT(totals.aliased, fewer(200u));
}

TEST(CallMemoRandom, WithTensorsFirst) {
  Totals totals;
  for (uint64_t seed = 1; seed <= fewer(40u); ++seed) {
    if (seed % 2 == 0)
      walk(seed, kLeadSchema, kLead, totals);
    else
      walk(seed, kQuadSchema, kQuad, totals);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(totals.ran, fewer(4000u));
  EXPECT_GT(totals.refused, fewer(2000u));
  EXPECT_GT(totals.aliased, fewer(400u));
}

}  // namespace
}  // namespace yard::testing::memo_random
