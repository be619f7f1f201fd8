// SPDX-License-Identifier: Apache-2.0
// Finds the texts that a model expects around the messages of a conversation. Templates of model files are programs; two
// common forms are recognised.
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
  // Errors, as std::runtime_error: a file without a template, or with one of another form.
  explicit ChatTemplate(const Gguf& file);

  // The system message. Without a text it is the one in the template, if there is one there.
  Ids system(const Tokenizer& t, std::optional<std::string_view> text) const;
  // A message of the user, up to where the answer begins.
  Ids message(const Tokenizer& t, std::string_view text) const;
  // The text that ends an answer.
  Ids end(const Tokenizer& t) const { return t.encode({{end_, true}}); }

 private:
  std::string open_system_, open_user_, open_answer_, end_;
  std::string own_system_;  // with what stands around it; may be empty
};

}  // namespace llm
