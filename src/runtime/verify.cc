// SPDX-License-Identifier: Apache-2.0
// Verifying the kernels of a runtime: see yard/verify.h.
#include <fmt/format.h>
#include <yard/verify.h>

#include "base/text.h"
#include "function/registry.h"
#include "plugin/loader.h"
#include "runtime/subjects.h"

namespace yard {
namespace {

Status check_names(const detail::Core& core, const detail::Snapshot& s, const VerifyOptions& o) {
  if (!o.op.empty() && s.state->find(o.op) == nullptr) return core.sites.unknown_op(*s.state, o.op);
  std::vector<std::string> kernels, backends;
  for (const auto& [name, b] : s.state->backends) backends.push_back(name);
  for (const auto& [name, op_record] : s.state->op_records)
    for (const auto& [id, k] : op_record->kernels) kernels.push_back(id);
  const auto known = [](const std::string& name, const std::vector<std::string>& names,
                        const char* what) -> Status {
    if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return {};
    return Status(Code::kNotFound, fmt::format("there is no {} '{}'{}", what, name,
                                               base::did_you_mean(name, names)));
  };
  YARD_RETURN_IF_ERROR(known(o.kernel, kernels, "kernel"));
  return known(o.backend, backends, "backend");
}

}  // namespace

namespace {

// Of the functions that the options name; those that name an op or a kernel name none.
Result<std::vector<FunctionReport>> verify_functions(const Runtime& runtime, const VerifyOptions& o,
                                                     const void* keep) {
  if (!o.op.empty() || !o.kernel.empty()) return std::vector<FunctionReport>();
  Functions functions = runtime.functions();
  if (!o.function.empty()) {
    if (o.plugin.empty())
      YARD_RETURN_IF_ERROR(functions.load(o.function.substr(0, o.function.find('/'))));
    if (auto found = functions.find(o.function); !found.ok()) return found.status();
  }
  return functions.registry().verify({o.function, o.backend, keep, o.watch_function});
}

}  // namespace

Result<VerifyReport> verify(const Runtime& runtime, const VerifyOptions& options) {
  auto s = runtime.core().snapshot();
  if (!options.op.empty() &&
      runtime.core().sites.first_need(options.op, s->state->find(options.op)))
    s = runtime.core().snapshot();
  const void* keep = nullptr;
  if (!options.plugin.empty()) {
    keep = runtime.plugins().loader().keep_of(options.plugin);
    if (keep == nullptr)
      return Status(Code::kNotFound, fmt::format("no plugin '{}' is loaded", options.plugin));
  }
  YARD_RETURN_IF_ERROR(check_names(runtime.core(), *s, options));
  auto functions = verify_functions(runtime, options, keep);
  if (!functions.ok()) return functions.status();
  std::vector<tune::Subject> all;
  if (options.function.empty()) all = runtime::subjects(*s, options, runtime.core().host, keep);
  if (all.empty() && functions->empty())
    return Status(Code::kNotFound,
                  "no kernel is of that plugin, op, backend and id all at once, and no function of "
                  "that plugin and backend");
  VerifyReport report;
  report.functions = *std::move(functions);
  std::vector<bool> used(options.expectations.size(), false);
  for (size_t i = 0; i < all.size() && !report.cancelled; ++i) {
    VerifyProgress progress;
    progress.op = all[i].op_record->op->name, progress.op_index = i, progress.op_count = all.size();
    progress.cases = options.cases;
    const size_t failed_before = report.failed();
    bool finished = true;
    auto reports = tune::conform(
        all[i], options,
        [&](size_t done, size_t failed) {
          progress.done = done, progress.failed = failed_before + failed;
          return !options.progress || options.progress(progress);
        },
        used, &finished);
    report.cancelled = !finished;
    for (KernelReport& k : reports) report.kernels.push_back(std::move(k));
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) report.unused.push_back(options.expectations[i]);
  return report;
}

}  // namespace yard
