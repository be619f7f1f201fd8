// SPDX-License-Identifier: Apache-2.0
// Calls by name: the op and its arguments are found by their names, which a thread remembers.
#pragma once

#include <yard/value.h>

#include <span>
#include <string_view>

#include "dispatch/core.h"
#include "op/bind.h"

namespace yard::detail {

// One call without options. Any thread.
Status call_named(Core& core, std::string_view op, std::span<const Arg> args);
// An op's site and the arguments in the order of its schema.
Result<Site*> bind_named(Core& core, std::string_view op, std::span<const Arg> args,
                         op::Arguments& to);

}  // namespace yard::detail
