// SPDX-License-Identifier: Apache-2.0
// Makes candidate sets for tests: kernels, a policy, a call, and the outcome for each kernel.
#pragma once

#include "registry/testing.h"
#include "select/select.h"

namespace yard::select::testing {

using registry::testing::backend_of;
using registry::testing::kernel_of;

// Kernels of `norm` (registry/testing.h) from backends `plain` (no vendor), `acme` and `other`.
struct Ring {
  registry::testing::Shelf shelf;
  Policy policy;
  std::string force;
  std::vector<std::string> deny;
  ProcessState process;

  Ring() {
    shelf.put(registry::testing::op_of(registry::testing::kNorm), backend_of("plain"),
              backend_of("acme", "acme"), backend_of("other", "other"));
  }

  // Adds a kernel that takes every call, changed by `edit`.
  template <class Edit>
  Ring& add(const char* id, const char* backend, yard_kind_t kind, const Edit& edit) {
    yard_kernel_t d = kernel_of("norm", id, backend, kind);
    edit(d);
    shelf.put(d);
    return *this;
  }
  Ring& add(const char* id, const char* backend = "plain", yard_kind_t kind = YARD_KIND_DEFAULT,
            int32_t priority = 0) {
    return add(id, backend, kind, [&](yard_kernel_t& d) { d.priority = priority; });
  }
  Ring& limit(const char* id, yard_limit_t l) {
    return add(id, "plain", YARD_KIND_DEFAULT,
               [&](yard_kernel_t& d) { d.limits = &l, d.limit_count = 1; });
  }

  op::Call call(const std::string& spec = "norm(f32[4,64])") const {
    return op::Call::from_spec(*shelf.op_record("norm")->op->program,
                               op::parse_call_spec(spec).value())
        .value();
  }
  CandidateSet candidates() const {
    return CandidateSet({shelf.op_record("norm"), {policy, force, deny}, process});
  }

  // Returns ids, best first.
  std::vector<std::string> order(const std::string& spec = "norm(f32[4,64])") const {
    const CandidateSet c = candidates();
    const op::Call k = call(spec);
    std::vector<std::string> ids;
    for (uint16_t i : select(c, k.args(), k.count(), k.flags()))
      ids.push_back(c.all()[i].kernel->id);
    return ids;
  }

  Notes::Entry note(const std::string& id, const std::string& spec = "norm(f32[4,64])") const {
    const CandidateSet c = candidates();
    const op::Call k = call(spec);
    Notes notes;
    (void)select(c, k.args(), k.count(), k.flags(), &notes);
    for (size_t i = 0; i < c.all().size(); ++i)
      if (c.all()[i].kernel->id == id) return notes.entries[i];
    ADD_FAILURE() << "no kernel " << id;
    return {};
  }
  // Returns the yard_reason_t of one kernel, which must be in the order exactly if there is none.
  int32_t reason(const std::string& id, const std::string& spec = "norm(f32[4,64])") const {
    const int32_t code = note(id, spec).verdict.reason;
    const auto ids = order(spec);
    EXPECT_EQ(std::find(ids.begin(), ids.end(), id) != ids.end(), code == YARD_REASON_NONE) << id;
    return code;
  }

  Explanation explain(const std::string& spec = "norm(f32[4,64])") const {
    const policy::Source sources[] = {{"process", &policy}};
    return select::explain(candidates(), call(spec), sources);
  }
  Candidate candidate(const std::string& id, const std::string& spec = "norm(f32[4,64])") const {
    for (const Candidate& c : explain(spec).candidates)
      if (c.id == id) return c;
    ADD_FAILURE() << "no candidate " << id;
    return {};
  }
};

}  // namespace yard::select::testing
