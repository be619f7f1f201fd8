// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plugin's manifest, and as a lock file: reading ends, what is read prints and reads back as
// itself, errors have a message.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "plugin/lock_file.h"
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
    require(!parse_manifest(to_text(manifest), again).refused() && again == manifest);
    const Refusal checked = check_manifest(manifest, {});
    require(checked.refused() != checked.detail.empty());
  }
  const auto file = LockFile::parse(text, "yard.lock");
  if (!file.ok()) return 0;
  const auto again = LockFile::parse(file->text(), "yard.lock");
  require(again.ok() && again->lines() == file->lines());
  for (const LockLine& e : file->lines())
    require(!file->allows(e.name, e.version, e.sha256).refused());
  return 0;
}
