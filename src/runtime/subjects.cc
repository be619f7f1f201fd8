// SPDX-License-Identifier: Apache-2.0
#include "runtime/subjects.h"

namespace yard::runtime {

std::vector<tune::OpUnderTest> subjects(const detail::Snapshot& s, const VerifyOptions& o,
                                        const yard_host_t* host, const void* keep) {
  std::vector<tune::OpUnderTest> to;
  for (const auto& [name, op_record] : s.state->op_records) {
    if (!o.op.empty() && o.op != name) continue;
    tune::OpUnderTest subject{op_record, {}, {host, s.forked}};
    for (const auto& [id, k] : op_record->kernels)
      if ((o.kernel.empty() || o.kernel == id) &&
          (o.backend.empty() || o.backend == k->backend_name) &&
          (o.plugin.empty() || k->keep.get() == keep))
        subject.kernels.insert(id);
    if (!subject.kernels.empty()) to.push_back(std::move(subject));
  }
  return to;
}

}  // namespace yard::runtime
