// SPDX-License-Identifier: Apache-2.0
// yard doctor: shows the machine, the build, the backends, and their problems.
#include <fmt/format.h>
#include <yard/c.h>
#include <yard/log.h>
#include <yard/runtime.h>
#include <yard/version.h>

#include <algorithm>

#include "arguments.h"
#include "commands.h"
#include "host_access.h"
#include "json.h"
#include "machine.h"
#include "output.h"
#include "plugin/show.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct Trouble {
  bool broken = false;  // if false, only a note
  std::string what, repair;
};

// The build defines YARD_OPTIONAL_PARTS, such as "simd=1 onednn=0".
std::vector<std::pair<std::string, bool>> optional_parts() {
  std::vector<std::pair<std::string, bool>> parts;
  for (const std::string& p : CLI::detail::split(YARD_OPTIONAL_PARTS, ' '))
    if (const size_t eq = p.find('='); eq != std::string::npos)
      parts.emplace_back(p.substr(0, eq), p.substr(eq + 1) == "1");
  return parts;
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

std::string repair_of(const PluginInfo& p) {
  switch (p.reason) {
    case PluginReason::kWritableByOthers: return fmt::format("chmod go-w {}", p.path);
    case PluginReason::kNotVerified: return fmt::format("yard verify {}", p.path);
    case PluginReason::kNotInLockFile:
    case PluginReason::kDigestDiffers:
      return fmt::format("if it is the one you want: yard plugin lock {}",
                         p.path.substr(0, std::max<size_t>(p.path.rfind('/'), 1)));
    default: return fmt::format("yard plugin inspect {} shows what it was made for", p.path);
  }
}

struct Findings {
  Machine machine = look_at_machine();
  std::vector<Feature> features = look_at_features();
  int threads = host_threads();
  Listing listing;
  std::vector<PluginInfo> plugins;  // in the states found and refused
  std::vector<Variable> environment = look_at_environment(Runtime::shared());
  size_t kernels = 0, available = 0;
  std::vector<Trouble> problems;

  // If `open` is true, opens the plugins, so that their backends are listed.
  explicit Findings(bool open) {
    look_at_plugins(open);
    for (const OpInfo& op : listing.ops) look_at(op);
    look_at_library();
    for (const BackendInfo& b : listing.backends)
      if (!b.available)
        note(fmt::format("backend {} is not available: {}", b.name, why(b)),
             "its kernels are skipped; yard list shows which");
    for (const Variable& v : environment)
      for (const std::string& p : v.problems)
        note(fmt::format("{}={}: {}", v.name, printable(v.value, 80), p), "");
    look_at_rules();
  }
  void broken(std::string what, std::string repair) {
    problems.push_back({true, std::move(what), std::move(repair)});
  }
  void note(std::string what, std::string repair) {
    problems.push_back({false, std::move(what), std::move(repair)});
  }
  static std::string why(const BackendInfo& b) { return b.detail.empty() ? b.reason : b.detail; }
  bool ok() const { return std::ranges::none_of(problems, &Trouble::broken); }

 private:
  void look_at(const OpInfo& op) {
    size_t able = 0;
    for (const KernelInfo& k : op.kernels) able += k.available ? 1 : 0;
    kernels += op.kernels.size(), available += able;
    if (able == 0)
      broken(fmt::format("op {} has no kernel that is available", op.name),
             fmt::format("yard list {} shows why each is not", op.name));
  }
  void look_at_plugins(bool open) {
    Plugins here = Runtime::shared().plugins();
    if (open)
      for (const PluginInfo& p : here.list())
        if (p.state == PluginState::kFound) here.load(p.path).ignore();  // list() shows failures
    plugins = here.list();
    // Only loading checks the digest; would_load() checks it without loading.
    for (PluginInfo& p : plugins) {
      if (p.state == PluginState::kFound) p = here.would_load(p.path);
      if (p.state == PluginState::kRefused)
        broken(fmt::format("plugin {} is refused: {}", p.path, why_refused(p)), repair_of(p));
    }
    listing = Runtime::shared().list();
  }
  // Adds the problems of the rule file. Problems of variables are listed already.
  void look_at_rules() {
    const auto is_variable = [&](const Runtime::Problem& p) {
      return std::ranges::any_of(environment, [&](const Variable& v) { return v.name == p.where; });
    };
    for (const Runtime::Problem& p : Runtime::shared().problems())
      if (!is_variable(p))
        problems.push_back(
            {p.error,
             p.message.starts_with(p.where) ? p.message : fmt::format("{}: {}", p.where, p.message),
             p.error ? "the rules are not in force; yard config check shows all problems" : ""});
  }
  void look_at_library() {
    if (std::string_view(yard_version()) != YARD_VERSION)
      broken(fmt::format("the command is of version {}, the library it found of {}", YARD_VERSION,
                         yard_version()),
             "install both from one build, or check LD_LIBRARY_PATH");
    if (!machine.membarrier)
      note("the kernel refuses membarrier: every call pays for a fence",
           "allow the system call membarrier in the sandbox or container");
    if (listing.ops.empty()) broken("there are no ops", "build with the backends of backends/");
  }
};

Json findings_json(const Findings& f) {
  Json features = Json::array(), backends = Json::array(), plugins = Json::array(),
       variables = Json::array(), problems = Json::array(), parts = Json::object();
  for (const Feature& x : f.features)
    features.push_back({{"name", x.name}, {"usable", x.usable}, {"listed", x.listed}});
  for (const BackendInfo& b : f.listing.backends)
    backends.push_back({{"name", b.name},
                        {"vendor", text_or_null(b.vendor)},
                        {"available", b.available},
                        {"reason", text_or_null(b.reason)},
                        {"detail", text_or_null(b.detail)},
                        {"kernels", b.kernels}});
  for (const PluginInfo& p : f.plugins) plugins.push_back(to_json(p));
  for (const Variable& v : f.environment)
    variables.push_back({{"name", v.name}, {"value", v.value}, {"problems", v.problems}});
  for (const Trouble& p : f.problems)
    problems.push_back(
        {{"broken", p.broken}, {"what", p.what}, {"repair", text_or_null(p.repair)}});
  for (const auto& [name, built] : optional_parts()) parts[name] = built;
  const Machine& m = f.machine;
  return {{"ok", f.ok()},
          {"version", yard_version()},
          {"machine",
           {{"architecture", m.architecture},
            {"cpu", text_or_null(m.cpu)},
            {"system", m.system},
            {"cores", m.cores},
            {"cores_allowed", m.cores_allowed},
            {"threads", f.threads},
            {"memory_bytes", m.memory},
            {"memory_allowed_bytes", m.memory_allowed},
            {"membarrier", m.membarrier}}},
          {"features", std::move(features)},
          {"build",
           {{"compiler", compiler()},
            {"type", YARD_BUILD_TYPE},
            {"sanitizer", text_or_null(YARD_BUILD_SANITIZER)},
            {"parts", std::move(parts)}}},
          {"backends", std::move(backends)},
          {"plugins", std::move(plugins)},
          {"ops", f.listing.ops.size()},
          {"kernels", f.kernels},
          {"kernels_available", f.available},
          {"environment", std::move(variables)},
          {"problems", std::move(problems)}};
}

std::string gib(uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30));
}

void head(const char* title) { print_out("{}\n", paint(Paint::kBold, title)); }
void line(std::string_view what, const std::string& text) {
  print_out("  {:<13} {}\n", what, text);
}

// Breaks the list into lines of about 70 columns, indented for line().
std::string wrapped(const std::vector<std::string>& words) {
  std::string text, current;
  for (const std::string& w : words) {
    if (!current.empty() && current.size() + 1 + w.size() > 70)
      text += current + "\n" + std::string(16, ' '), current.clear();
    current += (current.empty() ? "" : " ") + w;
  }
  return words.empty() ? "none" : text + current;
}

void print_machine(const Findings& f) {
  const Machine& m = f.machine;
  head("Machine");
  line("processor", fmt::format("{}, {}", m.architecture, m.cpu.empty() ? "unknown model" : m.cpu));
  line("system", m.system);
  line("cores", m.cores_allowed < m.cores ? fmt::format("{}, of which this process may use {:g}",
                                                        m.cores, m.cores_allowed)
                                          : std::to_string(m.cores));
  line("memory", m.memory_allowed < m.memory
                     ? gib(m.memory) + ", of which this process may use " + gib(m.memory_allowed)
                     : gib(m.memory));
  std::vector<std::string> usable, missing, refused;
  for (const Feature& x : f.features)
    (x.usable ? usable : x.listed ? refused : missing).push_back(x.name);
  line("features", wrapped(usable));
  line("not here", paint(Paint::kDim, wrapped(missing)));
  if (!refused.empty()) line("not allowed", paint(Paint::kWarning, wrapped(refused)));
}

void print_build(const Findings& f) {
  head("\nBuild");
  line("version", yard_version());
  line("compiler",
       compiler() + ", " + YARD_BUILD_TYPE +
           (*YARD_BUILD_SANITIZER ? fmt::format(", sanitizer {}", YARD_BUILD_SANITIZER) : ""));
  std::vector<std::string> in, out;
  for (const auto& [name, built] : optional_parts()) (built ? in : out).push_back(name);
  line("built in", wrapped(in));
  if (!out.empty()) line("left out", paint(Paint::kDim, wrapped(out)));
  line("guard", f.machine.membarrier ? "membarrier: calls need no fence" : "calls fence");
  line("threads", fmt::format("{} for kernels", f.threads));
}

void print_plugins(const Findings& f) {
  head("\nPlugins");
  if (f.plugins.empty()) return print_out("  none found\n");
  Table table("name|version|state|file|");
  bool unopened = false;
  for (const PluginInfo& p : f.plugins) {
    unopened |= p.state == PluginState::kFound;
    table.add({{p.name.empty() ? "-" : p.name},
               {p.version.empty() ? "-" : p.version},
               {to_string(p.state), p.state == PluginState::kRefused ? Paint::kBad : Paint::kGood},
               {p.path},
               {p.state == PluginState::kRefused ? "see below" : "", Paint::kWarning}});
  }
  print_out("{}", table.text(2));
  if (unopened)
    print_out("\n  found, not opened: their backends are not known yet; --open opens them\n");
}

void print_findings(const Findings& f) {
  print_machine(f);
  print_build(f);
  head("\nBackends");
  Table table("name|vendor|kernels>|available|");
  for (const BackendInfo& b : f.listing.backends)
    table.add({{b.name},
               {b.vendor.empty() ? "-" : b.vendor},
               {std::to_string(b.kernels)},
               b.available ? Cell{"yes", Paint::kGood} : Cell{"no", Paint::kBad},
               {b.available ? b.summary : Findings::why(b), Paint::kDim}});
  print_out("{}", table.text(2));
  print_out("\n  {} ops, {} kernels, {} of them available\n", f.listing.ops.size(), f.kernels,
            f.available);
  print_plugins(f);
  if (!f.environment.empty()) {
    head("\nEnvironment");
    Table variables("variable|value|");
    for (const Variable& v : f.environment)
      variables.add({{v.name},
                     {printable(v.value, 160)},
                     {v.problems.empty() ? "" : "see below", Paint::kWarning}});
    print_out("{}", variables.text(2));
  }
  head("\nProblems");
  if (f.problems.empty()) print_out("  {}\n", paint(Paint::kGood, "none"));
  for (const Trouble& p : f.problems) {
    print_out("  {} {}\n",
              paint(p.broken ? Paint::kBad : Paint::kWarning, p.broken ? "broken" : "note"),
              printable(p.what));
    if (!p.repair.empty()) print_out("         {}\n", p.repair);
  }
}

}  // namespace

void add_doctor(CLI::App& app, Action& action) {
  struct DoctorQuestion {
    bool open = false, json = false;
  };
  const auto run = [](const DoctorQuestion& q) {  // The list of problems replaces the log.
    for (const char* logger : {"plugin", "policy"}) set_log_level(logger, LogLevel::kOff).ignore();
    const Findings f(q.open);
    q.json ? print_json(findings_json(f)) : print_findings(f);
    return f.ok() ? kOk : kFailed;
  };
  const auto [c, q] = add_command<DoctorQuestion>(
      app, action, "doctor", "Show the machine, the build, the backends, the plugins, and problems",
      run);
  c->add_flag("--open", q->open, "Open the plugins, to see whether their backends are available");
}

}  // namespace yard::tool
