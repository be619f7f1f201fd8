// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <filesystem>

#include "help.h"
#include "terminal.h"

namespace yard::tool {
namespace {

// The option that a message of the parser begins with, "--rows: ...", or null.
CLI::Option* option_of(const std::string& message, CLI::App& command) {
  return command.get_option_no_throw(message.substr(0, message.find(':')));
}

}  // namespace

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
        if (std::find(words.begin(), words.end(), word) != words.end()) return {};
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

constexpr const char* kGroup = "Policy of this call";
constexpr const char* kFlagGroup = "Flags and labels of this call";

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

Status bad(std::string_view option, std::string_view value, std::string_view right) {
  return Status(Code::kInvalidArgument,
                fmt::format("{} '{}' is not valid here; expected {}", option, value, right));
}

std::optional<bool> parse_switch(std::string_view text) {
  for (const char* on : {"1", "on", "true", "yes"})
    if (text == on) return true;
  for (const char* off : {"0", "off", "false", "no"})
    if (text == off) return false;
  return std::nullopt;
}

}  // namespace

void PolicyFlags::add(CLI::App& c) {
  const auto many = [&](const char* name, std::vector<std::string>& to, const char* type,
                        const char* help, const char* group) {
    c.add_option(name, to, help)->type_name(type)->allow_extra_args(false)->group(group);
  };
  c.add_option("--prefer", prefer, "Kind that comes first: default, vendor or reference")
      ->type_name("KIND")
      ->group(kGroup);
  c.add_flag("--strict", strict, "No fallback: the first choice or its error")->group(kGroup);
  c.add_flag("--reference-only", reference_only, "Only reference kernels")->group(kGroup);
  c.add_flag("--no-transforms", no_transforms,
             "Kernels get arguments as they are, or not at all: no copies for them")
      ->group(kGroup);
  c.add_option(
       "--order", order,
       "What may run, best first: vendor|default, vendor:NAME, impl:ID; excludes all others")
      ->type_name("TOKENS")
      ->group(kGroup);
  c.add_option("--lock", lock, "Lock the op to this kernel")->type_name("ID")->group(kGroup);
  c.add_option("--force", force, "This kernel or an error; must exist")
      ->type_name("ID")
      ->group(kGroup);
  many("--deny", deny, "GLOB", "Kernels that may not run; repeatable", kGroup);
  many("--allow", allow, "GLOB", "The only kernels that may run", kGroup);
  many("--deny-vendor", deny_vendor, "VENDOR", "Vendors whose kernels may not run", kGroup);
  many("--allow-vendor", allow_vendor, "VENDOR", "The only vendors whose kernels may run", kGroup);
  many("--backend", backend, "NAME=on|off", "Switch a backend", kGroup);
  c.add_flag("--deterministic", deterministic, "Only kernels that give the same bits every time")
      ->group(kFlagGroup);
  c.add_flag("--inference", inference, "No gradient is needed")->group(kFlagGroup);
  c.add_flag("--capturing", capturing, "A graph is being captured")->group(kFlagGroup);
  many("--label", label, "KEY=VALUE", "A label, for rules and traces", kFlagGroup);
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
    const auto on = eq != std::string::npos ? parse_switch(b.substr(eq + 1)) : std::nullopt;
    if (!on || eq == 0) return bad("--backend", b, "NAME=on or NAME=off");
    p.backends[b.substr(0, eq)] = *on;
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
