// SPDX-License-Identifier: Apache-2.0
#include "registry/features.h"

#include <fmt/format.h>

#include <limits>

#include "base/cpu_features.h"
#include "base/text.h"

namespace yard::registry {
namespace {

std::optional<int64_t> level(std::string_view text) noexcept {
  const auto n = text.size() <= 9 ? base::number<int64_t>(text) : std::nullopt;
  return n && *n >= 0 ? n : std::nullopt;
}

Status invalid(std::string_view text, std::string_view expected) {
  return Status(Code::kInvalidArgument,
                fmt::format("invalid feature {}: expected {}", base::excerpt(text), expected));
}

}  // namespace

FeatureName FeatureName::read(std::string_view text) noexcept {
  const std::string_view least = text.substr(0, text.find(".."));
  const size_t at = least.rfind('_');
  if (at == least.npos || at == 0) return {text};
  const auto low = level(least.substr(at + 1));
  if (!low) return {text};
  const std::string_view name = text.substr(0, at);
  if (least.size() == text.size())
    return {name, *low, std::numeric_limits<int64_t>::max(), true, false};
  const auto high = level(text.substr(least.size() + 2));
  return high ? FeatureName{name, *low, *high, true, true} : FeatureName{text};
}

Result<Feature> parse_feature(std::string_view text) {
  Feature to;
  const size_t colon = text.rfind(':');
  const std::string_view name = colon == text.npos ? text : text.substr(colon + 1);
  if (colon != text.npos) {
    const std::string_view device = text.substr(0, colon);
    const auto found = parse_device(device);
    if (!found) return invalid(text, "DEVICE:NAME or DEVICE:INDEX:NAME, like cuda:sm_90");
    to.device = *found;
    if (device.find(':') == device.npos) to.device.index = Feature::kEvery;
  }
  const FeatureName read = FeatureName::read(name);
  const bool has_dots = name.find("..") != name.npos;
  if (!base::is_bare_word(name) || read.is_range != has_dots || read.high < read.low)
    return invalid(text,
                   "a name of letters, digits, '_', '.' or '-', like cuda:sm_90, or a range "
                   "of levels, like cuda:sm_80..89");
  to.name = name, to.text = text;
  return to;
}

Result<Feature> parse_needed_feature(std::string_view text) {
  auto to = parse_feature(text);
  if (!to.ok() || !to->of_processor() || base::has_cpu_feature(to->name) >= 0) return to;
  return invalid(text,
                 "a feature of the processor that is known, or one of a device, like "
                 "cuda:sm_90" +
                     base::did_you_mean(to->name, base::known_cpu_features()));
}

}  // namespace yard::registry
