// SPDX-License-Identifier: Apache-2.0
// Tests untrusted descriptors: wrong sizes, invalid texts, numbers out of range.
#include "registry/changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>

#include "registry/testing.h"

namespace yard::registry {
namespace {

using ::testing::AllOf;
using testing::backend_of;
using testing::Cut;
using ::testing::HasSubstr;
using testing::kernel_of;
using testing::kNorm;
using testing::op_of;

TEST(Reasons, FiguresAreFilledInOnce) {
  const int64_t figures[3] = {1, -20, 3};
  EXPECT_EQ(fill_in("{0} of {1}, {2}", figures), "1 of -20, 3");
  EXPECT_EQ(fill_in("{{0}} {3} {0 {", figures), "{1} {3} {0 {");
}

std::string why(const yard_op_t& d) { return read_op(d, {}).status().to_string(); }
std::string why(const yard_backend_t& d) { return read_backend(d, {}).status().to_string(); }
std::string why(const yard_kernel_t& d) { return read_kernel(d, {}).status().to_string(); }
std::string why(const yard_plugin_t& d) {
  std::vector<Step> steps;
  return read_plugin(d, {}, steps).to_string();
}

yard_kernel_t full_kernel() {
  static const char* const reads[] = {"hidden", nullptr};
  static const char* const texts[] = {"too narrow: {0}"};
  static const yard_limit_t limits[] = {{YARD_LIMIT_MIN, 0, "hidden", 8, 0, 0},
                                        {YARD_LIMIT_COMPACT, 0, nullptr, 0, 0, 0}};
  yard_kernel_t d = kernel_of("norm", "vendor.acme", "acme", YARD_KIND_VENDOR, 120);
  d.summary = "one line", d.features = "sse2", d.limits = limits, d.limit_count = 2;
  d.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_OK; };
  d.verify_reads = reads, d.reasons = texts, d.reason_count = 1;
  d.cost = [](void*, const int64_t*, uint32_t) { return 1.0; };
  d.cost_reads = reads;
  d.workspace = [](void*, const yard_value_t*, uint32_t) -> int64_t { return 64; };
  return d;
}

// ---- Sizes -------------------------------------------------------------------------------------

TEST(Sizes, TooSmallAndBeyondReasonAreRefused) {
  for (uint32_t size : {0u, 4u, 8u, 15u, (1u << 20) + 1, 0xffffffffu}) {
    yard_kernel_t k = full_kernel();
    k.size = size;
    EXPECT_THAT(why(k),
                AllOf(HasSubstr("kernel descriptor states size"), HasSubstr(std::to_string(size))));
    yard_backend_t b = backend_of("acme");
    b.size = size;
    EXPECT_THAT(why(b), HasSubstr("backend descriptor states size"));
    yard_op_t o = op_of(kNorm);
    o.size = size;
    EXPECT_THAT(why(o), HasSubstr("op descriptor states size"));
    yard_plugin_t p{};
    p.name = "acme", p.size = size;
    EXPECT_THAT(why(p), HasSubstr("plugin descriptor states size"));
  }
}

// Tries every size that a plugin could state. Fields beyond the size must read as zero.
TEST(Sizes, NothingBeyondTheStatedSizeIsRead) {
  const yard_kernel_t k = full_kernel();
  yard_backend_t b = backend_of("acme", "acme");
  b.summary = "one line", b.env = "ACME";
  yard_op_t o = op_of(kNorm);
  o.summary = "one line";
  o.magnitude = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t { return YARD_OK; };
  for (uint32_t size = 4; size <= sizeof k + 16; ++size) {
    const auto read = read_kernel(Cut<yard_kernel_t>(k, size).get(), {});
    EXPECT_EQ(read.ok(), size >= offsetof(yard_kernel_t, run) + sizeof k.run) << size;
    if (!read.ok()) continue;
    EXPECT_EQ((*read)->limits.size(), 2u);
    EXPECT_EQ((*read)->d.workspace != nullptr, size >= offsetof(yard_kernel_t, workspace) + 8)
        << size;
  }
  for (uint32_t size = 4; size <= sizeof b + 16; ++size) {
    const auto read = read_backend(Cut<yard_backend_t>(b, size).get(), {});
    EXPECT_EQ(read.ok(), size >= offsetof(yard_backend_t, vendor)) << size;
    if (!read.ok()) continue;
    // Half a pointer reads as null.
    EXPECT_EQ((*read)->vendor, size >= offsetof(yard_backend_t, vendor) + 8 ? "acme" : "") << size;
    EXPECT_EQ((*read)->env, size >= offsetof(yard_backend_t, env) + 8 ? "ACME" : "") << size;
    EXPECT_EQ((*read)->d.device_type, 1);
  }
  for (uint32_t size = 4; size <= sizeof o + 16; ++size) {
    const auto read = read_op(Cut<yard_op_t>(o, size).get(), {});
    EXPECT_EQ(read.ok(), size >= offsetof(yard_op_t, summary)) << size;
    if (!read.ok()) continue;
    EXPECT_EQ((*read)->name, "norm");
    EXPECT_EQ((*read)->d.magnitude != nullptr, size >= offsetof(yard_op_t, magnitude) + 8) << size;
  }
}

TEST(Sizes, OfPlugins) {
  const Cut<yard_backend_t> backend(backend_of("acme", "acme"), offsetof(yard_backend_t, summary));
  const Cut<yard_kernel_t> kernel(kernel_of("norm", "default.a", nullptr),
                                  offsetof(yard_kernel_t, typed));
  const yard_backend_t* const backends[] = {&backend.get()};
  const yard_kernel_t* const kernels[] = {&kernel.get()};
  yard_plugin_t p{};
  p.name = "acme", p.version = "1.0";
  p.backends = backends, p.backend_count = 1, p.kernels = kernels, p.kernel_count = 1;
  for (uint32_t size = 4; size <= sizeof p + 16; ++size) {
    std::vector<Step> steps;
    const Status s = read_plugin(Cut<yard_plugin_t>(p, size).get(), {}, steps);
    EXPECT_EQ(s.ok(), size >= offsetof(yard_plugin_t, version)) << size << s.to_string();
    // The counts follow the lists, two to a word.
    const size_t seen = (size >= offsetof(yard_plugin_t, op_count) + 4 ? 1 : 0) +
                        (size >= offsetof(yard_plugin_t, function_count) + 4 ? 1 : 0);
    EXPECT_EQ(steps.size(), s.ok() ? seen : 0) << size;
  }
}

TEST(Sizes, ALongerStructIsReadAsFarAsItIsKnown) {
  const auto read = read_kernel(Cut<yard_kernel_t>(full_kernel(), 4096).get(), {});
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ((*read)->priority, 120);
}

// ---- Texts -------------------------------------------------------------------------------------

TEST(Texts, NamesAreThereAndHoldOnlyWhatNamesHold) {
  EXPECT_THAT(why(kernel_of(nullptr, "default.a", "b")),
              HasSubstr("the op of a kernel is missing"));
  EXPECT_THAT(why(kernel_of("norm", nullptr, "b")), HasSubstr("the id of a kernel is missing"));
  EXPECT_THAT(why(kernel_of("norm", "", "b")), HasSubstr("the id of a kernel is missing"));
  EXPECT_THAT(why(kernel_of("norm", "default.a", nullptr)), HasSubstr("names no backend"));
  EXPECT_THAT(why(backend_of(nullptr)), HasSubstr("the name of a backend is missing"));
  EXPECT_FALSE(read_op(op_of(nullptr), {}).ok());
  EXPECT_EQ(read_op(op_of("norm(x: T["), {}).status().code(), Code::kParse);
  for (const char* schema : {"norm(x: T[n])", "norm()", "norm(n: int)"})
    EXPECT_THAT(why(op_of(schema)), HasSubstr("op 'norm' has no output")) << schema;
  EXPECT_EQ(why(op_of("norm(x~: T[n])")), "ok");
  EXPECT_THAT(why(kernel_of("norm", "two words", "b")),
              HasSubstr("is 'two words'; expected letters"));
  EXPECT_THAT(why(kernel_of("norm", "a*", "b")), HasSubstr("is 'a*'"));
  EXPECT_THAT(why(backend_of("größe")), HasSubstr("expected letters"));
  EXPECT_THAT(why(backend_of(std::string(129, 'a').c_str())), HasSubstr("longer than 128"));
  EXPECT_TRUE(read_backend(backend_of(std::string(128, 'a').c_str()), {}).ok());
}

TEST(Texts, AreUtf8WithoutControlCharactersAndNotEndless) {
  const auto with = [](const char* summary) {
    yard_kernel_t d = full_kernel();
    d.summary = summary;
    return why(d);
  };
  EXPECT_EQ(with("größer → ∞ 😀\tand\nmore"), "ok");
  for (const char* bad : {"\xff", "a\x80", "\xc0\xaf", "\xe2\x82", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe0\x80\xaf"})
    EXPECT_THAT(with(bad), HasSubstr("its summary is not valid UTF-8")) << bad;
  for (const char* bad : {"\x1b[31m", "\x01", "a\rb", "\b"})
    EXPECT_THAT(with(bad), HasSubstr("control character"));
  EXPECT_THAT(with(std::string(64 * 1024 + 1, 'x').c_str()), HasSubstr("longer than"));
  EXPECT_EQ(with(std::string(64 * 1024, 'x').c_str()), "ok");
  // The message says which descriptor has the text.
  EXPECT_THAT(with("\xff"), HasSubstr("in kernel 'vendor.acme' of op 'norm'"));
  yard_backend_t b = backend_of("acme");
  b.vendor = "\x02";
  EXPECT_THAT(why(b), AllOf(HasSubstr("its vendor"), HasSubstr("in backend 'acme'")));
  yard_op_t o = op_of(kNorm);
  o.summary = "\xff";
  EXPECT_THAT(why(o), HasSubstr("UTF-8"));
}

TEST(Texts, AreCopied) {
  std::string id = "default.copied", field = "hidden", reason = "why {0}";
  const char* texts[] = {reason.c_str()};
  yard_limit_t limit{YARD_LIMIT_MIN, 0, field.c_str(), 1, 0, 0};
  yard_kernel_t d = kernel_of("norm", id.c_str(), "b");
  d.limits = &limit, d.limit_count = 1, d.reasons = texts, d.reason_count = 1;
  const auto k = read_kernel(d, {}).value();
  id.assign(id.size(), '#'), field.assign(field.size(), '#'), reason.assign(reason.size(), '#');
  limit.a = 99;
  EXPECT_EQ(k->id, "default.copied");
  EXPECT_STREQ(k->limits[0].field, "hidden");
  EXPECT_EQ(k->limits[0].a, 1);
  EXPECT_EQ(k->reasons[0], "why {0}");
}

// ---- Lists -------------------------------------------------------------------------------------

TEST(Lists, CountsWithoutListsAndCountsBeyondReason) {
  for (uint32_t count : {1u, 65537u, 0xffffffffu}) {
    yard_kernel_t d = full_kernel();
    d.limits = nullptr, d.limit_count = count;
    EXPECT_THAT(why(d), HasSubstr("limits stated"));
    d = full_kernel();
    d.reasons = nullptr, d.reason_count = count;
    EXPECT_THAT(why(d), HasSubstr("reasons stated"));
    yard_backend_t b = backend_of("acme");
    b.reason_count = count;
    EXPECT_THAT(why(b), HasSubstr("reasons stated"));
    yard_op_t o = op_of(kNorm);
    o.tolerance_count = count;
    EXPECT_THAT(why(o), HasSubstr("tolerances stated"));
    yard_plugin_t p{};
    p.size = sizeof p, p.name = "acme", p.kernel_count = count;
    EXPECT_THAT(why(p), HasSubstr("kernels stated"));
  }
}

TEST(Lists, NullEntriesAreNamed) {
  const yard_backend_t good = backend_of("acme");
  const yard_backend_t* const backends[] = {&good, nullptr};
  yard_plugin_t p{};
  p.size = sizeof p, p.name = "acme", p.backends = backends, p.backend_count = 2;
  EXPECT_THAT(why(p), AllOf(HasSubstr("backends[1] is NULL"), HasSubstr("in plugin 'acme'")));
  const yard_kernel_t* const kernels[] = {nullptr};
  p.backend_count = 1, p.kernels = kernels, p.kernel_count = 1;
  EXPECT_THAT(why(p), HasSubstr("kernels[0] is NULL"));
  const yard_op_t* const ops[] = {nullptr};
  p.kernel_count = 0, p.ops = ops, p.op_count = 1;
  EXPECT_THAT(why(p), HasSubstr("ops[0] is NULL"));
  // A NULL reason reads as an empty text.
  const char* const texts[] = {nullptr, "second"};
  yard_kernel_t d = full_kernel();
  d.reasons = texts, d.reason_count = 2;
  EXPECT_EQ(read_kernel(d, {}).value()->reasons, (std::vector<std::string>{"", "second"}));
}

TEST(Lists, FieldsThatAVerifierReadsEndSomewhere) {
  std::vector<const char*> many(200, "hidden");
  many.push_back(nullptr);
  yard_kernel_t d = full_kernel();
  d.verify_reads = many.data();
  EXPECT_THAT(why(d), HasSubstr("verify_reads: more than"));
  d = full_kernel();
  d.verify_reads = nullptr;
  EXPECT_TRUE(read_kernel(d, {}).value()->reads_all);
  d.verify = nullptr;
  EXPECT_FALSE(read_kernel(d, {}).value()->reads_all);
}

// ---- Numbers and functions ---------------------------------------------------------------------

TEST(Limits, OfEveryKind) {
  const auto with = [](yard_limit_t l) {
    yard_kernel_t d = full_kernel();
    d.limits = &l, d.limit_count = 1;
    return why(d);
  };
  for (uint32_t kind : {0u, 13u, 99u, 0xffffffffu})
    EXPECT_THAT(with({kind, 0, "hidden", 1, 1, 0}), HasSubstr("unknown kind"));
  for (uint32_t kind : {YARD_LIMIT_MIN, YARD_LIMIT_MAX, YARD_LIMIT_MULTIPLE, YARD_LIMIT_RANK,
                        YARD_LIMIT_EQUALS, YARD_LIMIT_ABSENT, YARD_LIMIT_PRESENT})
    EXPECT_THAT(with({kind, 0, nullptr, 1, 1, 0}), HasSubstr("names no field"));
  for (int64_t n : {int64_t{0}, int64_t{-8}, std::numeric_limits<int64_t>::min()})
    EXPECT_THAT(with({YARD_LIMIT_MULTIPLE, 0, "hidden", n, 0, 0}), HasSubstr("a positive number"));
  for (int64_t n : {int64_t{0}, int64_t{-1}, int64_t{3}, int64_t{48}, int64_t{128}, INT64_MAX})
    EXPECT_THAT(with({YARD_LIMIT_ALIGN, 0, "x", n, 0, 0}), HasSubstr("a power of two up to 64"));
  EXPECT_THAT(with({YARD_LIMIT_RANK, 0, "x", -1, 2, 0}), HasSubstr("rank between -1 and 2"));
  EXPECT_THAT(with({YARD_LIMIT_RANK, 0, "x", 3, 2, 0}), HasSubstr("rank between 3 and 2"));
  EXPECT_THAT(with({YARD_LIMIT_RANK, 0, "x", 1, 9, 0}), HasSubstr("0 to 8"));
  EXPECT_THAT(with({YARD_LIMIT_DTYPE, 0, nullptr, 0, 0, 0}), HasSubstr("empty mask"));
  EXPECT_THAT(with({YARD_LIMIT_MIN, 0, "\xff", 1, 0, 0}), HasSubstr("UTF-8"));
  // These limits are just valid.
  EXPECT_EQ(with({YARD_LIMIT_ALIGN, 0, nullptr, 64, 0, 0}), "ok");
  EXPECT_EQ(with({YARD_LIMIT_ALIGN, 0, nullptr, 1, 0, 0}), "ok");
  EXPECT_EQ(with({YARD_LIMIT_RANK, 0, "x", 0, 8, 0}), "ok");
  EXPECT_EQ(with({YARD_LIMIT_MULTIPLE, 0, "hidden", 1, 0, 0}), "ok");
}

TEST(Numbers, OfKernelsBackendsAndOps) {
  for (int32_t kind : {0, -1, 4, 150}) {
    yard_kernel_t d = full_kernel();
    d.kind = kind;
    EXPECT_THAT(why(d), HasSubstr("kind " + std::to_string(kind)));
  }
  for (int32_t priority : {-1, 1001, std::numeric_limits<int32_t>::min()}) {
    yard_kernel_t d = full_kernel();
    d.priority = priority;
    EXPECT_THAT(why(d), HasSubstr("priority"));
  }
  const std::pair<yard_kind_t, int> usual[] = {
      {YARD_KIND_DEFAULT, 150}, {YARD_KIND_VENDOR, 100}, {YARD_KIND_REFERENCE, 50}};
  for (const auto& [kind, priority] : usual)
    EXPECT_EQ(read_kernel(kernel_of("norm", "a", "b", kind), {}).value()->priority, priority);
  for (int32_t enable : {-1, 3}) {
    yard_backend_t b = backend_of("acme");
    b.enable = enable;
    EXPECT_THAT(why(b), HasSubstr("enable"));
  }
  for (int32_t type : {-1, 32}) {
    yard_backend_t b = backend_of("acme");
    b.device_type = type;
    EXPECT_THAT(why(b), HasSubstr("device type"));
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const yard_tolerance_t& t :
       {yard_tolerance_t{YARD_F32, 0, -1, 0}, yard_tolerance_t{YARD_F32, 0, 0, nan},
        yard_tolerance_t{0, 0, 0, 0}, yard_tolerance_t{99, 0, 0, 0},
        yard_tolerance_t{YARD_F32, 99, 0, 0}}) {
    yard_op_t o = op_of(kNorm);
    o.tolerances = &t, o.tolerance_count = 1;
    EXPECT_THAT(why(o), HasSubstr("tolerance"));
  }
}

TEST(Functions, ThatMustOrMustNotBeThere) {
  yard_kernel_t d = full_kernel();
  d.run = nullptr;
  EXPECT_THAT(why(d), HasSubstr("no run function"));
  d = full_kernel();
  d.cost_reads = nullptr;
  EXPECT_THAT(why(d), HasSubstr("cost_reads"));
  d = full_kernel();
  d.typed = reinterpret_cast<void (*)()>(testing::succeed);
  EXPECT_THAT(why(d), HasSubstr("no typed_signature"));
  d = full_kernel();
  d.create = [](yard_call_t*, const yard_named_value_t*, uint32_t, void**) -> int32_t { return 0; };
  EXPECT_THAT(why(d), HasSubstr("destroy"));
}

// ---- Plugins -----------------------------------------------------------------------------------

TEST(Plugins, OfANewerAbiAreRefused) {
  yard_plugin_t p{};
  p.size = sizeof p, p.name = "acme", p.abi = YARD_ABI_VERSION + 1;
  EXPECT_THAT(why(p), AllOf(HasSubstr("ABI"), HasSubstr("in plugin 'acme'")));
  p.abi = YARD_ABI_VERSION;
  EXPECT_EQ(why(p), "ok");
  p.name = nullptr;
  EXPECT_THAT(why(p), HasSubstr("the name of a plugin is missing"));
}

TEST(Plugins, TheOnlyBackendStandsInForNone) {
  const yard_backend_t one = backend_of("acme", "acme"), two = backend_of("other");
  const yard_backend_t* const backends[] = {&one, &two};
  const yard_op_t op = op_of(kNorm), scale = op_of("scale(out!: T[n], x: T[n])");
  const yard_op_t* const ops[] = {&op, &scale};
  const yard_kernel_t kernel = kernel_of("norm", "vendor.acme", nullptr, YARD_KIND_VENDOR);
  const yard_kernel_t* const kernels[] = {&kernel};
  yard_plugin_t p{};
  p.size = sizeof p, p.name = "acme", p.backends = backends, p.backend_count = 1;
  p.ops = ops, p.op_count = 2, p.kernels = kernels, p.kernel_count = 1;
  std::vector<Step> steps = {RemoveOp{"earlier"}};
  auto keep = std::make_shared<int>(0);
  ASSERT_TRUE(read_plugin(p, keep, steps).ok());
  ASSERT_EQ(steps.size(), 5u);
  EXPECT_EQ(std::get<AddKernel>(steps[4]).kernel->backend_name, "acme");
  EXPECT_EQ(keep.use_count(), 5);  // held by the backend, both ops and the kernel
  p.backend_count = 2;
  EXPECT_THAT(why(p), HasSubstr("names no backend"));
  p.backend_count = 0;
  EXPECT_THAT(why(p), HasSubstr("names no backend"));
}

}  // namespace
}  // namespace yard::registry
