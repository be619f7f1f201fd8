// SPDX-License-Identifier: Apache-2.0
// Reading descriptors: untrusted structs in, owned records out, or a clear refusal.
//
// Never reads past the size a struct states. Checks everything that can be checked without knowing the
// op: names, text, kinds, limits, missing functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/changes.h"
#include "registry/records.h"

namespace yard::registry {

Result<std::shared_ptr<Op>> read_op(const yard_op_t& d, std::shared_ptr<void> keep);
Result<std::shared_ptr<Backend>> read_backend(const yard_backend_t& d, std::shared_ptr<void> keep);
// `only_backend` stands in where the descriptor names none.
Result<std::shared_ptr<Kernel>> read_kernel(const yard_kernel_t& d, std::shared_ptr<void> keep,
                                            const char* only_backend = nullptr);
// A hook, or an implementation of a dispatched function.
Result<std::shared_ptr<Hook>> read_hook(const yard_hook_t& d, std::shared_ptr<void> keep,
                                        const char* only_backend = nullptr);
// Appends a step for everything the plugin lists.
Status read_plugin(const yard_plugin_t& d, const std::shared_ptr<void>& keep,
                   std::vector<Step>& steps);

}  // namespace yard::registry
