// SPDX-License-Identifier: Apache-2.0
#include "plugin/manifest.h"

#include <set>

#include "base/text.h"

namespace yard::plugin {
namespace {

constexpr size_t kLargestManifest = 64 * 1024, kMostWords = 4096, kLongestWord = 128;

// Accepts versions and tags: visible ASCII characters without blanks.
bool is_visible_word(std::string_view text) {
  return !text.empty() && text.size() <= kLongestWord &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}

bool is_name(std::string_view text) {
  return text.size() <= kLongestWord && base::is_bare_word(text);
}

Refusal invalid(std::string_view key, std::string_view value) {
  return {Reason::kBadManifest, "invalid {}: {}", key, base::excerpt(value)};
}

Refusal read_list(std::string_view key, std::string_view value, std::vector<std::string>& to) {
  for (std::string_view word : base::split(value, ' ')) {
    if (word.empty()) continue;
    if (to.size() == kMostWords)
      return {Reason::kBadManifest, "{} has more than {} entries", key, kMostWords};
    const bool fits = key == "features" ? registry::parse_feature(word).ok()
                                        : is_name(word) && (key != "devices" || parse_device(word));
    if (!fits || word.size() > kLongestWord) return invalid(key, word);
    if (!contains(to, word)) to.emplace_back(word);
  }
  return {};
}

// A key without a member is `abi`, which is a number.
struct ManifestKey {
  std::string_view name;
  std::string Manifest::*word;
  std::vector<std::string> Manifest::*list;
  bool required;
};
constexpr ManifestKey kKeys[] = {
    {"abi", nullptr, nullptr, true},
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
  const auto* const k = std::ranges::find(kKeys, key, &ManifestKey::name);
  if (k == std::end(kKeys)) return {};
  if (k->list != nullptr) return read_list(key, value, to.*k->list);
  bool fits = key == "name" ? is_name(value) : is_visible_word(value);
  if (k->word != nullptr) {
    to.*k->word = value;
  } else {
    const auto abi = base::number<uint32_t>(value);
    fits = abi.has_value(), to.abi = abi.value_or(0);
  }
  return fits ? Refusal() : invalid(key, value);
}

constexpr Code kInvalid = Code::kInvalidArgument, kUnsupported = Code::kUnsupported;

// In the order of PluginReason.
// clang-format off
constexpr RefusalReason kReasons[] = {
    {"none", Code::kOk}, {"not_found", Code::kNotFound}, {"unreadable", kInvalid},
    {"relative_path", kInvalid}, {"writable_by_others", kInvalid}, {"too_large", kInvalid},
    {"not_elf", kInvalid}, {"damaged", kInvalid}, {"other_machine", kUnsupported},
    {"not_a_library", kInvalid}, {"no_manifest", kInvalid}, {"bad_manifest", kInvalid},
    {"abi_too_new", kUnsupported}, {"abi_too_old", kUnsupported},
    {"missing_feature", kUnsupported}, {"other_sanitizer", kUnsupported},
    {"duplicate_name", Code::kConflict}, {"busy", Code::kWouldDeadlock},
    {"bad_lock_file", kInvalid}, {"not_in_lock_file", kInvalid}, {"digest_differs", kInvalid},
    {"not_verified", kInvalid}, {"cannot_open", kInvalid}, {"no_query", kInvalid},
    {"query_declined", kUnsupported}, {"query_threw", kInvalid}, {"bad_descriptor", kInvalid},
    {"manifest_differs", kInvalid}, {"conflict", Code::kConflict},
    {"start_failed", kUnsupported},
};
// clang-format on

}  // namespace

Refusal parse_manifest(std::string_view text, Manifest& to) {
  to = {};
  if (text.size() > kLargestManifest)
    return {Reason::kBadManifest, "it has {} bytes, more than {}", text.size(), kLargestManifest};
  std::set<std::string_view> seen;
  for (std::string_view line : base::split(text, '\n')) {
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    if (equals == line.npos || !base::is_bare_word(line.substr(0, equals)))
      return {Reason::kBadManifest, "invalid line: expected key=value, got {}",
              base::excerpt(line)};
    const std::string_view key = line.substr(0, equals);
    if (!seen.insert(key).second) return {Reason::kBadManifest, "duplicate key '{}'", key};
    if (seen.size() > 256) return {Reason::kBadManifest, "it has more than 256 keys"};
    YARD_RETURN_IF_REFUSED(read_field(key, line.substr(equals + 1), to));
  }
  for (const ManifestKey& k : kKeys)
    if (k.required && !seen.contains(k.name))
      return {Reason::kBadManifest, "missing key '{}'", k.name};
  if (to.devices.empty()) to.devices.emplace_back("cpu");
  return {};
}

Refusal check_manifest(const Manifest& m, const Process& process) {
  if (m.arch != process.arch)
    return {Reason::kOtherMachine, "it is for {}, this process is {}", m.arch, process.arch};
  if (m.abi > process.newest_abi)
    return {Reason::kAbiTooNew, "it was made for ABI {}, this library knows {}", m.abi,
            process.newest_abi};
  if (m.abi < process.oldest_abi)
    return {Reason::kAbiTooOld, "it was made for ABI {}, this library serves {} and newer", m.abi,
            process.oldest_abi};
  if (m.sanitizer != process.sanitizer)
    return {Reason::kOtherSanitizer, "it was built with sanitizer '{}', this process with '{}'",
            m.sanitizer, process.sanitizer};
  for (const std::string& text : m.features) {
    const auto feature = registry::parse_needed_feature(text);
    if (!feature.ok()) return {Reason::kMissingFeature, feature.status()};
    const Device d = feature->device;
    if (process.host != nullptr && process.host->has_feature(process.host->self, {d.type, d.index},
                                                             feature->name.c_str()) == 1)
      continue;
    return {Reason::kMissingFeature, "it needs '{}', which {}", text,
            feature->of_processor()
                ? "this machine does not have"
                : "has not been stated; state it by RuntimeSettings::device_features, or by "
                  "--device-feature " +
                      text.substr(0, text.find("..")) + " of the command"};
  }
  return {};
}

std::span<const RefusalReason> reasons() noexcept { return kReasons; }

Refusal::Refusal(PluginReason r, const Status& why)
    : reason(r), detail(base::printable(why.message())) {
  for (const std::string& note : why.notes()) detail += "; " + base::printable(note);
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
  constexpr const char* kNames[] = {"found",     "loaded",   "refused",
                                    "unloading", "unloaded", "pinned"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace yard
