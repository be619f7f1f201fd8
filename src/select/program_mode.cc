// SPDX-License-Identifier: Apache-2.0
#include "select/program_mode.h"

#include <fmt/format.h>
#include <yard/detail/guard.h>

#include <algorithm>
#include <exception>

#include "base/log.h"

namespace yard::select {
namespace {

std::vector<std::string> answer(const Asked& a, std::span<const ModeCandidate> candidates) {
  const ModeProvider& provider = a.candidates.settings().program->provider;
  const op::Labels& labels = a.candidates.settings().labels;
  std::vector<std::string> ids;
  if (provider.plan) {
    std::vector<int64_t> read;
    for (const op::Field& f : a.candidates.mode_fields()) read.push_back(op::read(f, a.args));
    ids = provider.plan({a.candidates.program().name(),
                         read,
                         {a.args, a.count},
                         a.flags,
                         a.device,
                         labels,
                         candidates});
  }
  if (ids.empty() && provider.kernel) {
    const op::Program& program = a.candidates.program();
    const op::Call call = op::Call::capture(program, a.args, a.flags, labels);
    std::string id = provider.kernel(op::to_string(call.to_spec(program)));
    if (!id.empty()) ids.push_back(std::move(id));
  }
  return ids;
}

// Plugin code may do anything, and the program's own no less.
std::vector<std::string> ask(const Asked& a, std::span<const ModeCandidate> candidates,
                             std::string& why) {
  try {
    std::vector<std::string> ids = answer(a, candidates);
    if (ids.empty()) why = "it gave no answer";
    return ids;
  } catch (const std::exception& e) {
    why = fmt::format("it threw: {}", e.what());
  } catch (...) {
    if (detail::thread_is_unwinding()) throw;
    why = "it threw an exception that is no std::exception";
  }
  base::log(LogLevel::kWarn, "select",
            fmt::format("mode '{}' was asked for a kernel of op '{}': {}",
                        a.candidates.settings().program->name, a.candidates.program().name(), why));
  return {};
}

}  // namespace

size_t ask_mode(const Asked& asked, std::span<const ModeCandidate> candidates, Order& order,
                std::string* why) {
  std::string none;
  const std::vector<std::string> ids = ask(asked, candidates, none);
  const auto& kernels = asked.candidates.all();
  auto next = order.begin();
  for (const std::string& id : ids) {
    const auto at =
        std::find_if(next, order.end(), [&](uint16_t i) { return kernels[i].kernel->id == id; });
    if (at != order.end()) {
      std::rotate(next, at, at + 1);
      ++next;
    } else if (asked.candidates.op_record().kernels.count(id) == 0) {
      base::log(LogLevel::kWarn, "select",
                fmt::format("mode '{}' names '{}', and op '{}' has no such kernel",
                            asked.candidates.settings().program->name, id,
                            asked.candidates.program().name()));
    }
  }
  const auto named = static_cast<size_t>(next - order.begin());
  if (named == 0 && none.empty()) none = fmt::format("'{}' cannot serve the call", ids[0]);
  if (named == 0 && why != nullptr) *why = std::move(none);
  return named;
}

}  // namespace yard::select
