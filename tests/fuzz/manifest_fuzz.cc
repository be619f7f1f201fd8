// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a plugin's manifest, and as a lock file. Reading ends, errors have a message,
// and a lock file that is printed reads back as itself.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "plugin/admission.h"
#include "plugin/manifest.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard::plugin;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Manifest manifest;
  const Refusal refusal = parse_manifest(text, manifest);
  require(refusal.refused() != refusal.detail.empty());
  if (!refusal.refused()) {
    Manifest again;
    require(!parse_manifest(text, again).refused() && again == manifest);
    const Refusal checked = check_manifest(manifest, {});
    require(checked.refused() != checked.detail.empty());
  }
  const auto file = parse_lock_file(text, "yard.lock");
  if (!file.ok()) return 0;
  const auto again = parse_lock_file(to_text(*file), "yard.lock");
  require(again.ok() && *again == *file);
  const LockFiles locks{.present = true, .lines = *file};
  for (const LockLine& l : *file) {
    manifest.name = l.name, manifest.version = l.version;
    require(!locks.allows(manifest, l.sha256).refused());
  }
  return 0;
}
