// SPDX-License-Identifier: Apache-2.0
// A conversation with a model: messages, answers, and what is forgotten when the context is full.
//
//   llm::Conversation conversation({.model = "model.gguf"});
//   llm::Answer answer = conversation.answer("Hello", [](std::string_view text) { std::cout << text; });
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
  std::optional<std::string> system{};  // the system message instead of the template's own
  int64_t tokens = 256;                 // the most of an answer
  int64_t context = 0;   // 0: 2048, or what the model was trained for if that is less
  bool raw = false;      // no chat template
  size_t note_each = 0;  // every how many steps are profiled; 0: none
  Sampling sampling = {};
};

// One answer, and what it took. The first token counts as the prompt's.
struct Answer {
  std::vector<int32_t> prompt, ids;
  std::string text;
  std::string_view stopped = "end";  // or "tokens", "context", "interrupted"
  size_t forgotten = 0;              // turns that were dropped to make room
  double prompt_ms = 0, decode_ms = 0;
  size_t steps = 0, noted = 0;  // of decoding; those in of_decode
  std::vector<double> outside;  // ms outside of kernels, of some steps
  Profile of_prompt, of_decode;
};

class Conversation {
 public:
  // Errors are std::runtime_error, also those of answer().
  explicit Conversation(const ConversationSettings& settings);

  // Gets complete characters of the answer as they come.
  using Sink = std::function<void(std::string_view)>;
  // Asked before each step; the answer ends where it returns true.
  using Interrupted = std::function<bool()>;
  // When the context is full, the oldest turns are forgotten. After an error the conversation goes on without this turn.
  Answer answer(std::string_view prompt, const Sink& sink = {},
                const Interrupted& interrupted = {});
  // Forgets all turns, and replaces the system message if there is one.
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
  // Drops the oldest turns until `more` tokens fit. The last turn is never dropped.
  bool make_room(size_t more, Answer& a);
  // Computes the tokens that the session has not had. Returns nothing if it was interrupted.
  std::optional<int32_t> next(Profile* profile, const Interrupted& interrupted);

  ConversationSettings settings_;
  Model model_;
  Tokenizer tokenizer_;
  Session session_;
  std::optional<ChatTemplate> template_;
  Ids history_;                // the system message, then turns
  std::vector<size_t> turns_;  // where they begin in history_
  size_t system_ = 0;          // tokens of the system message
};

}  // namespace llm
