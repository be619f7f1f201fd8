// SPDX-License-Identifier: Apache-2.0
// A runtime and the process's environment: reading it, and telling what of it is not valid here.
#pragma once

#include <memory>

#include "plugin/search.h"
#include "policy/process.h"
#include "registry/changes.h"

namespace yard::runtime {

// Reads the variables YARD_* over what was good before. Names of ops, vendors and backends that nobody has
// registered are warnings: they may come later. Logs every problem and applies the log levels. In a privileged
// process, one with more rights than whoever started it, what names files, plugins or probes is ignored and told.
std::shared_ptr<const policy::Reading> read_environment(const policy::Reading& before,
                                                        const registry::State& state,
                                                        bool privileged = plugin::privileged());

// The first error, with the others as its notes.
Status first_error(const policy::Reading& reading);

}  // namespace yard::runtime
