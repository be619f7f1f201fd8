// SPDX-License-Identifier: Apache-2.0
// Reading descriptors: from untrusted structs to records, or an error.
//
// Never reads past the stated size of a struct. Checks everything that does not depend on the op: names, texts, kinds,
// limits, missing functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/changes.h"
#include "registry/records.h"

namespace yard::registry {

Result<std::shared_ptr<Op>> read_op(const yard_op_t& d, std::shared_ptr<void> keep);
Result<std::shared_ptr<Backend>> read_backend(const yard_backend_t& d, std::shared_ptr<void> keep);
// `only_backend` is used if the descriptor names no backend.
Result<std::shared_ptr<Kernel>> read_kernel(const yard_kernel_t& d, std::shared_ptr<void> keep,
                                            const char* only_backend = nullptr);
// A hook, or an implementation of a dispatched function.
Result<std::shared_ptr<Hook>> read_hook(const yard_hook_t& d, std::shared_ptr<void> keep,
                                        const char* only_backend = nullptr);
// Appends a step for everything that the plugin lists. Its ops and kernels are of that origin, with the plugin's name if
// it is a loaded plugin.
Status read_plugin(const yard_plugin_t& d, const std::shared_ptr<void>& keep,
                   std::vector<Step>& steps, Origin::From from = Origin::From::kProgram);

}  // namespace yard::registry
