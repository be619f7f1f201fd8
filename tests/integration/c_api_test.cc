// SPDX-License-Identifier: Apache-2.0
// Runs the checks of c_api_use.c, which is C, and makes calls with wrong argument counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <yard/c.h>

#include <set>

#include "testing.h"

extern "C" int yard_c_api_use(void);

TEST(CApi, ServesAProgramInC) {
  EXPECT_EQ(yard_c_api_use(), 0) << "the line of c_api_use.c that failed";
}

namespace yard::testing {
namespace {

TEST(CApi, HasAConstantForEveryDtype) {
  constexpr std::pair<DType, yard_dtype_t> kAll[] = {
      {DType::f64, YARD_DTYPE_F64},       {DType::f32, YARD_DTYPE_F32},
      {DType::f16, YARD_DTYPE_F16},       {DType::bf16, YARD_DTYPE_BF16},
      {DType::f8e4m3, YARD_DTYPE_F8E4M3}, {DType::f8e5m2, YARD_DTYPE_F8E5M2},
      {DType::i4, YARD_DTYPE_I4},         {DType::i8, YARD_DTYPE_I8},
      {DType::i16, YARD_DTYPE_I16},       {DType::i32, YARD_DTYPE_I32},
      {DType::i64, YARD_DTYPE_I64},       {DType::u4, YARD_DTYPE_U4},
      {DType::u8, YARD_DTYPE_U8},         {DType::u16, YARD_DTYPE_U16},
      {DType::u32, YARD_DTYPE_U32},       {DType::u64, YARD_DTYPE_U64},
      {DType::boolean, YARD_DTYPE_BOOL},  {DType::q8_0, YARD_DTYPE_Q8_0},
      {DType::q4_0, YARD_DTYPE_Q4_0},     {DType::q4_1, YARD_DTYPE_Q4_1},
      {DType::q4_k, YARD_DTYPE_Q4_K},     {DType::q6_k, YARD_DTYPE_Q6_K}};
  std::set<DType> known;
  for (const auto& [dtype, constant] : kAll) {
    EXPECT_EQ(from_dlpack(constant), dtype) << to_string(dtype);
    known.insert(dtype);
  }
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(known.contains(static_cast<DType>(i)), bits(static_cast<DType>(i)) != 0) << i;
}

// Arguments that end at the end of a page: reading one more crashes.
class ArgsAtTheEnd {
 public:
  explicit ArgsAtTheEnd(std::initializer_list<yard_value_t> args) : page_(::getpagesize()) {
    memory_ = static_cast<char*>(
        ::mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ::mprotect(memory_ + page_, page_, PROT_NONE);
    args_ = reinterpret_cast<yard_value_t*>(memory_ + page_) - args.size();
    std::copy(args.begin(), args.end(), args_);
  }
  ~ArgsAtTheEnd() { ::munmap(memory_, 2 * page_); }
  ArgsAtTheEnd(const ArgsAtTheEnd&) = delete;
  ArgsAtTheEnd& operator=(const ArgsAtTheEnd&) = delete;
  const yard_value_t* get() const { return args_; }

 private:
  size_t page_;
  char* memory_;
  yard_value_t* args_;
};

const yard_value_t* t_args = nullptr;
uint32_t t_count = 0;
// Calls the op `copies` through call_op with t_count arguments.
int32_t delegate(yard_call_t* call, const yard_value_t*, uint32_t) {
  return call->host->call_op(call->host->self, call, "copies", t_args, t_count);
}

class ACountThatIsNotTheSchemas : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    Changes c;
    c.add_backend(backend_of("counted"));
    for (const char* schema :
         {"copies(out!: T[n], x: T[n], by: int = 0)", "scales(by: int, out!: T[n], x: T[n])",
          "delegates(out!: T[n], x: T[n])"})
      c.add_op(op_of(schema));
    for (const char* op : {"copies", "scales", "delegates"}) {
      yard_kernel_t k = kernel_of(op, "default.counted", 1);
      k.backend = "counted";
      if (std::string_view(op) == "delegates") k.run = delegate;
      c.add_kernel(k);
    }
    Runtime::shared().apply(std::move(c)).or_throw();
  }

  // `call(count)` returns a code and writes to error_. Each round ends with valid calls, so that
  // the second round finds a memo of the form.
  template <class F>
  void expect_refused(const F& call, const char* text) {
    for (int round = 0; round < 2; ++round) {
      for (const uint32_t count : {4u, 5u, 24u, 25u, 1000u, UINT32_MAX, 2u, 0u}) {
        error_[0] = '\0';
        EXPECT_EQ(call(count), YARD_CALLER) << count;
        EXPECT_THAT(error_, ::testing::HasSubstr(text)) << count;
        EXPECT_THAT(error_, ::testing::HasSubstr("got " + std::to_string(count))) << count;
      }
      for (int i = 0; i < 8; ++i) EXPECT_EQ(call(3), YARD_OK) << error_;
    }
  }

  Floats to_{4}, from_{4};
  ArgsAtTheEnd args_{value_of(to_.view), value_of(from_.view), Value(int64_t{1}).c()};
  char error_[512];
};

TEST_F(ACountThatIsNotTheSchemas, IsRefusedByYardCallBeforeArgumentsAreRead) {
  yard_op_ref_t* const op = yard_find_op("copies", nullptr, 0);
  expect_refused([&](uint32_t n) { return yard_call(op, args_.get(), n, error_, sizeof error_); },
                 "takes 3 arguments");
  expect_refused(
      [&](uint32_t n) {
        return yard_call_with(op, args_.get(), n, nullptr, nullptr, error_, sizeof error_);
      },
      "takes 3 arguments");
}

TEST_F(ACountThatIsNotTheSchemas, IsRefusedForAnOpWhoseTensorsDoNotComeFirst) {
  const ArgsAtTheEnd args{Value(int64_t{1}).c(), value_of(to_.view), value_of(from_.view)};
  yard_op_ref_t* const op = yard_find_op("scales", nullptr, 0);
  expect_refused([&](uint32_t n) { return yard_call(op, args.get(), n, error_, sizeof error_); },
                 "takes 3 arguments");
}

TEST_F(ACountThatIsNotTheSchemas, IsRefusedByCallOp) {
  yard_op_ref_t* const op = yard_find_op("delegates", nullptr, 0);
  const yard_value_t outer[] = {value_of(to_.view), value_of(from_.view)};
  const auto call = [&](const yard_value_t* args, uint32_t count) {
    t_args = args, t_count = count;
    return yard_call(op, outer, 2, error_, sizeof error_);
  };
  expect_refused([&](uint32_t n) { return call(args_.get(), n); }, "takes 3 arguments");
  EXPECT_EQ(call(nullptr, 3), YARD_CALLER);
  EXPECT_THAT(error_, ::testing::HasSubstr("expected an array of arguments, got NULL"));
}

TEST_F(ACountThatIsNotTheSchemas, IsRefusedByNameIfNoOpTakesSoMany) {
  EXPECT_EQ(yard_call_named("copies", reinterpret_cast<const yard_named_value_t*>(args_.get() + 3),
                            YARD_MAX_ARGS + 1, nullptr, nullptr, error_, sizeof error_),
            YARD_CALLER);
  EXPECT_THAT(error_, ::testing::HasSubstr("expected at most 24, got 25"));
}

}  // namespace
}  // namespace yard::testing
