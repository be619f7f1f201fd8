// SPDX-License-Identifier: Apache-2.0
// An op with options and state, ported from mllm's op plugin FlashAttention2SwaSink: causal
// attention over a sliding window, with grouped heads and attention sinks.
//
// The port replaces mllm's options struct by the line `sliding_window: int = -1, s_aux_enable: bool
// = false`, which the host checks. Batch, heads and widths are dimensions of the schema instead of
// options. The class Sinks replaces an op object with a factory: the host constructs one for each
// use of the op and destroys it. The sinks, one learned number for each head, are loaded by name
// and not passed with every call.
#include <yard/plugin.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

using namespace yard::plugin;

constexpr const char* kOp = "flash_attention_2_swa_sink";
constexpr double kLeast = -std::numeric_limits<double>::infinity();

// [state]
constexpr const char* kOptions = "sliding_window: int = -1, s_aux_enable: bool = false";
constexpr const char* kWeights = "s_aux?: f32[h_q]";

struct Sinks {
  explicit Sinks(Named options)
      : window(options.integer("sliding_window")), enabled(options.flag("s_aux_enable")) {}
  void load(Call, Named weights) { s_aux = weights.tensor("s_aux"); }
  // Checks what no schema can say, before the first run with this number of heads.
  int32_t prepare(Call call, Arguments args) {
    const int64_t heads = Tensor(args[1].u.tensor).size(2);
    if (!enabled) return YARD_OK;
    if (!s_aux)
      return call.fail(YARD_CALLER, "s_aux_enable is set, but no s_aux was loaded: one f32 a head");
    if (s_aux.rank() != 1 || s_aux.size(0) != heads || s_aux.dtype() != YARD_F32)
      return call.fail(YARD_CALLER, "s_aux must be f32[%lld], one sink for each head of q",
                       static_cast<long long>(heads));
    return YARD_OK;
  }
  // Writes the text that a trace of the program has beside the call.
  int32_t trace(Call call, Arguments) const {
    return call.fail(YARD_OK, "window %lld, %s", static_cast<long long>(window),
                     enabled ? "with sinks" : "without sinks");
  }
  // The sink of a head: a score that takes its share of the softmax and brings no value.
  double sink(int64_t head) const {
    return enabled ? double{s_aux.data<float>()[head * s_aux.stride(0)]} : kLeast;
  }

  int64_t window;  // how many keys a query sees, its own included; not positive: all before it
  bool enabled;
  Tensor s_aux{nullptr};
};
// [/state]

// One row of a tensor [batch, position, head, width].
struct Row {
  Row(Tensor t, int64_t b, int64_t s, int64_t h)
      : data(t.data<float>() + b * t.stride(0) + s * t.stride(1) + h * t.stride(2)),
        step(t.stride(3)),
        size(t.size(3)) {}
  float& operator[](int64_t i) const { return data[i * step]; }
  float* data;
  int64_t step, size;
};

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.size; ++i) sum += double{a[i]} * b[i];
  return sum;
}

// The keys that a query sees and their head. The last query is at the position of the last key.
struct Sight {
  Sight(const Sinks& sinks, Tensor q, Tensor k, int64_t s, int64_t h)
      : end(s + k.size(1) - q.size(1) + 1),
        begin(sinks.window > 0 ? std::max<int64_t>(0, end - sinks.window) : 0),
        head(h / (q.size(2) / k.size(2))),
        scale(1.0 / std::sqrt(double(q.size(3)))) {}
  int64_t end, begin, head;
  double scale;
};

// Defines the op: the scores of all visible keys, their softmax with the sink, and the weighted sum
// of values.
void meaning(const Sinks& sinks, const Row& out, Tensor q, Tensor k, Tensor v, int64_t b, int64_t s,
             int64_t h) {
  const Sight sight(sinks, q, k, s, h);
  const Row query(q, b, s, h);
  std::vector<double> weights;
  double most = sinks.sink(h), sum = 0;
  for (int64_t j = sight.begin; j < sight.end; ++j) {
    weights.push_back(dot(query, Row(k, b, j, sight.head)) * sight.scale);
    if (!(weights.back() <= most)) most = weights.back();  // NaN propagates
  }
  for (double& w : weights) sum += w = std::exp(w - most);
  if (sinks.enabled) sum += std::exp(sinks.sink(h) - most);
  std::vector<double> total(size_t(out.size));
  for (int64_t j = sight.begin; j < sight.end; ++j) {
    const Row value(v, b, j, sight.head);
    for (int64_t i = 0; i < out.size; ++i)
      total[size_t(i)] += weights[size_t(j - sight.begin)] * value[i];
  }
  for (int64_t i = 0; i < out.size; ++i) out[i] = float(total[size_t(i)] / sum);
}

// Computes the result in one pass. When a larger score comes, scales the sums so far down.
void one_pass(const Sinks& sinks, const Row& out, Tensor q, Tensor k, Tensor v, int64_t b,
              int64_t s, int64_t h) {
  const Sight sight(sinks, q, k, s, h);
  const Row query(q, b, s, h);
  double most = sinks.sink(h), sum = most == kLeast ? 0 : 1;
  for (int64_t i = 0; i < out.size; ++i) out[i] = 0;
  for (int64_t j = sight.begin; j < sight.end; ++j) {
    const double score = dot(query, Row(k, b, j, sight.head)) * sight.scale;
    const double before = most;
    if (!(score <= most)) most = score;
    // If all scores so far are minus infinity, there is nothing to scale and this key has no
    // weight.
    const double kept = before == kLeast ? 1 : std::exp(before - most);
    const double weight = score == kLeast ? 0 : std::exp(score - most);
    const Row value(v, b, j, sight.head);
    sum = sum * kept + weight;
    for (int64_t i = 0; i < out.size; ++i) out[i] = float(out[i] * kept + weight * value[i]);
  }
  for (int64_t i = 0; i < out.size; ++i) out[i] = float(out[i] / sum);
}

template <auto F>
int32_t attend(Call call, Tensor out, Tensor q, Tensor k, Tensor v) {
  const int64_t heads = q.size(2), shared = k.size(2), queries = q.size(1);
  if (shared == 0 ? heads != 0 : heads % shared != 0)
    return call.fail(YARD_CALLER, "%lld heads of q cannot share %lld heads of k and v",
                     static_cast<long long>(heads), static_cast<long long>(shared));
  const Sinks& sinks = *call.state<const Sinks>();
  call.parallel_for(q.size(0) * queries * heads, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / (queries * heads), s = i / heads % queries, h = i % heads;
      F(sinks, Row(out, b, s, h), q, k, v, b, s, h);
    }
  });
  return YARD_OK;
}

}  // namespace

// [query]
const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t*) {
  static const yard_tolerance_t tolerances[] = {{YARD_F32, 0, 1e-4, 1e-4}};
  static const yard_limit_t limits[] = {compact(), at_least("d_v", 1)};
  static const char* const fields[] = {"h_q", nullptr};  // a state for each number of heads
  static const Plugin plugin =
      Plugin(YARD_PLUGIN_NAME, YARD_PLUGIN_VERSION)
          .add(Backend("swa_sink").summary("Sliding-window attention with sinks"))
          .add(
              OpDef("flash_attention_2_swa_sink(out!: T[b, s_q, h_q, d_v], q: T[b, s_q, h_q, d_qk],"
                    " k: T[b, s_kv, h_kv, d_qk], v: T[b, s_kv, h_kv, d_v])"
                    " where T in {f32}, s_q <= s_kv, d_qk >= 1")
                  .summary("Causal attention over a sliding window, with sinks and grouped heads")
                  .tolerances(tolerances))
          .add(with_state<Sinks>(
              Kernel::of<attend<meaning>>(kOp, "reference.swa_sink").kind(YARD_KIND_REFERENCE),
              kOptions, fields, kWeights))
          .add(with_state<Sinks>(
              Kernel::of<attend<one_pass>>(kOp, "default.swa_sink").limits(limits), kOptions,
              fields, kWeights));
  return plugin.get();
}
// [/query]
