// SPDX-License-Identifier: Apache-2.0
#include "chat_template.h"

namespace llm {
namespace {

// Replaces each literal `\n` by a newline.
std::string with_newlines(std::string_view text) {
  std::string to;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool is_newline = text.substr(at, 2) == "\\n";
    to.push_back(is_newline ? '\n' : text[at]);
    if (is_newline) ++at;
  }
  return to;
}

}  // namespace

ChatTemplate::ChatTemplate(const Gguf& file) {
  const std::string_view text = file.text("tokenizer.chat_template", "");
  const auto opening = [](const char* role) {
    return cat("<|start_header_id|>", role, "<|end_header_id|>\n\n");
  };
  if (text.find("<|start_header_id|>") != text.npos) {
    open_system_ = opening("system"), open_user_ = opening("user");
    open_answer_ = "<|eot_id|>" + opening("assistant"), end_ = "<|eot_id|>";
    return;
  }
  if (text.find("<|im_start|>") == text.npos)
    file.fail("a chat template with <|im_start|> or <|start_header_id|>, or --raw for none",
              text.empty() ? "none" : "another");
  open_system_ = "<|im_start|>system\n", open_user_ = "<|im_start|>user\n";
  open_answer_ = "<|im_end|>\n<|im_start|>assistant\n", end_ = "<|im_end|>\n";
  // Use the template's system message only if it is literal text without variables.
  const size_t from = text.find("<|im_start|>system"), to = text.find("<|im_end|>", from);
  if (to == text.npos) return;
  const std::string message = with_newlines(text.substr(from, to - from));
  if (message.find_first_of("'\"{}") == message.npos) own_system_ = message + end_;
}

ChatTemplate::Ids ChatTemplate::system(const Tokenizer& t,
                                       std::optional<std::string_view> text) const {
  if (!text) return t.encode({{own_system_, true}});
  return t.encode({{open_system_, true}, {*text}, {end_, true}});
}

ChatTemplate::Ids ChatTemplate::message(const Tokenizer& t, std::string_view text) const {
  return t.encode({{open_user_, true}, {text}, {open_answer_, true}});
}

}  // namespace llm
