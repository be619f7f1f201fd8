// SPDX-License-Identifier: Apache-2.0
// yard plugin new: writes a plugin project that builds and passes its tests unchanged.
#include <fmt/format.h>
#include <yard/runtime.h>
#include <yard/trace.h>
#include <yard/version.h>

#include <filesystem>
#include <regex>

#include "arguments.h"
#include "commands.h"
#include "json.h"
#include "output.h"
#include "plugin/show.h"
#include "schema.h"
#include "templates.h"
#include "terminal.h"

namespace yard::tool {
namespace {

namespace fs = std::filesystem;

struct ProjectQuestion {
  std::string name, directory, op, for_op;
  bool c = false, json = false;
};

constexpr size_t kLongestName = 64;
// Returns an error message, or an empty text. The name is used for a file, a target and a backend.
std::string wrong_name(const std::string& name) {
  static const std::regex kFits("[a-z][a-z0-9_]*");
  if (!std::regex_match(name, kFits))
    return fmt::format("'{}' cannot be the name of a plugin: a letter a-z, then a-z, 0-9 and _",
                       name);
  if (name.size() > kLongestName)
    return fmt::format("the name has {} characters; expected at most {}", name.size(),
                       kLongestName);
  static const std::regex kTargets(  // targets that CMake defines
      "all|clean|depend|edit_cache|help|install|list_install_components|package|package_source|"
      "rebuild_cache|test");
  if (std::regex_match(name, kTargets))
    return fmt::format("'{}' cannot be the name of a plugin: a build has a target of that name",
                       name);
  for (const BackendInfo& b : Runtime::shared().list().backends)
    if (b.name == name)
      return fmt::format("a backend '{}' already exists; a plugin adds a backend of its own name",
                         name);
  return {};
}

// Returns an error message, or an empty text. The library checks the form of the name.
std::string wrong_op(const std::string& op) {
  if (Runtime::shared().list().find_op(op) != nullptr)
    return fmt::format(
        "op '{}' already exists; choose another name, or --for-op {} for a kernel of that op", op,
        op);
  RuntimeSettings empty;
  empty.builtin_backends = empty.environment = empty.plugins.installed = false;
  Runtime runtime(empty);
  const std::string schema = op + "(out!: f32[d], x: f32[d])";
  yard_op_t d{};
  d.size = sizeof d, d.schema = schema.c_str();
  Changes changes;
  changes.add_op(d);
  static const std::regex kFits("[a-z][a-z0-9_]*(\\.[a-z0-9_]+)*");
  if (std::regex_match(op, kFits) && runtime.apply(std::move(changes)).ok()) return {};
  return fmt::format(
      "'{}' cannot be the name of an op: a letter a-z, then a-z, 0-9 and _, parts joined by dots",
      op);
}

// Returns the schema of an existing op. Opens plugins that announce the op. An error names similar
// ops.
Result<std::string> schema_of(const std::string& op) {
  Runtime& runtime = Runtime::shared();
  const std::vector<Announced> waiting = announced(runtime, &PluginInfo::ops);
  if (runtime.list().find_op(op) == nullptr)
    for (const Announced& a : waiting)
      if (a.name == op) YARD_RETURN_IF_ERROR(runtime.plugins().load(a.path));
  const Listing listing = runtime.list();
  if (const OpInfo* found = listing.find_op(op)) return found->schema;
  std::vector<std::string> names;
  for (const OpInfo& o : listing.ops) names.push_back(o.name);
  for (const Announced& a : waiting) names.push_back(a.name);
  return Status(Code::kUnknownOp,
                fmt::format("--for-op: op '{}' is not known{}", op, did_you_mean(op, names)));
}

// Returns an error message, or an empty text.
std::string wrong_directory(const fs::path& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (!fs::exists(status))
    return error && status.type() == fs::file_type::none
               ? fmt::format("cannot look at '{}': {}", directory.string(), error.message())
               : "";
  if (!fs::is_directory(status))
    return fmt::format("'{}' exists and is not a directory", directory.string());
  const bool empty = fs::is_empty(directory, error);
  if (error) return fmt::format("cannot read '{}': {}", directory.string(), error.message());
  return empty ? ""
               : fmt::format("'{}' is not empty; choose another directory with --dir",
                             directory.string());
}

// Returns the source of a kernel function that has the op's parameters and declines every call.
std::string kernel_text(const std::string& schema, bool c) {
  static constexpr const char* kInC[] = {
      "const yard_tensor_t* {0} = args[{1}].tag == YARD_TAG_TENSOR ? args[{1}].u.tensor : NULL;",
      "const yard_tensor_t* const* {0} = args[{1}].u.list; /* args[{1}].count of them */",
      "const int64_t {0} = args[{1}].u.i;",
      "const double {0} = args[{1}].u.f;",
      "const int {0} = args[{1}].u.i != 0;",
      "const char* {0} = args[{1}].u.string; /* args[{1}].count characters */",
      "const int64_t {0} = args[{1}].u.i; /* the index of a word of the enum */"};
  static constexpr const char* kInCpp[] = {"Tensor", "TensorList",       "int64_t", "double",
                                           "bool",   "std::string_view", "int64_t"};
  std::string declared, unused, signature;
  const std::vector<SchemaParameter> parameters = parameters_of(schema);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const SchemaParameter& p = parameters[i];
    declared += fmt::format(fmt::runtime("  " + std::string(kInC[p.type]) + "\n"), p.name, i);
    unused += fmt::format(", (void){}", p.name);
    signature += fmt::format(", {} {}", kInCpp[p.type], p.name);
  }
  if (!c)
    return fmt::format(
        "int32_t run(Call call{}) {{\n  return call.fail(YARD_DECLINED, \"{}\");\n}}\n", signature,
        "not written yet");
  return fmt::format(
      "static int32_t run(yard_call_t* call, const yard_value_t* args, uint32_t count) {{\n"
      "{}  (void)count{};\n"
      "  return call->host->fail(call->host->self, call, YARD_DECLINED, \"%s\", \"{}\");\n}}\n",
      declared, unused, "not written yet");
}

// Returns the name and contents of each file. `schema` is the schema of the op that gets a kernel.
std::vector<std::pair<std::string, std::string>> project(const ProjectQuestion& q,
                                                         const std::string& schema) {
  const std::string suffix = q.c ? "c" : "cc", version = YARD_VERSION;
  const bool existing = !q.for_op.empty();
  const Words words = {{"NAME", q.name},
                       {"OP", q.op},
                       {"SUFFIX", suffix},
                       {"LANGUAGE", q.c ? "C" : "CXX"},
                       {"YARD_VERSION", version.substr(0, version.rfind('.'))},
                       {"SCHEMA", schema},
                       {"RUN", existing ? kernel_text(schema, q.c) : ""}};
  return {{"CMakeLists.txt", fill_in("CMakeLists.txt", words)},
          {q.name + "." + suffix, fill_in((existing ? "kernel." : "plugin.") + suffix, words)},
          {"README.md", fill_in(existing ? "kernel.md" : "README.md", words)},
          {".gitignore", fill_in("gitignore", words)}};
}

// Writes all of the files or none of them. Returns an error message, or an empty text.
std::string write_project(const fs::path& directory,
                          const std::vector<std::pair<std::string, std::string>>& files) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return fmt::format("cannot make '{}': {}", directory.string(), error.message());
  for (size_t i = 0; i < files.size(); ++i) {
    const fs::path path = directory / files[i].first;
    const Status written = write_file(path.string(), files[i].second);
    if (written.ok()) continue;
    for (size_t k = 0; k < i; ++k) fs::remove(directory / files[k].first, error);
    return std::string(written.message());
  }
  return {};
}

int make_project(ProjectQuestion q) {
  if (q.op.empty()) q.op = q.for_op.empty() ? q.name : q.for_op;
  const fs::path directory = q.directory.empty() ? fs::path(q.name) : fs::path(q.directory);
  const std::string schema = q.for_op.empty() ? "" : need(schema_of(q.for_op), kUsage);
  for (const std::string& wrong :
       {wrong_name(q.name), q.for_op.empty() ? wrong_op(q.op) : "", wrong_directory(directory)})
    if (!wrong.empty()) return fail(kUsage, wrong);
  const auto files = project(q, schema);
  if (const std::string wrong = write_project(directory, files); !wrong.empty())
    return fail(kFailed, wrong);
  if (q.json) {
    Json j = {{"name", q.name}, {"op", q.op}, {"directory", directory.string()}, {"files", {}}};
    for (const auto& [name, text] : files) j["files"].push_back(name);
    print_json(j);
    return kOk;
  }
  std::string names;
  for (const auto& [name, text] : files) names += (names.empty() ? "" : ", ") + name;
  print_out(
      "{}: {}\n\n"
      "  cd {}\n"
      "  cmake -B build && cmake --build build\n"
      "  ctest --test-dir build --output-on-failure\n",
      paint(Paint::kBold, directory.string()), names, directory.string());
  if (!q.for_op.empty())
    print_out("\nThe kernel declines every call of {}: verify fails until it is written.\n",
              q.for_op);
  return kOk;
}

}  // namespace

void add_plugin_new(CLI::App& plugin, Action& action) {
  const auto [c, q] = add_command<ProjectQuestion>(
      plugin, action, "new", "Create a plugin project that builds and passes its tests",
      make_project);
  c->add_option("NAME", q->name, "Name of the plugin: a-z, 0-9 and _")->required();
  add_value(*c, "--dir", q->directory, "DIR", "Where to put it (NAME)");
  add_value(*c, "--op", q->op, "OP", "Name of the op it adds (NAME)");
  add_value(*c, "--for-op", q->for_op, "OP",
            "Instead of a new op: a kernel for this one, which exists")
      ->excludes(c->get_option("--op"));
  c->add_flag("--c", q->c, "In C instead of C++");
}

}  // namespace yard::tool
