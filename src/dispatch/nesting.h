// SPDX-License-Identifier: Apache-2.0
// Calls that nest too deep: kernels, functions or hooks that call themselves or each other without end.
#pragma once

#include <yard/detail/function.h>
#include <yard/detail/hook.h>

#include <cstdint>
#include <string_view>

#include "base/reclaimer.h"

namespace yard::dispatch {

using namespace detail;

// The error of a call of an op that is nested too deep, or for whose slot there is no memory; null: it may be made.
Status::Rep* refuse_if_too_deep(base::ThreadRecord& thread, uint32_t most, std::string_view op);

// The slot of a function or hook that is called now. Throws where refuse_if_too_deep() is an error.
HazardSlot& nested_slot(ThreadHead& thread, uint32_t most, const FunctionSite& function);
HazardSlot& nested_slot(ThreadHead& thread, uint32_t most, const HookDeclaration& hook);

}  // namespace yard::dispatch
