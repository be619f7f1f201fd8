// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a rule file. Reading twice gives equal results. A file that is read survives
// printing and reading again, checking it ends, and calls with equal keys match the same rules.
// Other files are refused with a message.
#include <yard/config.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "op/call.h"
#include "policy/check.h"
#include "policy/config_files.h"
#include "policy/regex.h"

namespace {

using namespace yard;

void require(bool condition) {
  if (!condition) std::abort();
}

constexpr const char* kSchema =
    "rms_norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight?: T[hidden], eps: float = 1e-6, "
    "style: enum{half, full} = half, causal: bool = false, note: string = \"\", n: int = 0)";

struct OneOp : policy::Known {
  OneOp() : program(std::make_shared<op::Program>(op::Program::compile(kSchema).value())) {
    ops["rms_norm"] = {program,
                       {{"default.simd", {"default.simd"}}, {"reference.cpp", {"reference.cpp"}}}};
    backends = {"simd"}, vendors = {"acme"};
  }

  op::Call call(const char* text) const {
    return op::Call::from_spec(*program, op::parse_call_spec(text).value()).value();
  }
  const std::shared_ptr<const op::Program> program;
};

void match_some(const policy::OpRules& rules, const OneOp& known) {
  std::map<std::vector<uint64_t>, std::vector<uint32_t>> classes;
  for (const char* text :
       {"rms_norm(f32[8,64], f32[64])", "rms_norm(f32[9,64], f32[64])", "rms_norm(bf16[1,128])",
        "rms_norm(f32[2,64;128,2], eps=nan, note=\"a\", causal=true)@cpu+deterministic{tenant=a}",
        "rms_norm(f32[0,8], n=5, style=full)@cuda:1{tenant=b, tp_size=4, phase=decode}"}) {
    const op::Call call = known.call(text);
    const policy::CallView view{call.args(), call.flags(), call.device(), &call.labels()};
    const std::vector<uint32_t> matches = rules.match(view);
    std::vector<uint64_t> key(rules.conditions().key_words(), 0);
    rules.conditions().fold(view, key.data());
    key.push_back(call.flags());
    key.push_back(static_cast<uint64_t>(call.device().type * 1000 + call.device().index));
    require(classes.emplace(key, matches).first->second == matches);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const OneOp known;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // The file may include itself or a good file.
  const policy::Opener open = [&](const std::string& path) -> Result<std::string> {
    if (path == "other.yaml") return std::string("kernel_denies: [default.simd]\n");
    if (path == "same.yaml") return std::string(text);
    return Status(Code::kNotFound, "cannot be opened");
  };
  ConfigReading r = policy::parse_config_from(text, "rules.yaml", open);
  const ConfigReading again = policy::parse_config_from(text, "rules.yaml", open);
  require(again.config == r.config && again.problems == r.problems && again.sha256 == r.sha256);
  require(diff(r.config, again.config).empty());
  if (r.ok()) {
    const ConfigReading back = policy::parse_config_from(to_yaml(r.config), "rules.yaml", open);
    require(back.ok() && back.config == r.config);
    require(validate(policy_of(r.config)).ok());
  }
  policy::RulesByOp compiled;
  check_reading(r, known, &compiled);
  for (const ConfigProblem& p : r.problems) {
    require(!p.found.empty() && !p.file.empty());
    for (const char c : to_string(p)) require(static_cast<unsigned char>(c) >= 0x20);
  }
  for (const auto& [program, rules] : compiled)
    if (rules != nullptr) match_some(*rules, known);
  // Also tests the grammar of patterns directly.
  if (const auto regex = policy::Regex::compile(text.substr(0, size / 2)); regex.ok())
    (void)regex->matches(text.substr(size / 2));
  return 0;
}
