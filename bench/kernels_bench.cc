// SPDX-License-Identifier: Apache-2.0
// The built-in ops as users call them, beside the best composition of PyTorch's calls and beside a plain
// copy of the same bytes: in one process, in turn. Prints JSON.
//
//   kernels_bench [seconds for each call, about] [op]
#include <fmt/format.h>
#include <yard/call_spec.h>
#include <yard/yard.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "host_access.h"
#include "kernel_timing.h"
#include "measured_calls.h"
#include "progress.h"
#include "torch_kernels.h"

namespace yard::bench {
namespace {

constexpr Op<void(Out, In, In, float)> rms_norm{"rms_norm"};
constexpr Op<void(Out, InOut, In, In, float)> add_rms_norm{"add_rms_norm"};
constexpr Op<void(Out, In, OptIn, OptIn, float)> layer_norm{"layer_norm"};
constexpr Op<void(Out, In)> silu_and_mul{"silu_and_mul"};
constexpr Op<void(Out, In, int64_t)> gelu_and_mul{"gelu_and_mul"};
constexpr Op<void(Out, In)> softmax{"softmax"};
constexpr Op<void(InOut, OptInOut, OptIn, OptIn, OptIn, int64_t, float, int64_t)> rotary_embedding{
    "rotary_embedding"};

// The tensor that the call has under a name.
TensorView tensor(const CallTensors& data, std::string_view name) {
  for (const Arg& a : data.args())
    if (a.name == name && a.value.c().tag == YARD_TAG_TENSOR)
      return TensorView(*a.value.c().u.tensor);
  throw std::invalid_argument("the call has no tensor " + std::string(name));
}

// The typed call, as a program would make it.
std::function<Status()> typed_call(const std::string& op, const CallTensors& data) {
  const auto t = [&](const char* name) { return tensor(data, name); };
  if (op == "rms_norm")
    return [out = t("out"), x = t("x"), w = t("weight")] { return rms_norm(out, x, w, 1e-6f); };
  if (op == "add_rms_norm")
    return [out = t("out"), r = t("residual"), x = t("x"), w = t("weight")] {
      return add_rms_norm(out, r, x, w, 1e-6f);
    };
  if (op == "layer_norm")
    return [out = t("out"), x = t("x"), w = t("weight"), b = t("bias")] {
      return layer_norm(out, x, w, b, 1e-5f);
    };
  if (op == "silu_and_mul") return [out = t("out"), x = t("x")] { return silu_and_mul(out, x); };
  if (op == "gelu_and_mul") return [out = t("out"), x = t("x")] { return gelu_and_mul(out, x, 0); };
  if (op == "softmax") return [out = t("out"), x = t("x")] { return softmax(out, x); };
  return [q = t("query"), k = t("key"), p = t("positions"), c = t("cos"), s = t("sin")] {
    return rotary_embedding(q, k, p, c, s, 0, 10000.0f, 0);
  };
}

tool::Timed timed(std::function<void()> body) {
  return [body = std::move(body)](int64_t n) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < n; ++i) body();
    const std::chrono::duration<double, std::nano> all = std::chrono::steady_clock::now() - start;
    return all.count() / static_cast<double>(n);
  };
}

std::string measure(const std::string& op, const std::string& dtype, int64_t rows, int64_t hidden,
                    double seconds) {
  // In the sizes of torch_ways().
  const tool::Shapes shapes = {{"rows", {rows}},          {"tokens", {rows}},
                               {"hidden", {hidden}},      {"d", {hidden}},
                               {"heads", {hidden / 128}}, {"kv_heads", {hidden / 512}},
                               {"head_dim", {128}}};
  const std::string text = tool::measured_calls(op, {dtype}, shapes).at(0);
  const ParsedCall call = Runtime::shared().parse(text).value();
  const std::unique_ptr<CallTensors> tensors = tool::measured_tensors(call);
  const CallTensors& data = *tensors;
  const tool::Copy copy(data.traffic());
  const std::function<Status()> ours = typed_call(op, data);
  std::vector<tool::Timed> paths = {copy.one_thread(), copy.all_threads(),
                                    timed([&ours] { ours().or_throw(); })};
  const std::vector<TorchWay> torch = torch_ways(op, dtype, rows, hidden);
  for (const TorchWay& w : torch) paths.push_back(timed(w.run));
  const std::vector<double> ns = tool::time_in_turn(paths, seconds);

  const double copy_ns = std::min(ns[0], ns[1]), our_ns = ns[2];
  std::string json = fmt::format(
      "    {{\"op\": \"{}\", \"dtype\": \"{}\", \"rows\": {}, \"kernel\": \"{}\", \"ns\": {:.0f}, "
      "\"gb_per_s\": {:.2f}, \"copy_ns\": {:.0f}, \"over_copy\": {:.3f}",
      op, dtype, rows, resolve(text).value().kernel, our_ns,
      static_cast<double>(data.traffic()) / our_ns, copy_ns, copy_ns / our_ns);
  if (!torch.empty()) {
    const auto best = std::min_element(ns.begin() + 3, ns.end());
    json +=
        fmt::format(", \"torch_ns\": {:.0f}, \"over_torch\": {:.3f}, \"torch_way\": \"{}\"", *best,
                    *best / our_ns, torch[static_cast<size_t>(best - ns.begin() - 3)].name);
  }
  return json + "}";
}

int run(double seconds, const std::string& only) {
  constexpr int64_t kHidden = 4096;
  std::string results;
  tool::Progress progress;
  for (const char* op : {"rms_norm", "add_rms_norm", "layer_norm", "silu_and_mul", "gelu_and_mul",
                         "softmax", "rotary_embedding"}) {
    if (!only.empty() && op != only) continue;
    for (const char* dtype : {"f32", "bf16"})
      for (const int64_t rows : {1, 64, 4096}) {
        progress.say(fmt::format("measuring {} {} {}", op, dtype, rows));
        results += (results.empty() ? "" : ",\n") + measure(op, dtype, rows, kHidden, seconds);
      }
  }
  progress.clear();
  fmt::print(
      "{{\n  \"over_torch\": \"speed over the best composition of PyTorch's calls\",\n"
      "  \"over_copy\": \"speed over a plain copy of the same bytes, half read and half written, "
      "on "
      "one thread or all, whichever is faster\",\n"
      "  \"hidden\": {}, \"threads\": {},\n  \"results\": [\n{}\n  ]\n}}\n",
      kHidden, tool::host_threads(), results);
  return results.empty() ? 2 : 0;
}

}  // namespace
}  // namespace yard::bench

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  return yard::bench::run(seconds, argc > 2 ? argv[2] : "");
}
