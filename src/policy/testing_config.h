// SPDX-License-Identifier: Apache-2.0
// Ops, kernels and calls for tests of rules.
#pragma once

#include <gtest/gtest.h>
#include <yard/config.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "op/call.h"
#include "op/program.h"
#include "policy/check.h"
#include "policy/config_files.h"

namespace yard::policy {

// The attention op of other projects' files, declared in our grammar.
inline constexpr const char* kAttention =
    "(out!: T[batch, seq_q, heads, head_dim], q: T[batch, seq_q, heads, head_dim], "
    "k: T[batch, seq_k, kv_heads, head_dim], v: T[batch, seq_k, kv_heads, head_dim], "
    "mask?: M[rows_mask], causal: bool = false, dropout: float = 0.0, "
    "layout: enum{bshd, bhsd} = bshd, note: string = \"\", window: int = 0)";
inline constexpr const char* kRmsNormText =
    "rms_norm(out!: T[*rows, hidden], x: T[*rows, hidden], weight: T[hidden], eps: float = 1e-6)";
inline constexpr const char* kRotaryText =
    "rotary(query~: T[*tokens, heads, head_dim], key~?: T[*tokens, kv_heads, head_dim], "
    "style: enum{half, interleaved} = half)";

struct TestKnown : Known {
  TestKnown() {
    backends = {"simd", "onednn"};
    vendors = {"intel", "acme"};
    modes = {"shadow"};
  }
  void add(const std::string& schema, const std::vector<std::string>& kernels) {
    auto program = op::Program::compile(schema);
    ASSERT_TRUE(program.ok()) << program.status().to_string();
    const std::string name(program->name());
    announce(name, kernels);
    ops[name].program = std::make_shared<op::Program>(*std::move(program));
  }
  // A plugin announces this op.
  void announce(const std::string& op, const std::vector<std::string>& kernels) {
    for (const std::string& id : kernels) {
      const auto it = ops[op].kernels.try_emplace(id).first;
      it->second = {it->first, "", "", Kind::kReference};
    }
  }
};

// attention.causal, attention.full, rms_norm, rotary, argmax.
inline TestKnown usual_ops() {
  TestKnown k;
  const std::vector<std::string> attention = {"flash_attention_v2", "xformers_memory_efficient",
                                              "torch_sdpa", "flash_attn.v3", "math_experimental"};
  k.add("attention.causal" + std::string(kAttention), attention);
  k.add("attention.full" + std::string(kAttention), attention);
  k.add(kRmsNormText, {"default.simd", "vendor.onednn", "reference.cpp"});
  k.add(kRotaryText, {"reference.cpp"});
  k.add("argmax(out!: I[*rows], x: T[*rows, d]) where T in {f32, f16, bf16}, I in {i32, i64}",
        {"default.simd", "reference.cpp"});
  return k;
}

using Texts = std::map<std::string, std::string>;
inline Opener opener(const Texts& texts) {
  return [texts](const std::string& path) -> Result<std::string> {
    const auto it = texts.find(path);
    if (it == texts.end())
      return Status(Code::kNotFound, "cannot be opened: No such file or directory");
    return it->second;
  };
}

// Returns one line for each problem of reading and checking, sorted.
inline std::vector<std::string> problems_of(ConfigReading reading, const Known& known) {
  check_reading(reading, known);
  std::vector<std::string> lines;
  for (const ConfigProblem& p : reading.problems) lines.push_back(to_string(p));
  return lines;
}

// Holds the call that a CallSpec describes, as a CallView.
class TestCall {
 public:
  TestCall(const Known& known, const std::string& text) {
    auto spec = op::parse_call_spec(text);
    EXPECT_TRUE(spec.ok()) << spec.status().to_string();
    program_ = known.ops.at(spec->op).program.get();
    auto call = op::Call::from_spec(*program_, *spec);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    if (call.ok()) call_.push_back(*std::move(call));
  }
  CallView view() const {
    const op::Call& c = call_.at(0);
    return {c.args(), c.flags(), c.device(), &c.labels()};
  }
  const op::Program& program() const { return *program_; }

 private:
  const op::Program* program_ = nullptr;
  std::vector<op::Call> call_;
};

}  // namespace yard::policy
