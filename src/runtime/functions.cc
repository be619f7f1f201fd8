// SPDX-License-Identifier: Apache-2.0
// Functions of a runtime: see yard/function.h.
#include <fmt/format.h>
#include <yard/runtime.h>

#include "base/text.h"
#include "function/check.h"
#include "function/registry.h"

namespace yard {

std::vector<FunctionInfo> Functions::list() const { return registry_->list(); }
std::vector<FunctionSource> Functions::sources() const { return registry_->sources(); }

Result<FunctionInfo> Functions::find(std::string_view function) const {
  std::vector<std::string> names;
  for (FunctionInfo& f : registry_->list()) {
    names.push_back(f.group + "/" + f.name);
    if (names.back() == function) return std::move(f);
  }
  return Status(Code::kNotFound,
                fmt::format("nobody declares or provides a function {}{}", base::excerpt(function),
                            base::did_you_mean(function, names)));
}

void Functions::add_provider(std::string group, FunctionSetup setup, std::string name) {
  registry_->add_provider(std::move(group), std::move(setup), std::move(name));
}
Status Functions::load(std::string_view group) { return registry_->load(group); }
void Functions::check_verifiers(bool on) { registry_->check_verifiers(on); }

void add_provider(std::string group, FunctionSetup setup, std::string name) {
  Runtime::shared().functions().add_provider(std::move(group), std::move(setup), std::move(name));
}

namespace detail {
namespace {
function::Registry& shared() { return Runtime::shared().functions().registry(); }
}  // namespace

void attach_function(FunctionSite& site) { shared().attach(site); }

FunctionExplanation explain_function(FunctionSite& site, const FunctionArgs& args) {
  return shared().explain(site, args);
}

std::vector<std::string> check_function(FunctionSite& site, const FunctionArgs& args) {
  return shared().check(site, args);
}

const yard_host_t* function_host() noexcept { return Runtime::shared().core().host; }

}  // namespace detail
}  // namespace yard
