// SPDX-License-Identifier: Apache-2.0
// Device names: "cpu", "cuda:1". Index 0 is not written.
#include <yard/tensor.h>

#include <charconv>
#include <utility>

namespace yard {
namespace {

// DLPack's numbers.
constexpr std::pair<std::string_view, int32_t> kTypes[] = {
    {"cpu", 1},     {"cuda", 2},    {"cuda_host", 3},  {"opencl", 4}, {"vulkan", 7},
    {"metal", 8},   {"rocm", 10},   {"rocm_host", 11}, {"ext", 12},   {"cuda_managed", 13},
    {"oneapi", 14}, {"webgpu", 15}, {"hexagon", 16},
};
constexpr std::string_view kOther = "device";

// A whole number of at most 9 digits, nothing else.
std::optional<int32_t> small_number(std::string_view text) noexcept {
  int32_t value = 0;
  const char* end = text.data() + text.size();
  const auto [ptr, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || text.size() > 9 || text[0] == '-' || error != std::errc() || ptr != end)
    return std::nullopt;
  return value;
}

}  // namespace

std::string to_string(Device d) {
  // A type without a name still has a text that reads back.
  std::string text = std::string(kOther) + std::to_string(d.type);
  for (const auto& [name, type] : kTypes)
    if (type == d.type) text = name;
  if (d.index != 0) text += ":" + std::to_string(d.index);
  return text;
}

std::optional<Device> parse_device(std::string_view text) noexcept {
  Device d;
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    const auto index = small_number(text.substr(colon + 1));
    if (!index) return std::nullopt;
    d.index = *index;
  }
  const std::string_view name = text.substr(0, colon);
  for (const auto& [known, type] : kTypes) {
    if (known == name) {
      d.type = type;
      return d;
    }
  }
  if (name.substr(0, kOther.size()) != kOther) return std::nullopt;
  const auto type = small_number(name.substr(kOther.size()));
  if (!type) return std::nullopt;
  d.type = *type;
  return d;
}

}  // namespace yard
