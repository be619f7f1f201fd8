// SPDX-License-Identifier: Apache-2.0
// Status and Result: classes, notes, copies, and the throwing form.
#include <yard/status.h>

#include <gtest/gtest.h>

#include <set>

namespace yard {
namespace {

constexpr Code kCodes[] = {Code::kInvalidArgument, Code::kParse,        Code::kUnknownOp,
                           Code::kNotFound,        Code::kConflict,     Code::kNoKernel,
                           Code::kUnmapped,        Code::kKernelFailed, Code::kDeadline,
                           Code::kWouldDeadlock,   Code::kUnsupported,  Code::kInternal,
                           Code::kOutOfMemory};

TEST(Status, SuccessIsOnePointerAndSaysNothing) {
  static_assert(sizeof(Status) == sizeof(void*));
  const Status s;
  EXPECT_TRUE(s.ok());
  EXPECT_TRUE(static_cast<bool>(s));
  EXPECT_EQ(s.code(), Code::kOk);
  EXPECT_EQ(s.error_class(), ErrorClass::kOk);
  EXPECT_EQ(s.message(), "");
  EXPECT_EQ(s.to_string(), "ok");
  EXPECT_TRUE(s.notes().empty());
  EXPECT_NO_THROW(s.or_throw());
  EXPECT_EQ(Status().note("nothing to add to").to_string(), "ok");
}

TEST(Status, EveryCodeHasItsClass) {
  EXPECT_EQ(Status(Code::kInvalidArgument, "").error_class(), ErrorClass::kCaller);
  EXPECT_EQ(Status(Code::kParse, "").error_class(), ErrorClass::kCaller);
  EXPECT_EQ(Status(Code::kUnknownOp, "").error_class(), ErrorClass::kCaller);
  EXPECT_EQ(Status(Code::kConflict, "").error_class(), ErrorClass::kCaller);
  EXPECT_EQ(Status(Code::kUnmapped, "").error_class(), ErrorClass::kCaller);
  EXPECT_EQ(Status(Code::kWouldDeadlock, "").error_class(), ErrorClass::kCaller);
  EXPECT_EQ(Status(Code::kNoKernel, "").error_class(), ErrorClass::kDeclined);
  EXPECT_EQ(Status(Code::kKernelFailed, "").error_class(), ErrorClass::kFault);
  EXPECT_EQ(Status(Code::kDeadline, "").error_class(), ErrorClass::kTransient);
  EXPECT_EQ(Status(Code::kInternal, "").error_class(), ErrorClass::kFatal);
  EXPECT_EQ(Status(Code::kOutOfMemory, "").error_class(), ErrorClass::kTransient);
  const Status given(Code::kKernelFailed, ErrorClass::kDeviceLost, "gone");
  EXPECT_EQ(given.error_class(), ErrorClass::kDeviceLost);
}

TEST(Status, OutOfMemoryIsSharedAndTakesNotesOfItsOwn) {
  Status s = Status::out_of_memory();
  const Status copy = s;
  EXPECT_EQ(copy.to_string(), "out_of_memory: out of memory");
  EXPECT_EQ(copy.error_class(), ErrorClass::kTransient);
  EXPECT_EQ(copy.message().data(), s.message().data());
  s.note("while loading a plugin");
  EXPECT_EQ(s.to_string(), "out_of_memory: out of memory\n  while loading a plugin");
  EXPECT_TRUE(copy.notes().empty());
  EXPECT_TRUE(Status::out_of_memory().notes().empty());
}

TEST(Status, NamesAreDistinctWords) {
  std::set<std::string> names;
  for (Code c : kCodes) {
    const std::string name = to_string(c);
    EXPECT_FALSE(name.empty());
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"), std::string::npos) << name;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  std::set<std::string> classes;
  for (int c = YARD_OK; c <= YARD_FATAL; ++c)
    EXPECT_TRUE(classes.insert(to_string(static_cast<ErrorClass>(c))).second) << c;
  EXPECT_EQ(classes.count("?"), 0u);
  EXPECT_STREQ(to_string(static_cast<Code>(99)), "?");
  EXPECT_STREQ(to_string(static_cast<ErrorClass>(-1)), "?");
}

TEST(Status, NotesFollowTheMessageInOrder) {
  Status s(Code::kParse, "no such word");
  s.note("in line 3").note("while loading a.yaml");
  EXPECT_EQ(s.message(), "no such word");
  EXPECT_EQ(s.to_string(), "parse_error: no such word\n  in line 3\n  while loading a.yaml");
  const Status moved = Status(Code::kParse, "m").note("n");
  ASSERT_EQ(moved.notes().size(), 1u);
  EXPECT_EQ(moved.notes()[0], "n");
}

TEST(Status, CopiesAreIndependent) {
  Status a(Code::kConflict, "two of them");
  Status b = a;
  b.note("only here");
  EXPECT_TRUE(a.notes().empty());
  EXPECT_EQ(b.notes().size(), 1u);
  a = b;
  EXPECT_EQ(a.notes().size(), 1u);
  const Status& self = a;
  a = self;
  EXPECT_EQ(a.message(), "two of them");
  const Status c = std::move(a);
  EXPECT_EQ(c.code(), Code::kConflict);
  b = Status();
  EXPECT_TRUE(b.ok());
}

TEST(Status, ReleaseAndAdoptMoveTheFailure) {
  Status s(Code::kNotFound, "x");
  Status::Rep* rep = s.release();
  EXPECT_TRUE(s.ok());
  const Status back = Status::adopt(rep);
  EXPECT_EQ(back.code(), Code::kNotFound);
  EXPECT_TRUE(Status::adopt(nullptr).ok());
}

TEST(Status, ThrowsAnErrorThatHoldsIt) {
  const Status s = Status(Code::kNoKernel, "none is able").note("vendor.a: denied");
  try {
    s.or_throw();
    FAIL() << "did not throw";
  } catch (const Error& e) {
    EXPECT_EQ(e.status().code(), Code::kNoKernel);
    EXPECT_STREQ(e.what(), "no_kernel: none is able\n  vendor.a: denied");
    const Error copy = e;
    EXPECT_EQ(copy.status().message(), "none is able");
  }
}

Result<std::string> even(int n) {
  if (n % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return std::string(static_cast<size_t>(n), 'x');
}

Status use(int n) {
  auto r = even(n);
  YARD_RETURN_IF_ERROR(r.status());
  return {};
}

TEST(Result, HoldsAValueOrTheReason) {
  auto good = even(4);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, "xxxx");
  EXPECT_EQ(good->size(), 4u);
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(std::move(good).value(), "xxxx");
  auto bad = even(3);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().message(), "odd");
  EXPECT_THROW((void)bad.value(), Error);
  EXPECT_THROW((void)even(5).value(), Error);
  EXPECT_EQ(std::move(bad).status().code(), Code::kInvalidArgument);
}

TEST(Result, ReturnIfErrorPassesTheFailureOn) {
  EXPECT_TRUE(use(2).ok());
  EXPECT_EQ(use(1).message(), "odd");
}

}  // namespace
}  // namespace yard
