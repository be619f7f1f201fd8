// SPDX-License-Identifier: Apache-2.0
// Baked ops as a rule file and as a C++ header.
#include <fmt/format.h>
#include <yard/config.h>

#include <algorithm>

#include "bake.h"

namespace yard::tool {
namespace {

// Calls of an op that comments list; further ones are only counted.
constexpr size_t kMostShown = 8;

std::string title(const Baked& b) {
  return fmt::format("Written by yard bake from {}: {} call{} of {} op{}.", b.source, b.calls,
                     b.calls == 1 ? "" : "s", b.ops.size(), b.ops.size() == 1 ? "" : "s");
}

// The lines of a comment, each after `mark`.
std::string comment(const BakedOp& op, const std::string& mark) {
  std::string to =
      fmt::format("{}{}: {} served {} of {} calls", mark, op.op, op.kernel, op.served, op.calls);
  for (size_t i = 1; i < op.kernels.size(); ++i)
    to += fmt::format(", {} {}", op.kernels[i].first, op.kernels[i].second);
  to += '\n';
  for (size_t i = 0; i < std::min(op.classes.size(), kMostShown); ++i)
    to += fmt::format("{}  {} {}\n", mark, op.classes[i].count, op.classes[i].call);
  if (op.classes.size() > kMostShown)
    to += fmt::format("{}  and {} other calls\n", mark, op.classes.size() - kMostShown);
  return to;
}

bool is_word(std::string_view s) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !s.empty() && letter(s[0]) && std::all_of(s.begin(), s.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9');
  });
}

}  // namespace

bool is_namespace(const std::string& text) {
  for (std::string_view rest = text;;) {
    const size_t at = rest.find("::");
    if (!is_word(rest.substr(0, at))) return false;
    if (at == std::string_view::npos) return true;
    rest.remove_prefix(at + 2);
  }
}

std::string bake_yaml(const Baked& baked) {
  Config config;
  std::string to = "# " + title(baked) + "\n";
  for (const BakedOp& op : baked.ops) {
    to += comment(op, "# ");
    // A plugin is opened with the first call, after the file has been read.
    config.static_kernel_map[op.op] = {op.kernel, op.from_plugin, {}};
  }
  return to + to_yaml(config);
}

std::string bake_header(const Baked& baked, const std::string& name_space) {
  std::string rows;
  for (const BakedOp& op : baked.ops)
    rows += comment(op, "    // ") + fmt::format("    {{\"{}\", \"{}\"}},\n", op.op, op.kernel);
  return fmt::format(
      R"(// {0} Generate it again instead of editing it.
#pragma once

#include <yard/runtime.h>

#include <string_view>

namespace {1} {{

inline constexpr yard::MappedKernel kKernels[] = {{
{2}}};

// The kernel that an op was baked with; empty: none.
constexpr std::string_view kernel_of(std::string_view op) noexcept {{
  return yard::mapped_kernel(kKernels, op);
}}

// Serves these ops with these kernels from now on. An error, and no change, if one does not exist.
inline yard::Status install(yard::Runtime& runtime) {{
  return runtime.set_static_map(yard::StaticMap(kKernels));
}}

}}  // namespace {1}
)",
      title(baked), name_space, rows);
}

}  // namespace yard::tool
