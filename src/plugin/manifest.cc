// SPDX-License-Identifier: Apache-2.0
#include "plugin/manifest.h"

#include <fmt/format.h>
#include <yard/tensor.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "base/text.h"

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
    // A feature may name its device: "cuda:sm_90".
    const size_t colon = key == "features" ? word.find(':') : std::string_view::npos;
    if (!is_name(colon == std::string_view::npos ? word : word.substr(colon + 1)) ||
        (colon != std::string_view::npos && !parse_device(word.substr(0, colon))) ||
        (key == "devices" && !parse_device(word)))
      return bad(fmt::format("invalid {1}: {0}", base::excerpt(word), key));
    if (std::find(to.begin(), to.end(), word) == to.end()) to.emplace_back(word);
  }
  return {};
}

Refusal read_field(std::string_view key, std::string_view value, Manifest& to) {
  const struct {
    std::string_view key;
    std::string* word;
  } words[] = {{"arch", &to.arch},
               {"sanitizer", &to.sanitizer},
               {"version", &to.version},
               {"build", &to.build}};
  const struct {
    std::string_view key;
    std::vector<std::string>* list;
  } lists[] = {{"devices", &to.devices},
               {"features", &to.features},
               {"ops", &to.ops},
               {"groups", &to.groups},
               {"hooks", &to.hooks}};
  const auto wrong = [&] {
    return bad(fmt::format("invalid {1}: {0}", base::excerpt(value), key));
  };
  if (key == "abi") {
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, to.abi);
    return error == std::errc() && stop == end && !value.empty() ? Refusal() : wrong();
  }
  if (key == "name") {
    to.name = value;
    return is_name(value) ? Refusal() : wrong();
  }
  for (const auto& w : words)
    if (w.key == key) {
      *w.word = value;
      return is_visible_word(value) ? Refusal() : wrong();
    }
  for (const auto& l : lists)
    if (l.key == key) return read_list(key, value, *l.list);
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
  for (std::string_view needed : {"abi", "arch", "sanitizer", "name", "version"})
    if (seen.count(needed) == 0) return bad(fmt::format("missing key '{}'", needed));
  if (to.devices.empty()) to.devices.emplace_back("cpu");
  return {};
}

std::string to_text(const Manifest& m) {
  std::string text = fmt::format("abi={}\narch={}\nsanitizer={}\nname={}\nversion={}\n", m.abi,
                                 m.arch, m.sanitizer, m.name, m.version);
  if (!m.build.empty()) text += "build=" + m.build + "\n";
  const auto list = [&](const char* key, const std::vector<std::string>& words) {
    if (words.empty()) return;
    text += key;
    for (size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "=" : " ") + words[i];
    text += "\n";
  };
  list("devices", m.devices), list("features", m.features), list("ops", m.ops);
  list("groups", m.groups), list("hooks", m.hooks);
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
  for (const std::string& feature : m.features) {
    const size_t colon = feature.find(':');
    const bool names_device = colon != std::string::npos;
    const auto device = names_device ? parse_device(feature.substr(0, colon)) : Device{1, 0};
    const std::string name = names_device ? feature.substr(colon + 1) : feature;
    const int32_t has = process.host != nullptr && device
                            ? process.host->has_feature(process.host->self,
                                                        {device->type, device->index}, name.c_str())
                            : 0;
    if (has == 1) continue;
    if (device && device->type != 1)
      return {PluginReason::kMissingFeature,
              fmt::format("it needs '{}', which has not been stated; state it by "
                          "RuntimeSettings::device_features, or by --device-feature {} of the "
                          "command",
                          feature, feature)};
    return {PluginReason::kMissingFeature,
            fmt::format("it needs '{}', which {}", feature,
                        has == 0 ? "this machine does not have"
                                 : "is not a feature that this library knows")};
  }
  return {};
}

}  // namespace yard::plugin
