// SPDX-License-Identifier: Apache-2.0
// Uses the library: checks which backend runs, every branch of every verifier, the switches, and a
// plugin that is opened when it is needed. Usage: flalike PLUGIN
#include <yard/function.h>
#include <yard/trace.h>
#include <yard/yard.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "../check.h"
#include "ops.h"

namespace {

using namespace flalike;

struct Data {
  std::vector<float> q, out;
  Attention a;
  Data(int64_t rows, int64_t heads, int64_t head_dim, DType dtype = DType::kF32)
      : q(static_cast<size_t>(rows * heads * head_dim), 0.5f), out(q.size()), a{q.data(), q.data(),
                                                                                q.data(), rows,
                                                                                heads,    head_dim,
                                                                                dtype} {}
};

std::string who_runs(Data d, Mode m = Mode::kChunk) {
  attention(d.a, d.out.data(), m);
  CHECK(near(d.out[0], 0.125 * double(d.a.head_dim)));
  return attention.last_selected();
}

void verifiers() {
  // [call]
  yard::ScopedPolicy inference(yard::Scope().inference());
  CHECK(who_runs(Data(8, 4, 64)) == "flash");
  CHECK(who_runs(Data(8, 4, 256)) == "tile");      // too wide for flash
  CHECK(who_runs(Data(8, 3, 256)) == "original");  // and too odd for tile
  // [/call]
  CHECK(who_runs(Data(8, 4, 64, DType::kBF16)) == "tile");
  CHECK(who_runs(Data(8, 4, 64), Mode::kRecurrent) == "tile");
  CHECK(who_runs(Data(1, 4, 256)) == "original");
}

void asking() {
  // [ask]
  Data d(8, 4, 256);
  yard::FunctionExplanation why = attention.explain(d.a, d.out.data(), Mode::kChunk);
  CHECK(why.selected == "tile");
  CHECK(why.candidates[0].backend == "flash" && why.candidates[0].reason == "inference_only");
  for (const yard::FunctionInfo& f : yard::Runtime::shared().functions().list())
    std::printf("%s/%s: %zu providers\n", f.group.c_str(), f.name.c_str(), f.providers.size());
  // [/ask]
}

void switches() {
  yard::ScopedPolicy inference(yard::Scope().inference());
  yard::Runtime& runtime = yard::Runtime::shared();
  ::setenv("FLALIKE_FLASH", "off", 1);
  runtime.rules().reload_environment().or_throw();
  CHECK(who_runs(Data(8, 4, 64)) == "tile");
  ::unsetenv("FLALIKE_FLASH");
  runtime.rules().reload_environment().or_throw();
  // [rules]
  yard::Config rules = yard::parse_config(
                           "version: \"1.0\"\n"
                           "functions:\n"
                           "  kda: {deny: [flash]}\n"
                           "  kda/attention_grad: {enabled: false}\n",
                           "rules.yaml")
                           .config;
  runtime.rules().set(rules).or_throw();
  CHECK(who_runs(Data(8, 4, 64)) == "tile");
  // [/rules]
  runtime.rules().set({}).or_throw();
  CHECK(who_runs(Data(8, 4, 64)) == "flash");
}

void failures() {
  yard::Health health = yard::Runtime::shared().health();
  yard::ScopedPolicy inference(yard::Scope().inference());
  health.open("kda/attention", "flash", "wrong numbers on this driver").or_throw();
  CHECK(who_runs(Data(8, 4, 64)) == "tile");
  health.close("kda/attention", "flash").or_throw();
  CHECK(who_runs(Data(8, 4, 64)) == "flash");
}

void tracing() {
  yard::TraceScope trace;
  CHECK(who_runs(Data(8, 4, 64)) == "tile");
  yard::TraceNode node = trace.nodes()[0];
  CHECK(node.op == "kda/attention" && node.kernel == "tile");
  CHECK(node.note.starts_with("flash refuses: "));
}

void plugin(const std::string& file) {
  yard::Runtime& runtime = yard::Runtime::shared();
  runtime.plugins().discover({file}).or_throw();  // finds the file without opening it
  std::vector<float> x(4 * 64, 2.0f), out(x.size());
  rms_norm(Norm{x.data(), out.data(), 4, 64, DType::kF32}, 0.0f);
  CHECK(rms_norm.last_selected() == std::string("fused"));
  CHECK(near(out[0], 1));
  rms_norm(Norm{x.data(), out.data(), 4, 64, DType::kBF16}, 0.0f);
  CHECK(rms_norm.last_selected() == std::string("original"));
  std::vector<float> wide(5000, 2.0f), wide_out(wide.size());
  rms_norm(Norm{wide.data(), wide_out.data(), 1, 5000, DType::kF32}, 0.0f);
  CHECK(rms_norm.last_selected() == std::string("original"));
  CHECK(near(wide_out[0], 1));
  runtime.plugins().unload("flalike_fused").value().wait().or_throw();
  rms_norm(Norm{x.data(), out.data(), 4, 64, DType::kF32}, 0.0f);
  CHECK(rms_norm.last_selected() == std::string("original"));
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 2);
  use_backends();
  verifiers();
  asking();
  switches();
  failures();
  tracing();
  plugin(argv[1]);
}
