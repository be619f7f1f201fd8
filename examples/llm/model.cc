// SPDX-License-Identifier: Apache-2.0
#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace llm {
namespace {

using yard::DType, yard::Status, yard::TensorView, yard::view;
using yard::In, yard::InOut, yard::OptIn, yard::OptInOut, yard::Out;

enum class Style { kHalf, kInterleaved };
constexpr yard::Op<void(Out, In, In)> embedding{"embedding"};
constexpr yard::Op<void(Out, In, In, float)> rms_norm{"rms_norm"};
constexpr yard::Op<void(Out, InOut, In, In, float)> add_rms_norm{"add_rms_norm"};
constexpr yard::Op<void(Out, In, In, OptIn, OptIn)> linear_op{"linear"};
constexpr yard::Op<void(InOut, OptInOut, OptIn, OptIn, OptIn, int64_t, float, Style)>
    rotary_embedding{"rotary_embedding"};
constexpr yard::Op<void(Out, In, In, In, OptIn, float)> attention_causal{"attention.causal"};
constexpr yard::Op<void(Out, In, In, In, In, OptIn, float)> attention_decode{"attention.decode"};
constexpr yard::Op<void(Out, In)> silu_and_mul{"silu_and_mul"};
constexpr yard::Op<void(Out, In)> argmax{"argmax"};
constexpr yard::Op<void(Out, In, float, int64_t, float, int64_t)> sample_op{"sample"};

constexpr int64_t kBatch = 512;  // rows of a prompt that are computed together

// The floats are not initialised, because pages that are never written cost nothing.
Floats floats(int64_t count) {
  return Floats(new (kVectorAlignment) float[static_cast<size_t>(count)]);
}
std::string text_of(yard::Sizes shape) {
  std::string text;
  for (const int64_t n : shape) text += (text.empty() ? "[" : ", ") + std::to_string(n);
  return text + "]";
}

}  // namespace

Model::Model(Gguf file) : file_(std::move(file)) {
  if (const auto name = file_.text("general.architecture"); name != "llama")
    file_.fail("a model of architecture llama", "'", name, "'");
  const auto size = [&](const char* key, std::optional<int64_t> fallback = {}) {
    const int64_t n = file_.integer(cat("llama.", key), fallback);
    if (n < 1 || n > 1 << 24) file_.fail(cat("llama.", key, " from 1 to 2^24"), n);
    return n;
  };
  width = size("embedding_length");
  hidden = size("feed_forward_length");
  heads = size("attention.head_count");
  kv_heads = size("attention.head_count_kv", heads);
  head_dim = size("attention.key_length", std::max<int64_t>(width / heads, 1));
  context = size("context_length");
  epsilon = static_cast<float>(file_.number("llama.attention.layer_norm_rms_epsilon"));
  if (heads % kv_heads != 0 || size("attention.value_length", head_dim) != head_dim)
    file_.fail("key-value heads that divide the heads, of their size", kv_heads);
  read_frequencies(size("rope.dimension_count", head_dim));
  vocabulary = file_.tensor("token_embd.weight").shape.front();
  embedding = tensor("token_embd.weight", {vocabulary, width});
  norm = tensor("output_norm.weight", {width}, true);
  const bool is_tied = file_.find("output.weight") == nullptr;
  logits = linear(is_tied ? "token_embd" : "output", vocabulary, width);
  for (int64_t i = 0; i < size("block_count"); ++i) layers.push_back(layer(i));
  load_weights();
  file_.prefetch();  // the first token needs the whole file
}

void Model::read_frequencies(int64_t rotated) {
  const std::string_view scaling = file_.text("llama.rope.scaling.type", "none");
  if (scaling != "none" && scaling != "linear")
    file_.fail("llama.rope.scaling.type none or linear", "'", scaling, "'");
  const double base = file_.number("llama.rope.freq_base", 10000.0);
  const double factor = scaling == "linear" ? file_.number("llama.rope.scaling.factor") : 1.0;
  if (rotated % 2 != 0 || rotated > head_dim || !(base > 0) || !(factor > 0))
    file_.fail(
        "an even llama.rope.dimension_count up to the size of a head, positive base and factor",
        rotated, ", ", base, " and ", factor);
  for (double i = 0; i < static_cast<double>(rotated / 2); ++i)
    frequencies.push_back(std::pow(base, -2 * i / static_cast<double>(rotated)) / factor);
  if (file_.find("rope_freqs.weight") == nullptr) return;
  std::vector<float> divisors(frequencies.size());
  const TensorView stored = tensor("rope_freqs.weight", {rotated / 2}, true);
  std::memcpy(divisors.data(), stored.data(), divisors.size() * sizeof(float));
  for (size_t i = 0; i < divisors.size(); ++i) frequencies[i] /= static_cast<double>(divisors[i]);
}

TensorView Model::tensor(const std::string& name, yard::Sizes shape, bool only_f32) const {
  const GgufTensor& t = file_.tensor(name);
  if (!std::equal(t.shape.begin(), t.shape.end(), shape.begin(), shape.end()))
    file_.fail("tensor '" + name + "' of shape " + text_of(shape), text_of(t.shape));
  if (only_f32 && t.dtype != DType::f32)
    file_.fail("tensor '" + name + "' of type f32", yard::to_string(t.dtype));
  return TensorView(t.data, t.dtype, t.shape);
}

Linear Model::linear(const std::string& name, int64_t rows, int64_t columns) const {
  Linear l{tensor(name + ".weight", {rows, columns}), {}, {}};
  if (file_.find(name + ".bias") != nullptr) l.bias = tensor(name + ".bias", {rows}, true);
  return l;
}

// If the weights of `second` follow those of `first` in the file, makes `first` cover both.
bool Model::join(Linear& first, const Linear& second) {
  const TensorView &a = first.weight, &b = second.weight;
  const auto* const end = static_cast<const char*>(a.data()) + Profile::bytes_of(a);
  if (first.bias || second.bias || a.dtype() != b.dtype() || b.data() != end) return false;
  first.weight = TensorView(a.data(), a.dtype(), {a.shape()[0] + b.shape()[0], a.shape()[1]});
  return true;
}

Layer Model::layer(int64_t number) const {
  const std::string name = "blk." + std::to_string(number) + ".";
  const int64_t q = heads * head_dim, kv = kv_heads * head_dim;
  Layer l{.attention_norm = tensor(name + "attn_norm.weight", {width}, true),
          .feed_forward_norm = tensor(name + "ffn_norm.weight", {width}, true),
          .query = linear(name + "attn_q", q, width),
          .key = linear(name + "attn_k", kv, width),
          .value = linear(name + "attn_v", kv, width),
          .output = linear(name + "attn_output", width, q),
          .gate = linear(name + "ffn_gate", hidden, width),
          .up = linear(name + "ffn_up", hidden, width),
          .down = linear(name + "ffn_down", width, hidden)};
  l.gate_is_both = join(l.gate, l.up), l.query_is_both = join(l.query, l.value);
  return l;
}

void Model::each_weight(auto& model, const auto& f) {
  for (auto& l : model.layers)
    for (auto* const w : {&l.query, &l.key, &l.value, &l.output, &l.gate, &l.up, &l.down})
      if (!(w == &l.up && l.gate_is_both) && !(w == &l.value && l.query_is_both)) f(*w);
  f(model.logits);
}

// Without an instance, calls use kernels that read the file.
void Model::load_weights() {
  each_weight(*this, [this](Linear& l) {
    product_bytes += static_cast<double>(Profile::bytes_of(l.weight));
    if (!yard_is_blocks(l.weight.c().dtype)) return;
    auto made = yard::Instance::make("linear");
    if (made.ok() && made->load({{"weight", l.weight}}).ok())
      l.instance = std::make_unique<const yard::Instance>(*std::move(made));
  });
}

void Model::release_packed() const {
  each_weight(*this, [this](const Linear& l) {
    if (l.instance != nullptr && l.instance->states() > 0) file_.release(l.weight);
  });
}

struct Session::Rows {
  int64_t count;
  TensorView x, h, q, q_v, q_heads, attended, attended_heads, gate_up, gated;

  Rows(const Session& s, int64_t first, int64_t rows) : count(rows) {
    const Model& m = s.model_;
    const int64_t q_width = m.heads * m.head_dim;
    x = view(&s.x_[first * m.width], {rows, m.width});
    h = view(&s.h_[first * m.width], {rows, m.width});
    const int64_t q_v_width = q_width + m.kv_heads * m.head_dim;
    float *const queries = &s.q_v_[first * q_v_width], *const results =
                                                           &s.attended_[first * q_width];
    q = view(queries, {rows, q_width}, {q_v_width, 1}), q_v = view(queries, {rows, q_v_width});
    q_heads = view(queries, {rows, m.heads, m.head_dim}, {q_v_width, m.head_dim, 1});
    attended = view(results, {rows, q_width});
    attended_heads = view(results, {rows, m.heads, m.head_dim});
    gate_up = view(&s.gate_up_[first * 2 * m.hidden], {rows, 2 * m.hidden});
    gated = view(&s.gated_[first * m.hidden], {rows, m.hidden});
  }
};

Session::Session(const Model& m, int64_t context)
    : model_(m), context_(context), batch_(std::min(kBatch, context)) {
  const int64_t cached = static_cast<int64_t>(m.layers.size()) * context * m.kv_heads * m.head_dim;
  keys_ = floats(cached), values_ = floats(cached);
  const auto pairs = static_cast<int64_t>(m.frequencies.size());
  cos_ = floats(context * pairs), sin_ = floats(context * pairs);
  x_ = floats(batch_ * m.width), h_ = floats(batch_ * m.width);
  q_v_ = floats(batch_ * (m.heads + m.kv_heads) * m.head_dim);
  attended_ = floats(batch_ * m.heads * m.head_dim);
  gate_up_ = floats(batch_ * 2 * m.hidden), gated_ = floats(batch_ * m.hidden);
  logits_ = floats(m.vocabulary), adjusted_ = floats(m.vocabulary);
}

double Session::bytes(const Model& m, int64_t context) {
  const auto of_layer = 2 * static_cast<double>(m.kv_heads) * static_cast<double>(m.head_dim);
  const auto of_tables = 2 * static_cast<double>(m.frequencies.size());
  return 4 * static_cast<double>(context) *
         (static_cast<double>(m.layers.size()) * of_layer + of_tables);
}

void Session::fill_tables(int64_t positions) {
  const size_t pairs = model_.frequencies.size();
  for (; table_rows_ < positions; ++table_rows_)
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(table_rows_) * model_.frequencies[i];
      const size_t at = static_cast<size_t>(table_rows_) * pairs + i;
      cos_[at] = static_cast<float>(std::cos(angle));
      sin_[at] = static_cast<float>(std::sin(angle));
    }
}

Status Session::advance(std::span<const int32_t> ids) {
  const int64_t before = position_;
  if (static_cast<int64_t>(ids.size()) > context_ - position_)
    return Status(yard::Code::kInvalidArgument,
                  cat("the context is full: it has room for ", context_ - position_,
                      " more tokens, not ", ids.size()));
  while (!ids.empty()) {
    const size_t n = std::min(ids.size(), static_cast<size_t>(batch_));
    if (Status s = pass(ids.first(n), n == ids.size()); !s.ok()) {
      position_ = before;
      return s;
    }
    ids = ids.subspan(n);
  }
  if (first_) model_.release_packed();
  first_ = false;
  return {};
}

Status Session::pass(std::span<const int32_t> ids, bool wants_logits) {
  const Model& m = model_;
  const auto rows = static_cast<int64_t>(ids.size());
  fill_tables(position_ + rows);
  Rows r(*this, 0, rows);
  const TensorView in(ids.data(), DType::i32, {rows});
  const int64_t unread = Profile::bytes_of(m.embedding) / m.vocabulary * (m.vocabulary - rows);
  YARD_RETURN_IF_ERROR(call_part(unread, embedding, r.x, in, m.embedding));
  YARD_RETURN_IF_ERROR(call(rms_norm, r.h, r.x, m.layers.front().attention_norm, m.epsilon));
  const int64_t cached = context_ * m.kv_heads * m.head_dim;  // for one layer
  float *keys = keys_.get(), *values = values_.get();
  // [layers]
  for (size_t i = 0; i < m.layers.size(); ++i, keys += cached, values += cached) {
    const Layer& layer = m.layers[i];
    YARD_RETURN_IF_ERROR(make_heads(r, layer, keys, values));
    const bool is_last = i + 1 == m.layers.size();
    if (is_last && !wants_logits) break;
    if (is_last) r = Rows(*this, rows - 1, 1);  // others were needed for their keys and values
    YARD_RETURN_IF_ERROR(attend(r, position_ + rows, keys, values));
    YARD_RETURN_IF_ERROR(project(r.h, r.attended, layer.output));
    YARD_RETURN_IF_ERROR(call(add_rms_norm, r.h, r.x, r.h, layer.feed_forward_norm, m.epsilon));
    YARD_RETURN_IF_ERROR(feed_forward(r, layer));
    const TensorView& next_norm = is_last ? m.norm : m.layers[i + 1].attention_norm;
    YARD_RETURN_IF_ERROR(call(add_rms_norm, r.h, r.x, r.h, next_norm, m.epsilon));
  }
  // [/layers]
  if (wants_logits)
    YARD_RETURN_IF_ERROR(project(view(logits_.get(), {1, m.vocabulary}), r.h, m.logits));
  position_ += rows;
  return {};
}

// Computes queries, and stores keys and values at their places in the cache.
Status Session::make_heads(const Rows& r, const Layer& layer, float* keys, float* values) {
  const int64_t width = model_.kv_heads * model_.head_dim;
  float *const key = keys + position_ * width, *const value = values + position_ * width;
  YARD_RETURN_IF_ERROR(project(view(key, {r.count, width}), r.h, layer.key));
  if (layer.query_is_both) {
    YARD_RETURN_IF_ERROR(project(r.q_v, r.h, layer.query));
    const float* from = static_cast<const float*>(r.q_v.data()) + r.q.shape()[1];
    for (int64_t i = 0; i < r.count; ++i, from += r.q_v.shape()[1])
      std::copy_n(from, width, value + i * width);
  } else {
    YARD_RETURN_IF_ERROR(project(r.q, r.h, layer.query));
    YARD_RETURN_IF_ERROR(project(view(value, {r.count, width}), r.h, layer.value));
  }
  const auto pairs = static_cast<int64_t>(model_.frequencies.size());
  return call(rotary_embedding, r.q_heads, view(key, {r.count, model_.kv_heads, model_.head_dim}),
              std::nullopt, view(&cos_[position_ * pairs], {r.count, pairs}),
              view(&sin_[position_ * pairs], {r.count, pairs}), 0, 1.0f, Style::kInterleaved);
}

// The rows are the last of `length` positions.
Status Session::attend(const Rows& r, int64_t length, const float* keys, const float* values) {
  const Model& m = model_;
  if (r.count == 1) {
    // Pass the whole cache, so that the form of the call stays equal from token to token.
    const TensorView k = view(keys, {1, context_, m.kv_heads, m.head_dim}),
                     v = k.with_data(const_cast<float*>(values));
    const auto n = static_cast<int32_t>(length);
    const int64_t unread = 2 * Profile::bytes_of(k) / context_ * (context_ - length);
    return call_part(unread, attention_decode, r.attended_heads, r.q_heads, k, v,
                     TensorView(&n, DType::i32, {1}), std::nullopt, 0.0f);
  }
  const TensorView k = view(keys, {1, length, m.kv_heads, m.head_dim}),
                   v = k.with_data(const_cast<float*>(values));
  const auto batch = [&](const TensorView& t) {
    return view(static_cast<float*>(t.data()), {1, r.count, m.heads, m.head_dim},
                {r.count * t.strides()[0], t.strides()[0], m.head_dim, 1});
  };
  return call(attention_causal, batch(r.attended_heads), batch(r.q_heads), k, v, std::nullopt,
              0.0f);
}

// [feed_forward]
Status Session::feed_forward(const Rows& r, const Layer& layer) {
  if (layer.gate_is_both) {
    YARD_RETURN_IF_ERROR(project(r.gate_up, r.h, layer.gate));
  } else {
    const int64_t d = model_.hidden;
    float* const gate = static_cast<float*>(r.gate_up.data());
    YARD_RETURN_IF_ERROR(project(view(gate, {r.count, d}, {2 * d, 1}), r.h, layer.gate));
    YARD_RETURN_IF_ERROR(project(view(gate + d, {r.count, d}, {2 * d, 1}), r.h, layer.up));
  }
  YARD_RETURN_IF_ERROR(call(silu_and_mul, r.gated, r.gate_up));
  return project(r.h, r.gated, layer.down);
}
// [/feed_forward]

Status Session::call_linear(const Linear& w, const auto&... a) {
  if (w.instance == nullptr) return call(linear_op, a...);
  yard::Options with;
  with.instance = w.instance.get();
  return profile_ == nullptr ? linear_op.with(with)(a...)
                             : profile_->call_with(std::move(with), linear_op, a...);
}

Status Session::project(const TensorView& out, const TensorView& x, const Linear& w) {
  Status s = w.bias ? call_linear(w, out, x, w.weight, std::nullopt, *w.bias)
                    : call_linear(w, out, x, w.weight, std::nullopt, std::nullopt);
  if (after_product_) after_product_(w);
  return s;
}

Status Session::sample(const Sampling& how, int32_t* id, std::span<const int32_t> before) {
  float* from = logits_.get();
  if (changes_logits(how)) {
    std::memcpy(adjusted_.get(), from, sizeof(float) * static_cast<size_t>(model_.vocabulary));
    from = adjusted_.get();
    change_logits(how, before, {from, static_cast<size_t>(model_.vocabulary)});
  }
  const TensorView out(id, DType::i32, {1}), x = view(from, {1, model_.vocabulary});
  if (how.temperature == 0) return call(argmax, out, x);
  const int64_t seed = (int64_t{how.seed} << 30) + draws_++;
  return call(sample_op, out, x, how.temperature, how.top_k, how.top_p, seed);
}

}  // namespace llm
