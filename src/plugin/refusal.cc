// SPDX-License-Identifier: Apache-2.0
// The table of reasons.
#include "plugin/refusal.h"

#include <fmt/format.h>

namespace yard::plugin {
namespace {

using R = PluginReason;
constexpr Code kInvalid = Code::kInvalidArgument, kUnsupported = Code::kUnsupported;

constexpr ReasonInfo kReasons[] = {
    {R::kNone, "none", "It was not refused.", Code::kOk},
    {R::kNotFound, "not_found", "There is no such file, directory or plugin.", Code::kNotFound},
    {R::kUnreadable, "unreadable", "The file or directory cannot be opened or read.", kInvalid},
    {R::kRelativePath, "relative_path",
     "The path is empty or relative, and would depend on the working directory.", kInvalid},
    {R::kWritableByOthers, "writable_by_others",
     "Users other than root and the user of the process can write the file or a directory above "
     "it.",
     kInvalid},
    {R::kNotElf, "not_elf", "The file is not an ELF file.", kInvalid},
    {R::kDamaged, "damaged", "The file is truncated or inconsistent.", kInvalid},
    {R::kOtherMachine, "other_machine", "The library is for another architecture.", kUnsupported},
    {R::kNotALibrary, "not_a_library", "The file is a program or an object, not a shared library.",
     kInvalid},
    {R::kNoManifest, "no_manifest", "The library carries no manifest.", kInvalid},
    {R::kBadManifest, "bad_manifest", "The manifest cannot be read or lacks something.", kInvalid},
    {R::kAbiTooNew, "abi_too_new", "The plugin was made for a newer ABI than this library knows.",
     kUnsupported},
    {R::kAbiTooOld, "abi_too_old", "The plugin was made for an ABI that is no longer served.",
     kUnsupported},
    {R::kMissingFeature, "missing_feature",
     "The machine lacks a feature that the plugin needs, or the operating system does not let "
     "programs use it.",
     kUnsupported},
    {R::kOtherSanitizer, "other_sanitizer",
     "Plugin and process were not built with the same sanitizer.", kUnsupported},
    {R::kDuplicateName, "duplicate_name", "Another plugin of that name was found before it.",
     Code::kConflict},
    {R::kBadLockFile, "bad_lock_file",
     "A lock file cannot be read, or others can write it, so that no plugin may be loaded.",
     kInvalid},
    {R::kNotInLockFile, "not_in_lock_file",
     "There is a lock file and it does not list this plugin in this version.", kInvalid},
    {R::kDigestDiffers, "digest_differs", "The file is not the one that the lock file lists.",
     kInvalid},
    {R::kNotVerified, "not_verified",
     "Only verified plugins may be loaded, and this one is not verified.", kInvalid},
    {R::kNotProbed, "not_probed",
     "The plugin must be probed in a separate process first, and that was not possible.",
     kUnsupported},
    {R::kProbeFailed, "probe_failed",
     "The plugin crashed, hung, ended the process or damaged memory when it was probed in a "
     "separate process.",
     kInvalid},
    {R::kCannotOpen, "cannot_open", "The dynamic loader cannot open the library.", kInvalid},
    {R::kNoQuery, "no_query", "The library does not define yard_plugin_query.", kInvalid},
    {R::kQueryDeclined, "query_declined",
     "The query of the plugin returned NULL: it does not support this host.", kUnsupported},
    {R::kQueryThrew, "query_threw", "The query of the plugin threw an exception.", kInvalid},
    {R::kBadDescriptor, "bad_descriptor", "The descriptor of the plugin is invalid.", kInvalid},
    {R::kManifestDiffers, "manifest_differs", "Manifest and descriptor contradict each other.",
     kInvalid},
    {R::kConflict, "conflict",
     "An op, backend or kernel of the plugin conflicts with one that is registered already.",
     Code::kConflict},
    {R::kStartFailed, "start_failed", "The plugin could not start.", Code::kUnsupported},
};

}  // namespace

std::span<const ReasonInfo> reasons() noexcept { return kReasons; }

Status to_status(const std::string& path, const Refusal& refusal) {
  const auto& info = kReasons[static_cast<size_t>(refusal.reason)];
  return Status(info.code,
                fmt::format("plugin {} is refused: {}: {}", path, info.name, refusal.detail));
}

}  // namespace yard::plugin

namespace yard {

const char* to_string(PluginReason reason) noexcept {
  const auto i = static_cast<size_t>(reason);
  return i < plugin::reasons().size() ? plugin::reasons()[i].name : "unknown";
}

const char* to_string(PluginProbe probe) noexcept {
  switch (probe) {
    case PluginProbe::kNever: return "never";
    case PluginProbe::kChanged: return "changed";
    case PluginProbe::kAlways: return "always";
  }
  return "unknown";
}

std::optional<PluginProbe> parse_plugin_probe(std::string_view text) noexcept {
  for (const PluginProbe p : {PluginProbe::kNever, PluginProbe::kChanged, PluginProbe::kAlways})
    if (text == to_string(p)) return p;
  return std::nullopt;
}

const char* to_string(PluginState state) noexcept {
  switch (state) {
    case PluginState::kFound: return "found";
    case PluginState::kLoaded: return "loaded";
    case PluginState::kRefused: return "refused";
    case PluginState::kUnloading: return "unloading";
    case PluginState::kUnloaded: return "unloaded";
    case PluginState::kPinned: return "pinned";
  }
  return "unknown";
}

}  // namespace yard
