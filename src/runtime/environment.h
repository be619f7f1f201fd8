// SPDX-License-Identifier: Apache-2.0
// The environment of the process: reading it for a runtime and reporting what is invalid there.
#pragma once

#include <memory>

#include "plugin/search.h"
#include "policy/process.h"
#include "registry/changes.h"

namespace yard::runtime {

// Reads the variables YARD_* over the last valid values. Unknown names of ops, vendors and backends are warnings: they may
// be registered later. Logs every problem and applies the log levels. In a privileged process (set-uid, set-gid, file
// capabilities) variables that name files, plugins or probes are ignored and reported.
std::shared_ptr<const policy::Reading> read_environment(const policy::Reading& before,
                                                        const registry::State& state,
                                                        bool privileged = plugin::privileged());

// The first error, with the others as its notes.
Status first_error(const policy::Reading& reading);

}  // namespace yard::runtime
