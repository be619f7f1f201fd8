// SPDX-License-Identifier: Apache-2.0
// Finds the texts that a model expects around the messages of a conversation. Templates in model
// files are programs; only two common forms are recognised.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer.h"

namespace llm {

class ChatTemplate {
 public:
  using Ids = std::vector<int32_t>;
  // Throws std::runtime_error if the file has no template or one of another form.
  explicit ChatTemplate(const Gguf& file);

  // Returns the system message. Without `text`, uses the message of the template, if it has one.
  Ids system(const Tokenizer& t, std::optional<std::string_view> text) const;
  // Returns a message of the user, up to the beginning of the answer.
  Ids message(const Tokenizer& t, std::string_view text) const;
  Ids end(const Tokenizer& t) const { return t.encode({{end_, true}}); }

 private:
  std::string open_system_, open_user_, open_answer_, end_;
  std::string own_system_;  // with the text around the message; may be empty
};

}  // namespace llm
