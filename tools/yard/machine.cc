// SPDX-License-Identifier: Apache-2.0
// Reads /proc, /sys, the C library and the environment.
#include "machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "host_access.h"

namespace yard::tool {
namespace {

std::string file_text(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Returns the value of the first line "key : value", or an empty text.
std::string field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !line.starts_with(key)) continue;
    if (line.substr(key.size(), colon - key.size()).find_first_not_of(" \t") !=
        std::string_view::npos)
      continue;
    const size_t from = line.find_first_not_of(" \t", colon + 1);
    return from == std::string_view::npos ? "" : std::string(line.substr(from));
  }
  return "";
}

// Numbers of Arm cores that are used in servers and boards.
struct Part {
  unsigned implementer, part;
  const char* name;
};
constexpr Part kParts[] = {
    {0x41, 0xd03, "Cortex-A53"},  {0x41, 0xd05, "Cortex-A55"},  {0x41, 0xd07, "Cortex-A57"},
    {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd0b, "Cortex-A76"},  {0x41, 0xd0c, "Neoverse-N1"},
    {0x41, 0xd40, "Neoverse-V1"}, {0x41, 0xd49, "Neoverse-N2"}, {0x41, 0xd4f, "Neoverse-V2"},
    {0x41, 0xd83, "Neoverse-V3"}, {0x41, 0xd8e, "Neoverse-N3"}, {0x46, 0x001, "A64FX"},
    {0x48, 0xd01, "Kunpeng-920"}, {0xc0, 0xac3, "Ampere-1"},    {0xc0, 0xac4, "Ampere-1A"},
    {0x61, 0x022, "Apple M1"},    {0x61, 0x032, "Apple M2"},
};

// Returns a name such as "Neoverse-N1", the numbers of an unknown part, or an empty text.
std::string cpu_model(std::string_view cpuinfo) {
  if (std::string name = field(cpuinfo, "model name"); !name.empty()) return name;
  const std::string implementer = field(cpuinfo, "CPU implementer"),
                    part = field(cpuinfo, "CPU part");
  if (implementer.empty() || part.empty()) return "";
  const auto i = static_cast<unsigned>(std::strtoul(implementer.c_str(), nullptr, 0));
  const auto p = static_cast<unsigned>(std::strtoul(part.c_str(), nullptr, 0));
  for (const Part& known : kParts)
    if (known.implementer == i && known.part == p) return known.name;
  return fmt::format("implementer {}, part {}", implementer, part);
}

// Returns the memory limit of control group version 2, or nullopt without a limit.
std::optional<uint64_t> group_memory() {
  const std::string text = file_text("/sys/fs/cgroup/memory.max");
  if (text.empty() || text.starts_with("max")) return std::nullopt;
  return std::strtoull(text.c_str(), nullptr, 10);
}
std::optional<double> group_cores() {
  std::istringstream text(file_text("/sys/fs/cgroup/cpu.max"));
  std::string quota;
  double period = 0;
  if (!(text >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  return std::strtod(quota.c_str(), nullptr) / period;
}

bool offers_membarrier() {
  constexpr long kPrivateExpedited = 1 << 3;
  const long commands = syscall(SYS_membarrier, 0, 0, 0);
  return commands > 0 && (commands & kPrivateExpedited) != 0;
}

}  // namespace

Machine look_at_machine() {
  Machine m;
  utsname names{};
  if (uname(&names) == 0) {
    m.architecture = names.machine;
    m.system = fmt::format("{} {}", names.sysname, names.release);
  }
  m.cpu = cpu_model(file_text("/proc/cpuinfo"));
  m.cores = static_cast<int>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
  cpu_set_t allowed;
  m.cores_allowed =
      sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : m.cores;
  if (const auto limit = group_cores()) m.cores_allowed = std::min(m.cores_allowed, *limit);
  m.memory =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  m.memory_allowed = std::min(m.memory, group_memory().value_or(m.memory));
  m.membarrier = offers_membarrier();
  return m;
}

std::vector<Feature> look_at_features() {
  // Switchyard's names, followed by the name in /proc/cpuinfo where the two differ.
#if defined(__aarch64__)
  const char* const names =
      "neon=asimd fphp asimdhp dotprod=asimddp lse=atomics crypto=aes bf16 i8mm sve sve2 svebf16 "
      "svei8mm sme";
  const std::string listed = field(file_text("/proc/cpuinfo"), "Features");
#else
  const char* const names =
      "sse2 sse3=pni ssse3 sse4.1=sse4_1 sse4.2=sse4_2 avx avx2 fma f16c bmi1 bmi2 avx512f "
      "avx512bw avx512cd avx512dq avx512vl avx512vnni=avx512_vnni avx512bf16=avx512_bf16 "
      "avx512fp16=avx512_fp16 avxvnni=avx_vnni amx_tile amx_int8 amx_bf16";
  const std::string listed = field(file_text("/proc/cpuinfo"), "flags");
#endif
  std::istringstream words(listed), entries(names);
  const std::set<std::string> shown{std::istream_iterator<std::string>(words), {}};
  std::vector<Feature> features;
  for (std::string entry; entries >> entry;) {
    const std::string name = entry.substr(0, entry.find('='));
    if (const int has = host_feature(name.c_str()); has >= 0)
      features.push_back({name, has == 1, shown.contains(entry.substr(entry.find('=') + 1))});
  }
  return features;
}

std::vector<Variable> look_at_environment(const Runtime& runtime) {
  const std::vector<Runtime::Problem> problems = runtime.problems();
  std::vector<Variable> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("YARD_") || equals == std::string_view::npos) continue;
    Variable v{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), {}};
    for (const Runtime::Problem& p : problems)
      if (p.where == v.name) v.problems.push_back(p.message);
    found.push_back(std::move(v));
  }
  std::ranges::sort(found, [](const Variable& a, const Variable& b) { return a.name < b.name; });
  return found;
}

}  // namespace yard::tool
