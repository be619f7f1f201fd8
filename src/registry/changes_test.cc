// SPDX-License-Identifier: Apache-2.0
// Tests that changes apply as a whole or not at all, which records are equal, what conflicts, and
// what a removal takes along.
#include "registry/changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "registry/testing.h"

namespace yard::registry {
namespace {

using testing::add;
using ::testing::AllOf;
using testing::backend_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kernel_of;
using testing::kNorm;
using testing::op_of;
using testing::replace;
using testing::Shelf;

constexpr const char* kScale = "scale(out!: T[n], x: T[n], by: float = 1.0)";

Shelf stocked() {
  Shelf s;
  s.put(op_of(kNorm), op_of(kScale), backend_of("plain"), backend_of("acme", "acme"),
        kernel_of("norm", "default.a", "plain"),
        kernel_of("norm", "vendor.acme", "acme", YARD_KIND_VENDOR),
        kernel_of("scale", "vendor.acme", "acme", YARD_KIND_VENDOR));
  return s;
}

std::string text(const Status& s) { return s.to_string(); }

TEST(Changes, AddsInAnyNumberAndSaysWhichOpsChanged) {
  Shelf s;
  const Applied done = s.apply({add(op_of(kNorm)), add(op_of(kScale)), add(backend_of("plain")),
                                add(kernel_of("norm", "default.a", "plain"))});
  EXPECT_THAT(done.ops, ElementsAre("norm", "scale"));
  EXPECT_TRUE(done.removed.empty());
  const auto k = s.kernel("norm", "default.a");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->backend->name, "plain");
  EXPECT_EQ(k->priority, 150);
  const Applied more = s.apply({add(kernel_of("scale", "default.b", "plain"))});
  EXPECT_THAT(more.ops, ElementsAre("scale"));
}

// Other kernels are compared with the reference, so it must come from the origin of the op.
TEST(Changes, AReferenceOfAnotherOriginThanItsOpIsRefused) {
  const Origin origins[] = {{Origin::From::kProgram},
                            {Origin::From::kBuiltIn},
                            {Origin::From::kPlugin, "acme"},
                            {Origin::From::kPlugin, "other"}};
  for (const Origin& of_op : origins)
    for (const Origin& of_kernel : origins) {
      Shelf s;
      const Step op = add(op_of(kNorm));
      std::get<AddOp>(op).op->origin = of_op;
      s.apply({op, add(backend_of("plain"))});
      const auto kernel = [&](const char* id, yard_kind_t kind) {
        auto k = read_kernel(kernel_of("norm", id, "plain", kind), nullptr).value();
        k->origin = of_kernel;
        return k;
      };
      s.apply({AddKernel{kernel("default.a", YARD_KIND_DEFAULT)}});
      const AddKernel reference{kernel("reference.a", YARD_KIND_REFERENCE)};
      const AddKernel promoted{kernel("default.a", YARD_KIND_REFERENCE), true};
      if (of_op == of_kernel) {
        s.apply({reference, promoted});
        continue;
      }
      for (const Step& step : {Step(reference), Step(promoted)}) {
        const Status why = s.fails({step});
        EXPECT_EQ(why.code(), Code::kConflict);
        EXPECT_THAT(text(why), AllOf(HasSubstr("has kind reference"), HasSubstr("op 'norm'"),
                                     HasSubstr(of_op.shown()), HasSubstr(of_kernel.shown())));
      }
    }
}

TEST(Changes, AllOrNone) {
  Shelf s;
  s.put(op_of(kNorm), backend_of("plain"));
  const Status why = s.fails({add(kernel_of("norm", "default.a", "plain")), add(op_of(kScale)),
                              add(kernel_of("norm", "default.b", "nowhere"))});
  EXPECT_EQ(why.code(), Code::kNotFound);
  EXPECT_EQ(s.op_record("scale"), nullptr);
  EXPECT_TRUE(s.op_record("norm")->kernels.empty());
  EXPECT_EQ(s.state().index_count(), 1u);
}

TEST(Changes, OldStatesStayAsTheyWere) {
  Shelf s = stocked();
  const auto before = s.op_record("norm");
  s.apply({RemoveKernel{"norm", "default.a"}, add(kernel_of("norm", "default.c", "plain"))});
  EXPECT_EQ(before->kernels.count("default.a"), 1u);
  EXPECT_EQ(before->kernels.count("default.c"), 0u);
  EXPECT_EQ(s.kernel("norm", "default.a"), nullptr);
}

TEST(Changes, TheSameAgainIsFine) {
  Shelf s = stocked();
  const auto k = s.kernel("norm", "default.a");
  const Applied done = s.apply({add(op_of(kNorm)), add(backend_of("acme", "acme")),
                                add(kernel_of("norm", "default.a", "plain"))});
  EXPECT_TRUE(done.ops.empty());
  EXPECT_TRUE(done.removed.empty());
  EXPECT_EQ(s.kernel("norm", "default.a"), k);
  // Blanks in a schema do not matter.
  s.apply({add(op_of("scale( out! : T[n], x: T[n], by: float=1.0 )"))});
}

TEST(Changes, ConflictsNameBothSides) {
  Shelf s = stocked();
  const Status op = s.fails({add(op_of("scale(out!: T[n], x: T[n], by: float = 2.0)"))});
  EXPECT_EQ(op.code(), Code::kConflict);
  EXPECT_THAT(text(op), AllOf(HasSubstr("scale"), HasSubstr("1.0"), HasSubstr("2.0")));

  yard_op_t summary = op_of(kScale);
  summary.summary = "another";
  EXPECT_EQ(s.fails({add(summary)}).code(), Code::kConflict);

  const Status backend = s.fails({add(backend_of("acme", "emca"))});
  EXPECT_EQ(backend.code(), Code::kConflict);
  EXPECT_THAT(text(backend), HasSubstr("vendor 'acme' and 'emca'"));

  const Status kernel =
      s.fails({add(kernel_of("norm", "default.a", "acme", YARD_KIND_DEFAULT, 160))});
  EXPECT_EQ(kernel.code(), Code::kConflict);
  EXPECT_THAT(text(kernel),
              AllOf(HasSubstr("backend 'plain' and 'acme'"), HasSubstr("priority 150 and 160")));
}

// A kernel that differs in any field is another kernel.
TEST(Changes, EveryFieldCountsInAConflict) {
  static const char* const reads[] = {"hidden", nullptr};
  static const char* const texts[] = {"because"};
  static const yard_limit_t limits[] = {{YARD_LIMIT_MIN, 0, "hidden", 8, 0, 0}};
  static int self;
  using Edit = void (*)(yard_kernel_t&);
  const std::pair<const char*, Edit> edits[] = {
      {"kind", [](yard_kernel_t& d) { d.kind = YARD_KIND_REFERENCE; }},
      {"priority", [](yard_kernel_t& d) { d.priority = 151; }},
      {"flags", [](yard_kernel_t& d) { d.flags = YARD_KERNEL_DETERMINISTIC; }},
      {"features", [](yard_kernel_t& d) { d.features = "sse2"; }},
      {"summary", [](yard_kernel_t& d) { d.summary = "fast"; }},
      {"limits", [](yard_kernel_t& d) { d.limits = limits, d.limit_count = 1; }},
      {"functions",
       [](yard_kernel_t& d) {
         d.run = [](yard_call_t*, const yard_value_t*, uint32_t) -> int32_t { return YARD_FAULT; };
       }},
      {"functions", [](yard_kernel_t& d) { d.self = &self; }},
      {"fields read", [](yard_kernel_t& d) { d.verify_reads = reads; }},
      {"reason texts", [](yard_kernel_t& d) { d.reasons = texts, d.reason_count = 1; }},
  };
  Shelf s = stocked();
  for (const auto& [what, edit] : edits) {
    yard_kernel_t d = kernel_of("norm", "default.a", "plain");
    edit(d);
    EXPECT_THAT(text(s.fails({add(d)})), HasSubstr(what));
  }
  yard_backend_t b = backend_of("plain");
  b.probe = [](void*, const yard_host_t*, yard_device_t, yard_verdict_t*) -> int32_t { return 0; };
  EXPECT_THAT(text(s.fails({add(b)})), HasSubstr("different functions"));
}

TEST(Changes, ReplaceTakesThePlaceAndTheOldOneLeaves) {
  Shelf s = stocked();
  const auto old = s.kernel("norm", "default.a");
  const Applied done =
      s.apply({replace(kernel_of("norm", "default.a", "acme", YARD_KIND_VENDOR, 7))});
  EXPECT_THAT(done.ops, ElementsAre("norm"));
  ASSERT_EQ(done.removed.size(), 1u);
  EXPECT_EQ(done.removed[0], old);
  EXPECT_EQ(s.kernel("norm", "default.a")->priority, 7);
  EXPECT_EQ(s.kernel("norm", "default.a")->backend->name, "acme");
  const Status none = s.fails({replace(kernel_of("norm", "default.aa", "plain"))});
  EXPECT_EQ(none.code(), Code::kNotFound);
  EXPECT_THAT(text(none), HasSubstr("did you mean 'default.a'?"));
}

TEST(Changes, RemovingABackendTakesItsKernels) {
  Shelf s = stocked();
  const Applied done = s.apply({RemoveBackend{"acme"}});
  EXPECT_THAT(done.ops, ElementsAre("norm", "scale"));
  EXPECT_EQ(done.removed.size(), 3u);
  EXPECT_EQ(s.kernel("norm", "vendor.acme"), nullptr);
  EXPECT_EQ(s.kernel("scale", "vendor.acme"), nullptr);
  EXPECT_NE(s.kernel("norm", "default.a"), nullptr);
  EXPECT_EQ(s.state().backends.count("acme"), 0u);
}

TEST(Changes, AnOpThatComesBackFindsItsPlace) {
  Shelf s = stocked();
  const uint32_t index = s.op_record("scale")->op->index;
  const Applied done = s.apply({RemoveOp{"scale"}});
  EXPECT_THAT(done.ops, ElementsAre("scale"));
  EXPECT_EQ(done.removed.size(), 2u);
  EXPECT_EQ(s.op_record("scale"), nullptr);
  s.apply({add(op_of(kScale))});
  EXPECT_EQ(s.op_record("scale")->op->index, index);
  EXPECT_TRUE(s.op_record("scale")->kernels.empty());
  // An op with another schema gets another index, so that nobody takes its calls for the old op's.
  s.apply({RemoveOp{"scale"}, add(op_of("scale(out!: T[n], x: T[n])"))});
  EXPECT_NE(s.op_record("scale")->op->index, index);
  EXPECT_NE(s.op_record("scale")->op->index, s.op_record("norm")->op->index);
  EXPECT_LT(s.op_record("scale")->op->index, s.state().index_count());
}

TEST(Changes, UnknownNamesGetASuggestion) {
  Shelf s = stocked();
  const std::pair<Step, const char*> wrong[] = {
      {RemoveOp{"nrom"}, "did you mean 'norm'?"},
      {RemoveKernel{"nrom", "default.a"}, "did you mean 'norm'?"},
      {RemoveKernel{"norm", "default.b"}, "did you mean 'default.a'?"},
      {RemoveBackend{"acmee"}, "did you mean 'acme'?"},
      {Reprobe{"plian"}, "did you mean 'plain'?"},
      {add(kernel_of("nrom", "default.z", "plain")), "did you mean 'norm'?"},
      {add(kernel_of("norm", "default.z", "plian")), "did you mean 'plain'?"},
  };
  for (const auto& [step, hint] : wrong) {
    const Status why = s.fails({step});
    EXPECT_THAT(text(why), HasSubstr(hint));
    EXPECT_TRUE(why.code() == Code::kNotFound || why.code() == Code::kUnknownOp) << text(why);
  }
  EXPECT_EQ(s.fails({RemoveOp{"nrom"}}).code(), Code::kUnknownOp);
}

TEST(Changes, AKernelMustFitItsBackendAndItsOp) {
  Shelf s = stocked();
  EXPECT_THAT(text(s.fails({add(kernel_of("norm", "vendor.b", "plain", YARD_KIND_VENDOR))})),
              HasSubstr("needs a vendor"));

  yard_kernel_t typed = kernel_of("norm", "default.t", "plain");
  typed.typed = reinterpret_cast<void (*)()>(testing::succeed);
  typed.typed_signature = "ttf";
  EXPECT_THAT(text(s.fails({add(typed)})),
              HasSubstr("has signature 'ttf', expected 'tttii' for (out, x, bias, mode, groups): "
                        "'bias' is f, expected t"));
  typed.typed_signature = "tt";
  EXPECT_THAT(text(s.fails({add(typed)})), HasSubstr("'bias' is missing"));
  typed.typed_signature = "tttiiff";
  EXPECT_THAT(text(s.fails({add(typed)})), HasSubstr("groups): 2 too many"));
  typed.typed_signature = testing::kNormSignature;
  s.apply({add(typed)});

  const auto with_limit = [&](yard_limit_t l) {
    yard_kernel_t d = kernel_of("norm", "default.l", "plain");
    d.limits = &l, d.limit_count = 1;
    return text(s.fails({add(d)}));
  };
  EXPECT_THAT(with_limit({YARD_LIMIT_MIN, 0, "hiden", 8, 0, 0}),
              AllOf(HasSubstr("hiden"), HasSubstr("did you mean 'hidden'?")));
  EXPECT_THAT(with_limit({YARD_LIMIT_COMPACT, 0, "y", 0, 0, 0}), HasSubstr("not a field"));
  EXPECT_THAT(with_limit({YARD_LIMIT_DTYPE, 0, "groups", 2, 0, 0}), HasSubstr("a tensor"));
  EXPECT_THAT(with_limit({YARD_LIMIT_RANK, 0, "mode", 1, 2, 0}), HasSubstr("a tensor"));
  EXPECT_THAT(with_limit({YARD_LIMIT_ABSENT, 0, "x", 0, 0, 0}), HasSubstr("optional"));

  static const char* const unknown[] = {"hidden", "depth", nullptr};
  static const char* const whole[] = {"x", nullptr};
  yard_kernel_t reader = kernel_of("norm", "default.r", "plain");
  reader.verify = [](const yard_query_t*, yard_verdict_t*) -> int32_t { return YARD_OK; };
  reader.verify_reads = unknown;
  EXPECT_THAT(text(s.fails({add(reader)})), AllOf(HasSubstr("verify_reads"), HasSubstr("depth")));
  reader.verify_reads = whole;  // a verifier may read a whole argument
  s.apply({add(reader)});
  yard_kernel_t costly = kernel_of("norm", "default.c", "plain");
  costly.cost = [](void*, const int64_t*, uint32_t) { return 1.0; };
  costly.cost_reads = whole;  // a whole argument is not a number for a cost
  EXPECT_THAT(text(s.fails({add(costly)})), AllOf(HasSubstr("cost_reads"), HasSubstr("'x'")));
}

int g_probes = 0;

TEST(Changes, ReprobeAsksAgain) {
  yard_backend_t b = backend_of("device", "acme");
  b.probe = [](void*, const yard_host_t*, yard_device_t, yard_verdict_t*) -> int32_t {
    return ++g_probes == 1 ? YARD_FAULT : YARD_OK;
  };
  static const char* const texts[] = {"no driver"};
  b.reasons = texts, b.reason_count = 1;
  Shelf s;
  s.put(op_of(kNorm), b, kernel_of("norm", "vendor.acme", "device", YARD_KIND_VENDOR));
  g_probes = 0;
  const auto before = s.kernel("norm", "vendor.acme");
  EXPECT_FALSE(before->backend->probe({}, nullptr).available);
  EXPECT_FALSE(before->backend->probe({}, nullptr).available);
  EXPECT_EQ(g_probes, 1);
  const Applied done = s.apply({Reprobe{"device"}});
  EXPECT_THAT(done.ops, ElementsAre("norm"));
  EXPECT_TRUE(done.removed.empty());
  const auto after = s.kernel("norm", "vendor.acme");
  EXPECT_EQ(after->backend, s.state().backends.at("device"));
  EXPECT_TRUE(after->backend->probe({}, nullptr).available);
  EXPECT_EQ(g_probes, 2);
  // The backend and the kernel are equal to the old ones.
  EXPECT_EQ(difference(*before, *after), "");
  EXPECT_EQ(difference(*before->backend, *after->backend), "");
  s.apply({add(b)});
}

TEST(Changes, ManyStepsSeeEachOther) {
  Shelf s = stocked();
  const Applied done = s.apply({
      RemoveOp{"scale"},
      add(op_of(kScale)),
      add(backend_of("late", "late")),
      add(kernel_of("scale", "vendor.late", "late", YARD_KIND_VENDOR)),
      RemoveKernel{"norm", "default.a"},
      add(kernel_of("norm", "default.a", "late", YARD_KIND_DEFAULT, 3)),
      replace(kernel_of("norm", "default.a", "late", YARD_KIND_DEFAULT, 4)),
      RemoveBackend{"acme"},
      add(backend_of("acme", "other")),
      add(kernel_of("norm", "vendor.acme", "acme", YARD_KIND_VENDOR)),
      Reprobe{"acme"},
  });
  EXPECT_THAT(done.ops, ElementsAre("norm", "scale"));
  EXPECT_EQ(s.kernel("norm", "default.a")->priority, 4);
  EXPECT_EQ(s.kernel("norm", "vendor.acme")->backend->vendor, "other");
  EXPECT_EQ(s.kernel("scale", "vendor.acme"), nullptr);
  EXPECT_NE(s.kernel("scale", "vendor.late"), nullptr);
}

TEST(Changes, WhatIsKeptIsLetGoWithTheRecord) {
  auto keep = std::make_shared<int>(1);
  Shelf s;
  s.put(op_of(kNorm), backend_of("plain"));
  s.apply({add(kernel_of("norm", "default.a", "plain"), keep)});
  EXPECT_EQ(keep.use_count(), 2);
  s.apply({RemoveKernel{"norm", "default.a"}});
  EXPECT_EQ(keep.use_count(), 1);
}

TEST(Changes, RemoveKeptTakesOutWhatHoldsItAndNothingElse) {
  Shelf shelf;
  auto ours = std::make_shared<int>(1), theirs = std::make_shared<int>(2);
  shelf.apply({add(op_of("a(out!: T[n], x: T[n])"), ours), add(backend_of("us"), ours),
               add(kernel_of("a", "default.us", "us"), ours),
               add(op_of("b(out!: T[n], x: T[n])"), theirs), add(backend_of("them"), theirs),
               add(kernel_of("b", "default.them", "them"), theirs),
               add(kernel_of("b", "default.us", "us"), ours)});
  const Applied done = shelf.apply({RemoveKept{ours.get()}});
  EXPECT_EQ(done.removed.size(), 4u);
  EXPECT_EQ(shelf.op_record("a"), nullptr);
  EXPECT_EQ(shelf.state().backends.count("us"), 0u);
  EXPECT_EQ(shelf.op_record("b")->kernels.size(), 1u);
  EXPECT_NE(shelf.kernel("b", "default.them"), nullptr);
  EXPECT_TRUE(shelf.apply({RemoveKept{ours.get()}}).removed.empty());
}

TEST(Changes, RemoveKeptIsAConflictWhereOthersDependOnIt) {
  Shelf shelf;
  auto ours = std::make_shared<int>(1), theirs = std::make_shared<int>(2);
  shelf.apply({add(op_of("a(out!: T[n], x: T[n])"), ours), add(backend_of("us"), ours),
               add(backend_of("them"), theirs),
               add(kernel_of("a", "default.them", "them"), theirs)});
  EXPECT_EQ(shelf.fails({RemoveKept{ours.get()}}).code(), Code::kConflict);
  shelf.apply({RemoveKept{theirs.get()}, RemoveKept{ours.get()}});
  EXPECT_TRUE(shelf.state().op_records.empty());
  shelf.apply({add(op_of("b(out!: T[n], x: T[n])"), theirs), add(backend_of("us"), ours),
               add(kernel_of("b", "default.them", "us"), theirs)});
  EXPECT_EQ(shelf.fails({RemoveKept{ours.get()}}).code(), Code::kConflict);
}

TEST(Changes, WhatIsReplacedKeepsTheKernelsOfOthers) {
  Shelf shelf;
  auto old = std::make_shared<int>(1), fresh = std::make_shared<int>(2);
  auto theirs = std::make_shared<int>(3);
  const auto version = [&](const std::shared_ptr<int>& keep) {
    return std::vector<Step>{add(op_of("a(out!: T[n], x: T[n])"), keep),
                             add(backend_of("us"), keep),
                             add(kernel_of("a", "default.us", "us"), keep)};
  };
  shelf.apply(version(old));
  shelf.apply({add(backend_of("them"), theirs), add(kernel_of("a", "default.them", "them"), theirs),
               add(kernel_of("a", "other.us", "us"), theirs)});
  const auto index = shelf.op_record("a")->op->index;
  std::vector<Step> steps = {RemoveKept{old.get(), true}};
  for (const Step& s : version(fresh)) steps.push_back(s);
  const Applied done = shelf.apply(steps);
  EXPECT_EQ(done.removed.size(), 3u) << "the old op, backend and kernel";
  EXPECT_EQ(done.ops.count("a"), 1u);
  EXPECT_EQ(shelf.op_record("a")->kernels.size(), 3u);
  EXPECT_EQ(shelf.op_record("a")->op->index, index) << "handles of callers stay valid";
  EXPECT_EQ(shelf.op_record("a")->op->keep, fresh);
  EXPECT_EQ(shelf.kernel("a", "other.us")->backend->keep, fresh);
  EXPECT_EQ(shelf.kernel("a", "default.them")->backend->keep, theirs);
  old.reset();

  const auto lacks = [&](std::vector<Step> added) {
    added.insert(added.begin(), RemoveKept{fresh.get(), true});
    return shelf.fails(added);
  };
  EXPECT_EQ(lacks({}).code(), Code::kConflict);
  EXPECT_EQ(lacks({add(op_of("a(out!: T[n], x: T[n], y: T[n])")), add(backend_of("us"))}).code(),
            Code::kConflict);
  EXPECT_EQ(lacks({add(op_of("a(out!: T[n], x: T[n])"))}).code(), Code::kConflict) << "no backend";
  EXPECT_EQ(shelf.op_record("a")->kernels.size(), 3u);
}

}  // namespace
}  // namespace yard::registry
