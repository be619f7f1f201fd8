// SPDX-License-Identifier: Apache-2.0
// Tests random schemas and calls. The compiled check and its explanation must agree with a direct
// reading of the schema. A captured call must equal the call of its text, and a schema must equal
// the schema of its text.
#include <gtest/gtest.h>
#include <yard/abi.h>

#include <deque>
#include <map>
#include <random>

#include "op/call.h"
#include "op/program.h"
#include "op/testing.h"
#include "op/testing_oracle.h"

namespace yard::op {
namespace {

#if defined(YARD_UNDER_ASAN)
constexpr int kSchemas = 400;  // enough for the sanitizer
#else
constexpr int kSchemas = 4000;
#endif
constexpr int kCallsEach = 40;
alignas(64) char memory[1 << 20];

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T, size_t N>
  const T& of(const T (&list)[N]) {
    return list[below(N)];
  }

 private:
  std::mt19937_64 engine_;
};

constexpr const char* kDims[] = {"m", "n", "k", "h"};
constexpr const char* kGroups[] = {"r", "s"};
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::i64, DType::i8};

Dim random_dim(Random& random, bool first, bool written) {
  Dim d;
  const int64_t kind = random.below(first ? 10 : 7);
  if (kind < 5) {
    d.kind = Dim::Kind::kNamed;
    d.name = random.of(kDims);
    if (random.chance(15)) d.number = 1 + random.below(3);
  } else if (kind == 5) {
    d.kind = Dim::Kind::kConstant;
    d.number = random.below(4);
  } else if (kind >= 7) {
    d.kind = Dim::Kind::kLeading;
    d.name = random.of(kGroups);
  }
  if (!d.name.empty() && !written && random.chance(12)) d.broadcast = true;
  return d;
}

Param random_tensor(Random& random, std::string name) {
  Param p;
  p.name = std::move(name);
  p.kind = random.chance(10) ? Kind::kTensorList : Kind::kTensor;
  p.access = random.chance(30)   ? Access::kWrite
             : random.chance(12) ? Access::kReadWrite
                                 : Access::kRead;
  p.optional = random.chance(20);
  if (random.chance(15))
    p.dtype = random.of(kTypes);
  else
    p.variable = random.chance(80) ? "T" : "U";
  const int64_t n = random.below(4);
  for (int64_t i = 0; i < n; ++i) p.dims.push_back(random_dim(random, i == 0, p.is_written()));
  return p;
}

Clause random_clause(Random& random, const Schema& s) {
  Clause c;
  const auto any = [&] {
    return s.params[static_cast<size_t>(random.below(static_cast<int64_t>(s.params.size())))].name;
  };
  constexpr double kBounds[] = {0, 0.25, -1.5, 3e38};
  switch (random.below(10)) {
    case 9:
      c.kind = Clause::Kind::kFloat;
      c.compare = static_cast<Compare>(random.below(6));
      c.left.name = "eps";
      c.bound = random.of(kBounds);
      break;
    case 7:
      c.kind = Clause::Kind::kIffDTypes;
      c.left.name = any();
      c.right.name = random.chance(70) ? "T" : "U";
      c.dtypes = {DType::f32, DType::i8};
      break;
    case 8:
      c.kind = Clause::Kind::kElements;
      c.left.name = any();
      c.left.number = random.below(2);
      c.compare = random.chance(50) ? Compare::kLe : Compare::kLt;
      c.right.name = random.of(kDims);
      if (random.chance(50)) c.factor = random.of(kDims);
      break;
    case 0:
      c.kind = Clause::Kind::kDTypes;
      c.left.name = random.chance(70) ? "T" : "U";
      c.dtypes = {DType::f32, DType::i64};
      break;
    case 1: c.kind = Clause::Kind::kIff, c.left.name = any(), c.right.name = any(); break;
    case 2: c.kind = Clause::Kind::kOr, c.left.name = any(), c.right.name = any(); break;
    case 3:
    case 4: c.kind = Clause::Kind::kMayAlias, c.left.name = any(), c.right.name = any(); break;
    case 5:
      c.kind = Clause::Kind::kMultiple;
      c.left.name = random.of(kDims);
      if (random.chance(50))
        c.right.name = random.of(kDims);
      else
        c.right.number = 1 + random.below(3);
      break;
    default:
      c.compare = static_cast<Compare>(random.below(6));
      c.left.name = random.chance(70) ? random.of(kDims) : random.chance(50) ? "r" : "count";
      c.left.number = 1 + random.below(2);
      if (random.chance(60))
        c.right.name = random.of(kDims);
      else
        c.right.number = random.below(5);
  }
  if ((c.kind == Clause::Kind::kCompare || c.kind == Clause::Kind::kMultiple ||
       c.kind == Clause::Kind::kElements || c.kind == Clause::Kind::kFloat) &&
      random.chance(30)) {
    c.guard = random.chance(50) ? Clause::Guard::kIf : Clause::Guard::kUnless;
    c.guard_param = any();
  }
  return c;
}

Param scalar(std::string name, Kind kind, Default fallback = {}) {
  Param p;
  p.name = std::move(name);
  p.kind = kind;
  p.fallback = std::move(fallback);
  if (kind == Kind::kEnum) p.enumerators = {"a", "b"};
  return p;
}

// An output shaped like an input, which it may alias.
void add_output(Random& random, Schema& s) {
  const Schema before = s;
  Param out = s.params[static_cast<size_t>(random.below(static_cast<int64_t>(s.params.size())))];
  Clause c;
  c.kind = Clause::Kind::kMayAlias;
  c.left.name = "o";
  c.right.name = out.name;
  out.name = "o";
  out.access = Access::kWrite;
  s.params.insert(s.params.begin(), out);
  s.clauses.push_back(c);
  if (!parse_schema(to_string(s)).ok()) s = before;
}

// Adds only what keeps the schema valid.
Schema random_schema(Random& random) {
  Schema s;
  s.name = "f";
  const auto sound = [&] { return parse_schema(to_string(s)).ok(); };
  const int64_t tensors = 1 + random.below(5);
  for (int64_t i = 0; i < tensors; ++i) {
    s.params.push_back(random_tensor(random, "t" + std::to_string(i)));
    if (random.chance(30)) std::swap(s.params.front(), s.params.back());
  }
  while (!s.params.empty() && !sound())
    s.params.erase(s.params.begin() + random.below(static_cast<int64_t>(s.params.size())));
  const auto try_param = [&](Param p) {
    s.params.push_back(std::move(p));
    if (!sound()) s.params.pop_back();
  };
  if (random.chance(30)) try_param(scalar(random.chance(50) ? "count" : "n", Kind::kInt));
  if (random.chance(20)) try_param(scalar("mode", Kind::kEnum));
  if (random.chance(20)) try_param(scalar("eps", Kind::kFloat, 0.5));
  if (random.chance(10)) try_param(scalar("note", Kind::kString, std::string("hi")));
  if (s.params.empty()) return s;
  if (random.chance(30)) add_output(random, s);
  for (int64_t i = random.below(4); i > 0; --i) {
    s.clauses.push_back(random_clause(random, s));
    if (!sound()) s.clauses.pop_back();
  }
  return s;
}

// Makes arguments that mostly fit. Each may have a mistake.
class RandomCall {
 public:
  RandomCall(Random& random, const Schema& s) : random_(random), s_(s) {
    spoil_ = random.chance(45) ? 12 : 0;
    for (const char* d : kDims) dims_[d] = random.below(4);
    for (const char* g : kGroups)
      for (int64_t i = random.below(3); i > 0; --i) groups_[g].push_back(1 + random.below(3));
    variables_["T"] = random.of(kTypes), variables_["U"] = random.of(kTypes);
    for (const Param& p : s.params) args.push_back(value(p));
    // Outputs may share memory with inputs, exactly or not.
    for (const Param& p : s.params)
      if (p.kind == Kind::kTensor && p.is_output() && random.chance(30)) share(p);
    if (spoil(3)) random.chance(50) || args.empty() ? args.push_back({}) : args.pop_back();
  }

  std::vector<yard_value_t> args;

 private:
  bool spoil(int percent) { return spoil_ > 0 && random_.chance(percent); }

  yard_value_t value(const Param& p) {
    yard_value_t v{};
    if (p.optional ? random_.chance(35) : spoil(1)) return v;
    if (spoil(1)) return v.tag = static_cast<uint32_t>(random_.below(5)) + 2, v;
    switch (p.kind) {
      case Kind::kInt:
        v.tag = YARD_TAG_INT;
        v.u.i = dims_.count(p.name) && !spoil(spoil_) ? dims_[p.name] : random_.below(6) - 1;
        break;
      case Kind::kEnum: v.tag = YARD_TAG_INT, v.u.i = spoil(spoil_) ? 7 : random_.below(2); break;
      case Kind::kFloat: {
        constexpr double kValues[] = {0.25, 0, -2, 4e38, __builtin_inf(), __builtin_nan("")};
        v.tag = YARD_TAG_FLOAT, v.u.f = random_.chance(50) ? 0.25 : random_.of(kValues);
        break;
      }
      case Kind::kBool: v.tag = YARD_TAG_BOOL; break;
      case Kind::kString: v.tag = YARD_TAG_STRING, v.count = 2, v.u.string = "xy"; break;
      case Kind::kTensor:
        v.tag = YARD_TAG_TENSOR;
        v.u.tensor = spoil(1) ? nullptr : tensor(p);
        break;
      case Kind::kTensorList: {
        auto& list = lists_.emplace_back();
        for (int64_t i = random_.below(4); i > 0; --i)
          list.push_back(spoil(1) ? nullptr : tensor(p));
        v.tag = YARD_TAG_LIST;
        v.count = static_cast<uint32_t>(list.size());
        v.u.list = list.data();
      }
    }
    return v;
  }

  const yard_tensor_t* tensor(const Param& p) {
    std::vector<int64_t> shape;
    for (const Dim& d : p.dims) {
      if (d.kind == Dim::Kind::kConstant) shape.push_back(d.number);
      if (d.kind == Dim::Kind::kAny) shape.push_back(random_.below(4));
      if (d.kind == Dim::Kind::kNamed)
        shape.push_back(d.broadcast && random_.chance(40) ? 1 : d.number * dims_[d.name]);
      if (d.kind == Dim::Kind::kLeading) {
        std::vector<int64_t> group = groups_[d.name];
        if (d.broadcast && random_.chance(40) && !group.empty()) group.erase(group.begin());
        if (d.broadcast && random_.chance(40) && !group.empty()) group.back() = 1;
        shape.insert(shape.end(), group.begin(), group.end());
      }
    }
    if (spoil(spoil_) && !shape.empty())
      shape[static_cast<size_t>(random_.below(static_cast<int64_t>(shape.size())))] =
          random_.below(7);
    if (spoil(4)) shape.push_back(1 + random_.below(3));
    if (spoil(2) && !shape.empty()) shape.pop_back();
    const DType dtype = spoil(spoil_)        ? random_.of(kTypes)
                        : p.variable.empty() ? p.dtype
                                             : variables_[p.variable];
    std::vector<int64_t> strides = random_strides(shape, p.is_written());
    const Device device = spoil(1) ? Device{2, 0} : Device{};
    char* data =
        random_.chance(4) ? memory + random_.below(512) : memory + 8192 * (1 + used_++ % 100);
    if (random_.chance(3)) data = nullptr;
    const TensorView& v =
        views_.emplace_back(data, spoil(1) ? DType::invalid : dtype, shape, strides, device);
    return &with_facts(v);
  }

  std::vector<int64_t> random_strides(const std::vector<int64_t>& shape, bool written) {
    std::vector<int64_t> strides(shape.size());
    int64_t step = 1;
    const int64_t gap = random_.chance(20) ? 1 + random_.below(3) : 1;
    for (size_t i = shape.size(); i-- > 0;)
      strides[i] = step, step *= std::max<int64_t>(shape[i], 1) * gap;
    if (shape.size() > 1 && random_.chance(8)) std::swap(strides[0], strides[1]);
    if (!shape.empty() && random_.chance(written ? 2 : 8)) strides[0] = random_.below(4) - 1;
    return random_.chance(50) && gap == 1 ? std::vector<int64_t>{} : strides;
  }

  void share(const Param& output) {
    yard_value_t& out = args[static_cast<size_t>(s_.index_of(output.name))];
    const yard_value_t& other =
        args[static_cast<size_t>(random_.below(static_cast<int64_t>(args.size())))];
    if (&out == &other || out.tag != YARD_TAG_TENSOR || other.tag != YARD_TAG_TENSOR) return;
    if (!out.u.tensor || !other.u.tensor) return;
    TensorView v(random_.chance(70) ? *other.u.tensor : *out.u.tensor);
    if (!v.valid()) return;
    char* data = static_cast<char*>(other.u.tensor->data);
    out.u.tensor =
        &with_facts(views_.emplace_back(v.with_data(data && random_.chance(30) ? data + 4 : data)));
  }

  Random& random_;
  const Schema& s_;
  int spoil_;
  int used_ = 0;
  std::map<std::string, int64_t> dims_;
  std::map<std::string, std::vector<int64_t>> groups_;
  std::map<std::string, DType> variables_;
  std::deque<TensorView> views_;
  std::deque<std::vector<const yard_tensor_t*>> lists_;
};

bool readable(const std::vector<yard_value_t>& args) {
  for (const yard_value_t& v : args) {
    if (v.tag == YARD_TAG_TENSOR && v.u.tensor->facts == 0) return false;
    if (v.tag == YARD_TAG_LIST)
      for (uint32_t k = 0; k < v.count; ++k)
        if (v.u.list[k]->facts == 0) return false;
  }
  return true;
}

void expect_equal(const Call& a, const Call& b, const std::string& text) {
  ASSERT_EQ(a.count(), b.count());
  EXPECT_EQ(a.flags(), b.flags()) << text;
  for (uint32_t i = 0; i < a.count(); ++i) {
    const yard_value_t &x = a.args()[i], &y = b.args()[i];
    ASSERT_EQ(x.tag, y.tag) << text;
    ASSERT_EQ(x.count, y.count) << text;
    if (x.tag == YARD_TAG_TENSOR) {
      EXPECT_EQ(x.u.tensor->facts, y.u.tensor->facts) << text;
      EXPECT_EQ(spec_of(*x.u.tensor), spec_of(*y.u.tensor)) << text;
    }
  }
}

struct Tally {
  int fit = 0, aliased = 0, mismatches = 0, round_trips = 0;
};

void check_call(const Program& program, const std::vector<yard_value_t>& args, Tally& tally) {
  const auto n = static_cast<uint32_t>(args.size());
  const bool tags = program.tags_fit(args.data(), n);
  const int32_t fits = tags && readable(args) ? program.fits(args.data()) : -1;
  if (tags && !readable(args)) {
    EXPECT_EQ(program.fits(args.data()), -1) << "no facts, no fit";
  }
  const Status why = program.explain_mismatch(args.data(), n);
  ASSERT_EQ(why.ok(), fits >= 0) << to_string(program.schema()) << "\n" << why.to_string();
  ASSERT_EQ(SchemaOracle(program.schema(), args).fits(), fits >= 0)
      << to_string(program.schema()) << "\n"
      << why.to_string();
  if (fits < 0) {
    ++tally.mismatches;
    EXPECT_EQ(why.code(), Code::kInvalidArgument);
    return;
  }
  ++tally.fit;
  tally.aliased += fits > 0;
  EXPECT_EQ(program.fits_live(args.data()),
            program.has_null_data(args.data()) || program.writes_nothing(args.data()) ? -1 : fits);
  const Call call = Call::capture(program, args.data(), YARD_CALL_INFERENCE);
  EXPECT_EQ((call.flags() & YARD_CALL_ALIASED) != 0, fits > 0);
  const std::string text = to_string(call.to_spec(program));
  const Result<CallSpec> spec = parse_call_spec(text);
  ASSERT_TRUE(spec.ok()) << spec.status().to_string();
  EXPECT_EQ(*spec, call.to_spec(program)) << text;
  const Result<Call> again = Call::from_spec(program, *spec);
  ASSERT_TRUE(again.ok()) << to_string(program.schema()) << "\n"
                          << text << "\n"
                          << again.status().to_string();
  expect_equal(call, *again, to_string(program.schema()) + "\n" + text);
  ++tally.round_trips;
}

TEST(RandomFit, CheckAndExplanationAgreeWithTheSchema) {
  Tally tally;
  for (unsigned seed = 0; seed < kSchemas && !HasFatalFailure(); ++seed) {
    Random random(seed);
    const Schema s = seed % 10 == 0 ? *parse_schema(random.of(kBuiltIn)) : random_schema(random);
    const Result<Program> program = Program::compile(to_string(s));
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    ASSERT_EQ(program->schema(), s);
    for (int i = 0; i < kCallsEach; ++i) {
      RandomCall call(random, s);
      SCOPED_TRACE(testing::Message() << "seed " << seed << " call " << i);
      check_call(*program, call.args, tally);
      if (HasFatalFailure()) return;
    }
  }
  std::printf("fit %d (aliased %d), mismatches %d\n", tally.fit, tally.aliased, tally.mismatches);
  EXPECT_GT(tally.fit, 12 * kSchemas);
  EXPECT_GT(tally.mismatches, 10 * kSchemas);
  EXPECT_GT(tally.aliased, kSchemas / 40);
}

}  // namespace
}  // namespace yard::op
