// SPDX-License-Identifier: Apache-2.0
// A plugin's manifest, which is read before any of its code runs, and whether it fits this process.
#pragma once

#include <yard/plugin.h>

#include <string>
#include <string_view>
#include <vector>

#include "plugin/refusal.h"

namespace yard::plugin {

struct Manifest {
  uint32_t abi = 0;
  std::string arch, sanitizer, name, version, build;
  std::vector<std::string> devices, features, ops, groups, hooks;

  bool operator==(const Manifest&) const = default;
};

// Reads `key=value` lines. Unknown keys are skipped; `to` is unspecified after a refusal.
Refusal parse_manifest(std::string_view text, Manifest& to);
// The text that parse_manifest() reads back as the same.
std::string to_text(const Manifest& manifest);

// What a manifest is compared with.
struct Process {
  uint32_t newest_abi = YARD_ABI_VERSION, oldest_abi = 0;
  std::string_view arch = YARD_ARCH_, sanitizer = YARD_SANITIZER_;
  const yard_host_t* host = nullptr;  // asked for features
};
Refusal check_manifest(const Manifest& manifest, const Process& process);

}  // namespace yard::plugin
