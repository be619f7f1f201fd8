// SPDX-License-Identifier: Apache-2.0
#include "line_reader.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>

#if YARD_CHAT_LIBEDIT
#include <histedit.h>
#endif

namespace llm {

#if YARD_CHAT_LIBEDIT

struct LineReader::Editor {
  Editor() {
    std::setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
    HistEvent event;
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    ::el_set(edit, EL_CLIENTDATA, this);
    ::el_set(
        edit, EL_PROMPT, +[](EditLine* e) { return of(e).prompt; });
    ::el_set(edit, EL_EDITOR, "emacs");
    ::el_set(edit, EL_HIST, ::history, history);
    // While a line is edited, ctrl-C is a key and does not raise a signal.
    ::el_set(edit, EL_SETTY, "-d", "-isig", nullptr);
    const auto on_interrupt = [](EditLine* e, int) -> unsigned char {
      of(e).interrupted = true;
      return CC_EOF;
    };
    ::el_set(edit, EL_ADDFN, "interrupt", "Discards the line", +on_interrupt);
    ::el_set(edit, EL_BIND, "^C", "interrupt", nullptr);
  }
  ~Editor() {
    ::el_end(edit);
    ::history_end(history);
  }
  static Editor& of(EditLine* e) {
    void* self = nullptr;
    ::el_get(e, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }

  Event read(std::string& line) {
    interrupted = false;
    ::el_resize(edit);
    int length = 0;
    const char* const text = ::el_gets(edit, &length);
    if (text == nullptr || length <= 0) {
      std::fputc('\n', stdout);
      std::fflush(stdout);
      if (!interrupted) return Event::kEnd;
      ::raise(SIGINT);
      return Event::kInterrupt;
    }
    line.assign(text, static_cast<size_t>(length));
    if (line.ends_with('\n')) line.pop_back();
    HistEvent event;
    if (!line.empty()) ::history(history, &event, H_ENTER, line.c_str());
    return Event::kLine;
  }

  const char* prompt = "";
  bool interrupted = false;
  History* history = ::history_init();
  EditLine* edit = ::el_init("yard-chat", stdin, stdout, stderr);
};

#else

struct LineReader::Editor {
  const char* prompt;
  Event read(std::string&) { return Event::kEnd; }
};

#endif

LineReader::LineReader() {
#if YARD_CHAT_LIBEDIT
  if (::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO)) editor_ = std::make_unique<Editor>();
#endif
}
LineReader::~LineReader() = default;

LineReader::Event LineReader::read(const char* prompt, std::string& line) {
  line.clear();
  if (editor_ != nullptr) {
    editor_->prompt = prompt;
    return editor_->read(line);
  }
  std::fputs(prompt, stdout);
  std::fflush(stdout);
  char* text = nullptr;
  size_t room = 0;
  const ssize_t length = ::getline(&text, &room, stdin);
  const int error = errno;
  if (length > 0) line.assign(text, static_cast<size_t>(length));
  std::free(text);
  if (length > 0) {
    if (line.ends_with('\n')) line.pop_back();
    return Event::kLine;
  }
  std::fputc('\n', stdout);
  const bool is_interrupted = std::ferror(stdin) != 0 && error == EINTR;
  std::clearerr(stdin);
  return is_interrupted ? Event::kInterrupt : Event::kEnd;
}

}  // namespace llm
