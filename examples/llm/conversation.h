// SPDX-License-Identifier: Apache-2.0
// Holds a conversation with a model: messages and answers. Forgets old turns when the context is
// full.
//
//   llm::Conversation conversation({.model = "model.gguf"});
//   llm::Answer answer = conversation.answer("Hello", [](std::string_view t) { std::cout << t; });
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat_template.h"
#include "model.h"

namespace llm {

struct ConversationSettings {
  std::string model = {};               // path of a GGUF file
  std::optional<std::string> system{};  // replaces the template's system message
  int64_t tokens = 256;                 // the longest answer
  int64_t context = 0;                  // 0 selects 2048, or the model's context if that is less
  bool raw = false;                     // uses no chat template
  size_t note_each = 0;                 // profiles one of this many steps; 0 profiles none
  Sampling sampling = {};
};

// One answer with its figures. The first token counts as part of the prompt.
struct Answer {
  std::vector<int32_t> prompt, ids;
  std::string text;
  std::string_view stopped = "end";  // else "tokens", "context" or "interrupted"
  size_t forgotten = 0;              // turns dropped to make room
  double prompt_ms = 0, decode_ms = 0;
  size_t steps = 0, noted = 0;  // steps of decoding, and how many of them are in of_decode
  std::vector<double> outside;  // ms outside of kernels, for some steps
  Profile of_prompt, of_decode;
};

class Conversation {
 public:
  // Called while the first pass reads the weights, and kernels pack them, with bytes of them.
  using Loading = std::function<void(double done, double all)>;
  // All errors of this class are std::runtime_error.
  explicit Conversation(const ConversationSettings& settings, const Loading& loading = {});

  // Receives complete characters as they are generated.
  using Sink = std::function<void(std::string_view)>;
  // Called before each step. The answer ends if it returns true.
  using Interrupted = std::function<bool()>;
  // Forgets the oldest turns if the context is full. After an error the conversation continues
  // without this turn.
  Answer answer(std::string_view prompt, const Sink& sink = {},
                const Interrupted& interrupted = {});
  // Forgets all turns. Replaces the system message if `system` is given.
  void restart(std::optional<std::string> system = {});

  const ConversationSettings& settings() const { return settings_; }
  const Model& model() const { return model_; }
  size_t turns() const { return turns_.size(); }
  size_t tokens() const { return history_.size(); }
  int64_t context() const { return session_.context(); }

 private:
  using Ids = std::vector<int32_t>;
  void begin_turn(std::string_view prompt, Answer& a);
  void decode(int32_t id, Answer& a, const Sink& sink, const Interrupted& interrupted);
  // Drops the oldest turns until `more` tokens fit. Never drops the last turn.
  bool make_room(size_t more, Answer& a);
  // Computes the new tokens and samples the next one. Returns nullopt if interrupted.
  std::optional<int32_t> next(Profile* profile, const Interrupted& interrupted);

  ConversationSettings settings_;
  Model model_;
  Tokenizer tokenizer_;
  Session session_;
  std::optional<ChatTemplate> template_;
  Ids history_;                // the system message, followed by turns
  std::vector<size_t> turns_;  // start of each turn in history_
  size_t system_ = 0;          // tokens of the system message
};

}  // namespace llm
