// SPDX-License-Identifier: Apache-2.0
// Reads the notes of any bytes as a shared library. Reading ends, with a message if something is
// wrong.
#include <yard/plugin.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/elf.h"
#include "base/testing_files.h"
#include "plugin/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const base::ElfReading reading =
      base::read_elf(base::file_of(bytes), YARD_MANIFEST_OWNER, YARD_MANIFEST_TYPE);
  const bool good = reading.problem == yard::PluginReason::kNone;
  if (good != reading.detail.empty() || (!good && !reading.notes.empty())) std::abort();
  for (const std::string& note : reading.notes) {
    plugin::Manifest manifest;
    plugin::parse_manifest(note, manifest);
  }
  return 0;
}
