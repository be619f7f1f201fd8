// SPDX-License-Identifier: Apache-2.0
#include "plugin/manifest.h"

#include <fmt/format.h>
#include <yard/tensor.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "registry/features.h"

namespace yard::plugin {
namespace {

constexpr size_t kLargestManifest = 64 * 1024, kMostWords = 4096, kLongestWord = 128;

Refusal bad(std::string detail) { return {PluginReason::kBadManifest, std::move(detail)}; }

// Versions and tags: visible ASCII characters without blanks.
bool is_visible_word(std::string_view text) {
  return !text.empty() && text.size() <= kLongestWord &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

bool is_name(std::string_view text) {
  return text.size() <= kLongestWord && base::is_bare_word(text);
}

Refusal read_list(std::string_view key, std::string_view value, std::vector<std::string>& to) {
  for (std::string_view word : base::split(value, ' ')) {
    if (word.empty()) continue;
    if (to.size() == kMostWords)
      return bad(fmt::format("{} has more than {} entries", key, kMostWords));
    const bool fits = key == "features"  ? registry::parse_feature(word).ok()
                      : key == "devices" ? is_name(word) && parse_device(word)
                                         : is_name(word);
    if (!fits || word.size() > kLongestWord)
      return bad(fmt::format("invalid {1}: {0}", base::excerpt(word), key));
    if (!contains(to, word)) to.emplace_back(word);
  }
  return {};
}

// The keys but `abi`, in the order in which they are written.
struct ManifestKey {
  std::string_view name;
  std::string Manifest::*word;
  std::vector<std::string> Manifest::*list;
  bool required;
};
constexpr ManifestKey kKeys[] = {
    {"arch", &Manifest::arch, nullptr, true},
    {"sanitizer", &Manifest::sanitizer, nullptr, true},
    {"name", &Manifest::name, nullptr, true},
    {"version", &Manifest::version, nullptr, true},
    {"build", &Manifest::build, nullptr, false},
    {"devices", nullptr, &Manifest::devices, false},
    {"features", nullptr, &Manifest::features, false},
    {"ops", nullptr, &Manifest::ops, false},
    {"functions", nullptr, &Manifest::groups, false},
};

Refusal read_field(std::string_view key, std::string_view value, Manifest& to) {
  const auto wrong = [&] {
    return bad(fmt::format("invalid {1}: {0}", base::excerpt(value), key));
  };
  if (key == "abi") {
    const auto abi = base::number<uint32_t>(value);
    to.abi = abi.value_or(0);
    return abi ? Refusal() : wrong();
  }
  for (const ManifestKey& k : kKeys) {
    if (k.name != key) continue;
    if (k.list != nullptr) return read_list(key, value, to.*k.list);
    to.*k.word = value;
    return (key == "name" ? is_name(value) : is_visible_word(value)) ? Refusal() : wrong();
  }
  return {};
}

}  // namespace

Refusal parse_manifest(std::string_view text, Manifest& to) {
  to = {};
  if (text.size() > kLargestManifest)
    return bad(fmt::format("it has {} bytes, more than {}", text.size(), kLargestManifest));
  std::set<std::string_view> seen;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || !base::is_bare_word(line.substr(0, equals)))
      return bad(fmt::format("invalid line: expected key=value, got {}", base::excerpt(line)));
    const std::string_view key = line.substr(0, equals), value = line.substr(equals + 1);
    if (!seen.insert(key).second) return bad(fmt::format("duplicate key '{}'", key));
    if (seen.size() > 256) return bad("it has more than 256 keys");
    YARD_RETURN_IF_REFUSED(read_field(key, value, to));
  }
  const auto missing = [](std::string_view key) {
    return bad(fmt::format("missing key '{}'", key));
  };
  if (!seen.contains("abi")) return missing("abi");
  for (const ManifestKey& k : kKeys)
    if (k.required && !seen.contains(k.name)) return missing(k.name);
  if (to.devices.empty()) to.devices.emplace_back("cpu");
  return {};
}

std::string to_text(const Manifest& m) {
  std::string text = fmt::format("abi={}\n", m.abi);
  for (const ManifestKey& k : kKeys) {
    const std::string value =
        k.list != nullptr ? fmt::format("{}", fmt::join(m.*k.list, " ")) : m.*k.word;
    if (k.required || !value.empty()) text += fmt::format("{}={}\n", k.name, value);
  }
  return text;
}

Refusal check_manifest(const Manifest& m, const Process& process) {
  if (m.arch != process.arch)
    return {PluginReason::kOtherMachine,
            fmt::format("it is for {}, this process is {}", m.arch, process.arch)};
  if (m.abi > process.newest_abi)
    return {PluginReason::kAbiTooNew, fmt::format("it was made for ABI {}, this library knows {}",
                                                  m.abi, process.newest_abi)};
  if (m.abi < process.oldest_abi)
    return {PluginReason::kAbiTooOld,
            fmt::format("it was made for ABI {}, this library serves {} and newer", m.abi,
                        process.oldest_abi)};
  if (m.sanitizer != process.sanitizer)
    return {PluginReason::kOtherSanitizer,
            fmt::format("it was built with sanitizer '{}', this process with '{}'", m.sanitizer,
                        process.sanitizer)};
  for (const std::string& text : m.features) {
    const auto feature = registry::parse_needed_feature(text);
    if (!feature.ok())
      return {PluginReason::kMissingFeature, std::string(feature.status().message())};
    const Device d = feature->device;
    if (process.host != nullptr && process.host->has_feature(process.host->self, {d.type, d.index},
                                                             feature->name.c_str()) == 1)
      continue;
    if (feature->of_processor())
      return {PluginReason::kMissingFeature,
              fmt::format("it needs '{}', which this machine does not have", text)};
    return {PluginReason::kMissingFeature,
            fmt::format("it needs '{}', which has not been stated; state it by "
                        "RuntimeSettings::device_features, or by --device-feature {} of the "
                        "command",
                        text, text.substr(0, text.find("..")))};
  }
  return {};
}

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
    {R::kTooLarge, "too_large", "The file is larger than plugins may be.", kInvalid},
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
    {R::kBusy, "busy",
     "Another thread is loading the plugin or one that it builds on, and this thread is loading "
     "one itself.",
     Code::kWouldDeadlock},
    {R::kBadLockFile, "bad_lock_file",
     "A lock file cannot be read, or others can write it, so that no plugin may be loaded.",
     kInvalid},
    {R::kNotInLockFile, "not_in_lock_file",
     "There is a lock file and it does not list this plugin in this version.", kInvalid},
    {R::kDigestDiffers, "digest_differs", "The file is not the one that the lock file lists.",
     kInvalid},
    {R::kNotVerified, "not_verified",
     "Only verified plugins may be loaded, and this one is not verified.", kInvalid},
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

Refusal::Refusal(PluginReason r, const Status& why) : reason(r), detail(why.message()) {
  for (const std::string& note : why.notes()) detail += "; " + note;
}

Status to_status(const std::string& path, const Refusal& refusal) {
  const auto& info = kReasons[static_cast<size_t>(refusal.reason)];
  return Status(info.code, fmt::format("plugin {} is refused: {}: {}", path, info.name,
                                       base::printable(refusal.detail)));
}

}  // namespace yard::plugin

namespace yard {

const char* to_string(PluginReason reason) noexcept {
  const auto i = static_cast<size_t>(reason);
  return i < plugin::reasons().size() ? plugin::reasons()[i].name : "unknown";
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
