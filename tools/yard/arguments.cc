// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <filesystem>

#include "help.h"
#include "terminal.h"

namespace yard::tool {
namespace {

// Returns the option at the beginning of a message of the parser, "--rows: ...", or null.
CLI::Option* option_of(const std::string& message, CLI::App& command) {
  return command.get_option_no_throw(message.substr(0, message.find(':')));
}

}  // namespace

std::vector<std::string> split(const std::string& text, std::string_view separators) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (separators.find(c) != std::string_view::npos)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

CLI::Validator existing_file() {
  return CLI::Validator(
      [](std::string& path) -> std::string {
        std::error_code error;
        const auto status = std::filesystem::status(path, error);
        if (std::filesystem::is_directory(status))
          return fmt::format("expected a file, got the directory '{}'", path);
        if (!std::filesystem::exists(status))
          return fmt::format("expected a file, got '{}', which does not exist", path);
        return {};
      },
      "");
}

CLI::Validator one_of(std::vector<std::string> words) {
  return CLI::Validator(
      [words = std::move(words)](std::string& word) -> std::string {
        if (std::ranges::find(words, word) != words.end()) return {};
        std::string list = words[0];
        for (size_t i = 1; i < words.size(); ++i)
          list += (i + 1 < words.size() ? ", " : " or ") + words[i];
        return fmt::format("expected {}, got '{}'{}", list, word, did_you_mean(word, words));
      },
      "");
}

std::string message_of(const CLI::ParseError& error, CLI::App& command) {
  const std::string text = error.what();
  const CLI::Option* option = option_of(text, command);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    return fmt::format("{}; usage: {}", text, usage_of(command));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && option != nullptr)
    return fmt::format("{}: expected {}, got nothing", option->get_name(),
                       value_name(*option).empty() ? "a value" : value_name(*option));
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr)
    if (const size_t at = text.rfind(" = "); at != std::string::npos) {
      const size_t name = text.rfind(' ', at - 1) + 1;
      return fmt::format("{}: expected a number, got '{}'", text.substr(name, at - name),
                         text.substr(at + 3));
    }
  return text;
}

namespace {

Status bad(std::string_view option, std::string_view value, std::string_view right) {
  return Status(Code::kInvalidArgument,
                fmt::format("{} '{}' is not valid here; expected {}", option, value, right));
}

}  // namespace

void PolicyFlags::add(CLI::App& c) {
  const auto value = [&](const char* name, auto& to, const char* type, const char* help) {
    add_value(c, name, to, type, help)->group("Policy of this call");
  };
  const auto flag = [&](const char* name, bool& to, const char* help) {
    c.add_flag(name, to, help)->group("Policy of this call");
  };
  value("--prefer", prefer, "KIND", "Kind that comes first: default, vendor or reference");
  flag("--strict", strict, "No fallback: the first choice or its error");
  flag("--reference-only", reference_only, "Only reference kernels");
  flag("--no-transforms", no_transforms, "Arguments are not copied or converted for kernels");
  value("--order", order, "TOKENS",
        "What may run, best first: vendor|default, vendor:NAME, impl:ID; excludes all others");
  value("--lock", lock, "ID", "Lock the op to this kernel");
  value("--force", force, "ID", "This kernel or an error; must exist");
  value("--deny", deny, "GLOB", "Kernels that may not run; repeatable");
  value("--allow", allow, "GLOB", "The only kernels that may run");
  value("--deny-vendor", deny_vendor, "VENDOR", "Vendors whose kernels may not run");
  value("--allow-vendor", allow_vendor, "VENDOR", "The only vendors whose kernels may run");
  value("--backend", backend, "NAME=on|off", "Switch a backend");
  const char* const group = "Flags and labels of this call";
  c.add_flag("--deterministic", deterministic, "Only kernels that give the same bits every time")
      ->group(group);
  c.add_flag("--inference", inference, "No gradient is needed")->group(group);
  c.add_flag("--capturing", capturing, "A graph is being captured")->group(group);
  add_value(c, "--label", label, "KEY=VALUE", "A label, for rules and traces")->group(group);
}

Result<Options> PolicyFlags::options(const std::string& op) const {
  Options o;
  Policy p;
  if (!prefer.empty()) {
    p.prefer = parse_kind(prefer);
    if (!p.prefer)
      return bad("--prefer", prefer,
                 "default, vendor or reference" +
                     did_you_mean(prefer, {"default", "vendor", "reference"}));
  }
  if (strict) p.strict = true;
  if (reference_only) p.reference_only = true;
  if (no_transforms) p.transforms["*"] = false;
  if (!order.empty()) p.per_op[op] = split(order, "|,");
  if (!lock.empty()) p.locks[op] = lock;
  p.deny_kernels = deny;
  p.deny_vendors = deny_vendor;
  if (!allow.empty()) p.allow_kernels = allow;
  if (!allow_vendor.empty()) p.allow_vendors = allow_vendor;
  for (const std::string& b : backend) {
    const size_t eq = b.find('=');
    bool on = false;
    if (eq == std::string::npos || eq == 0 || !CLI::detail::lexical_cast(b.substr(eq + 1), on))
      return bad("--backend", b, "NAME=on or NAME=off");
    p.backends[b.substr(0, eq)] = on;
  }
  for (const std::string& l : label) {
    const size_t eq = l.find('=');
    if (eq == std::string::npos || eq == 0) return bad("--label", l, "KEY=VALUE");
    o.labels[l.substr(0, eq)] = l.substr(eq + 1);
  }
  YARD_RETURN_IF_ERROR(validate(p));
  if (!p.empty()) o.policy = std::move(p);
  o.force = force;
  o.deterministic = deterministic, o.inference = inference, o.capturing = capturing;
  return o;
}

}  // namespace yard::tool
