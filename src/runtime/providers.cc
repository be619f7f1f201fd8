// SPDX-License-Identifier: Apache-2.0
// Hooks and dispatched functions find their runtime: the shared one, unless a hook names another.
#include <fmt/format.h>
#include <yard/runtime.h>

#include "base/log.h"
#include "provider/function_service.h"
#include "provider/hook_service.h"

namespace yard {

void add_provider(std::string group, FunctionSetup setup, std::string name) {
  Runtime::shared().functions().add_provider(std::move(group), std::move(setup), std::move(name));
}

namespace detail {
namespace {
provider::FunctionService& shared_functions() { return Runtime::shared().functions().service(); }
}  // namespace

void attach_function(FunctionSite& site) { shared_functions().attach(site); }

FunctionExplanation explain_function(FunctionSite& site, const FunctionArgs& args) {
  return shared_functions().explain(site, args);
}

std::vector<std::string> check_function(FunctionSite& site, const FunctionArgs& args) {
  return shared_functions().check(site, args);
}

const yard_host_t* function_host() noexcept { return Runtime::shared().core().host; }

HookSite* attach_hook(const HookDeclaration* declaration, Runtime* runtime, bool& again) noexcept {
  try {
    Runtime& r = runtime != nullptr ? *runtime : Runtime::shared();
    return r.hooks().service().attach(*declaration, again);
  } catch (const std::exception& e) {
    base::log(LogLevel::kError, "runtime",
              fmt::format("Hook '{}' runs its default for now: {}", declaration->name, e.what()));
    return again = true, nullptr;
  }
}

}  // namespace detail
}  // namespace yard
