// SPDX-License-Identifier: Apache-2.0
// A Llama model: its weights, and sessions that generate tokens with Switchyard's ops.
//
//   const llm::Model model(llm::Gguf::open("model.gguf"));
//   llm::Session session(model, 2048);
//   session.advance(ids).or_throw();  // the prompt, or its new part
//   for (int32_t id; session.sample({}, &id).ok() && !tokenizer.is_end(id);)
//     session.advance({&id, 1}).or_throw();
//
// Weights stay in the mapped file. Quantised weights are also loaded into instances of linear,
// whose first calls may pack them (docs/guides/calling_ops.md). Any number of sessions may run a
// model, each on one thread at a time. A session allocates when it is constructed. advance() and
// sample() do not allocate, apart from the work of the runtime for the first calls of a form.
#pragma once

#include <yard/bound.h>
#include <yard/yard.h>

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gguf.h"
#include "profile.h"
#include "sampling.h"

namespace llm {

struct Linear {
  yard::TensorView weight;
  std::optional<yard::TensorView> bias;
  // The instance of `linear` that has loaded the weight, or null.
  std::unique_ptr<const yard::Instance> instance;
};

struct Layer {
  yard::TensorView attention_norm, feed_forward_norm;
  Linear query, key, value, output, gate, up, down;
  // If the weights of query and value are adjacent in the file, `query` covers both, and one
  // product computes both. The same holds for gate and up.
  bool query_is_both = false, gate_is_both = false;
};

class Model {
 public:
  // Throws std::runtime_error if the file has another architecture, lacks a tensor, or has a tensor
  // of another shape.
  explicit Model(Gguf file);

  const Gguf& file() const { return file_; }
  // Gives back the memory of the weights that kernels have packed.
  void release_packed() const;
  // These sizes come from the keys of the GGUF file.
  int64_t width = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0, context = 0;
  float epsilon = 0;
  std::vector<double> frequencies;  // for rotary_embedding: one for each pair of dimensions
  yard::TensorView embedding, norm;
  Linear logits;
  std::vector<Layer> layers;
  double product_bytes = 0;  // of the weights of all products

 private:
  void read_frequencies(int64_t rotated);
  yard::TensorView tensor(const std::string& name, yard::Sizes shape, bool only_f32 = false) const;
  Linear linear(const std::string& name, int64_t rows, int64_t columns) const;
  Layer layer(int64_t number) const;
  static bool join(Linear& first, const Linear& second);
  void load_weights();
  // Calls f with each weight of a product.
  static void each_weight(auto& model, const auto& f);

  Gguf file_;
};

// Attention takes 16 % less time if its vectors do not cross cache lines (x86-64 with AVX-512).
inline constexpr std::align_val_t kVectorAlignment{64};
struct DeleteFloats {
  void operator()(float* p) const { ::operator delete[](p, kVectorAlignment); }
};
using Floats = std::unique_ptr<float[], DeleteFloats>;

class Session {
 public:
  // Allocates room for `context` tokens. Borrows the model.
  Session(const Model& model, int64_t context);

  // Appends tokens and computes the logits of the next token. Computes prompts in batches. After an
  // error the session is unchanged.
  yard::Status advance(std::span<const int32_t> ids);
  // Samples the next token from the logits. `before` has the tokens so far, for the repeat penalty.
  yard::Status sample(const Sampling& how, int32_t* id, std::span<const int32_t> before = {});
  // Forgets the tokens from `position` on. `position` must be at most position().
  void rewind(int64_t position) { position_ = position; }
  // Returns the bytes that a full session with this context takes.
  static double bytes(const Model& model, int64_t context);

  int64_t position() const { return position_; }  // number of tokens so far
  int64_t context() const { return context_; }
  std::span<const float> logits() const {
    return {logits_.get(), static_cast<size_t>(model_.vocabulary)};
  }
  // From now on, notes calls in the profile, unless it is null.
  void set_profile(Profile* profile) { profile_ = profile; }
  // From now on, calls f with the weight of each product, after it.
  void after_products(std::function<void(const Linear&)> f) { after_product_ = std::move(f); }

 private:
  struct Rows;  // views of the activations of some rows

  yard::Status pass(std::span<const int32_t> ids, bool wants_logits);
  yard::Status make_heads(const Rows& r, const Layer& layer, float* keys, float* values);
  yard::Status attend(const Rows& r, int64_t length, const float* keys, const float* values);
  yard::Status feed_forward(const Rows& r, const Layer& layer);
  yard::Status project(const yard::TensorView& out, const yard::TensorView& x, const Linear& w);
  void fill_tables(int64_t positions);
  yard::Status call(const auto& op, const auto&... a) { return call_part(0, op, a...); }
  // `unread` is the number of argument bytes that the call does not touch.
  yard::Status call_part(int64_t unread, const auto& op, const auto&... a) {
    return profile_ == nullptr ? op(a...) : profile_->call_part(unread, op, a...);
  }
  yard::Status call_linear(const Linear& w, const auto&... a);

  const Model& model_;
  int64_t context_, batch_, position_ = 0, table_rows_ = 0;
  bool first_ = true;     // no tokens were appended yet
  int64_t draws_ = 0;     // random numbers used so far
  Floats keys_, values_;  // [layers, context, kv_heads, head_dim]
  Floats cos_, sin_;      // [context, pairs]
  Floats x_, h_, q_v_, attended_, gate_up_, gated_, logits_, adjusted_;
  Profile* profile_ = nullptr;
  std::function<void(const Linear&)> after_product_;
};

}  // namespace llm
