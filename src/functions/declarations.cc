// SPDX-License-Identifier: Apache-2.0
// The functions that the program declares.
#include <fmt/format.h>

#include "base/text.h"
#include "functions/table.h"

namespace yard::functions {

constinit base::AppendList<FunctionSite> g_sites;

std::vector<FunctionSite*> declared_sites() {
  std::vector<FunctionSite*> to;
  for (FunctionSite& site : g_sites)
    if (site.declared.load(std::memory_order_acquire) > 0) to.push_back(&site);
  return to;
}

std::vector<FunctionSite*> declared_sites(std::string_view group, std::string_view name) {
  std::vector<FunctionSite*> to = declared_sites();
  std::erase_if(to, [&](const auto* s) { return s->group != group || s->name != name; });
  return to;
}

Status status_of_exception() {
  try {
    throw;
  } catch (const Error& e) {
    return e.status();
  } catch (...) {
    return Status(Code::kKernelFailed, "it threw: " + base::current_exception_text());
  }
}

}  // namespace yard::functions

namespace yard::detail {

constinit std::atomic<const std::atomic<const dispatch::Snapshot*>*> g_snapshot{nullptr};

FunctionSite* declare_function(const char* group, const char* name, const char* signature,
                               Selection selection, bool repeatable,
                               const FunctionSamples* samples) noexcept {
  auto made = std::make_unique<FunctionSite>();
  made->group = group != nullptr ? group : "", made->name = name != nullptr ? name : "";
  made->signature = signature, made->selection = selection, made->repeatable = repeatable;
  FunctionSite* site =
      &functions::g_sites.find_or_append(std::move(made), [](const auto& a, auto& b) {
        b.index = a.index + 1;
        return a.group == b.group && a.name == b.name && a.signature == b.signature &&
               a.selection == b.selection && a.repeatable == b.repeatable;
      });
  if (samples != nullptr) site->samples.store(samples, std::memory_order_release);
  // A function that is declared again may have had no table while it was not.
  if (site->declared.fetch_add(1, std::memory_order_acq_rel) == 0)
    site->quiet.store(false, std::memory_order_relaxed);
  return site;
}

void undeclare_function(FunctionSite* site) noexcept {
  // The samples may be code of a library that is unloaded with this object.
  site->samples.store(nullptr, std::memory_order_release);
  site->declared.fetch_sub(1, std::memory_order_acq_rel);
}

void no_default(const FunctionSite& site) {
  throw Error(Status(Code::kNoKernel,
                     fmt::format("function '{}/{}' has no body, and no backend runs the call; "
                                 "expected call_or() with a default",
                                 site.group, site.name)));
}

}  // namespace yard::detail
