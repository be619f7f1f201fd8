// SPDX-License-Identifier: Apache-2.0
#include "top/screen.h"

#if YARD_TOOL_CURSES
#define NCURSES_NOMACROS 1  // otherwise `move`, `clear` and others are macros
#include <curses.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <term.h>
#include <unistd.h>

#include <array>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "output.h"

#undef lines  // term.h defines this macro

namespace yard::tool {
namespace {

// The time for the remaining bytes of a key, also over a slow connection.
constexpr int kRestOfKeyMs = 60;

// With SA_RESETHAND a second signal ends the process, even if endwin() crashes.
void handle_crashes(bool on) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  if (on)
    action.sa_handler = [](int signal) {
      ::endwin();
      ::raise(signal);
    };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(s, &action, nullptr);
}

TopInput input_of(int key) {
  switch (key) {
    case KEY_UP: return {TopKey::kUp, 0};
    case KEY_DOWN: return {TopKey::kDown, 0};
    case KEY_PPAGE: return {TopKey::kPageUp, 0};
    case KEY_NPAGE: return {TopKey::kPageDown, 0};
    case KEY_HOME:
    case KEY_FIND: return {TopKey::kHome, 0};
    case KEY_END:
    case KEY_SELECT: return {TopKey::kEnd, 0};
    case KEY_RIGHT:
    case KEY_ENTER:
    case '\r':
    case '\n': return {TopKey::kEnter, 0};
    case KEY_LEFT:
    case 0x1b: return {TopKey::kEscape, 0};
    case KEY_BACKSPACE:
    case 0x7f:
    case '\b': return {TopKey::kBackspace, 0};
    case 'U' & 0x1f: return {TopKey::kClear, 0};
    default: break;
  }
  if (key < 0x20 || key > 0xff) return {};
  return {TopKey::kCharacter, static_cast<char>(key)};
}

int attributes_of(Paint p) {
  if (!colour()) return A_NORMAL;
  switch (p) {
    case Paint::kBold: return A_BOLD;
    case Paint::kDim: return A_DIM;
    case Paint::kGood: return COLOR_PAIR(COLOR_GREEN);
    case Paint::kWarning: return COLOR_PAIR(COLOR_YELLOW);
    case Paint::kBad: return COLOR_PAIR(COLOR_RED);
    case Paint::kPlain: break;
  }
  return A_NORMAL;
}

}  // namespace

struct Screen::Terminal {
  std::FILE* output = nullptr;
  SCREEN* screen = nullptr;
  sigset_t mask{};
  int signals = -1;
};

std::string Screen::unavailable() {
  if (::isatty(STDIN_FILENO) == 0 || !output_is_terminal())
    return "expected a terminal for the live table; use --once or --json for pipes";
  int found = 0;
  if (::setupterm(nullptr, output_descriptor(), &found) == OK) {
    const bool moves = ::tigetstr(const_cast<char*>("cup")) != nullptr;
    ::del_curterm(cur_term);
    if (moves) return {};
  }
  const char* const term = std::getenv("TERM");
  return fmt::format(
      "expected a terminal that can move its cursor, got TERM={}; use --once or --json",
      term != nullptr ? term : "");
}

Screen::Screen() : terminal_(std::make_unique<Terminal>()) {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH})
    ::sigaddset(&wanted, s);
  ::pthread_sigmask(SIG_BLOCK, &wanted, &terminal_->mask);
  terminal_->signals = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  std::setlocale(LC_CTYPE, "");
  flush_output();
  terminal_->output = ::fdopen(::dup(output_descriptor()), "w");
  terminal_->screen = ::newterm(nullptr, terminal_->output, stdin);
  handle_crashes(true);
  ::cbreak(), ::noecho(), ::nonl();
  ::curs_set(0);
  ::set_escdelay(kRestOfKeyMs);
  ::keypad(stdscr, TRUE);
  ::nodelay(stdscr, TRUE);
  if (!colour() || !::has_colors()) return;
  ::start_color();
  ::use_default_colors();
  for (const auto c : {short{COLOR_RED}, short{COLOR_GREEN}, short{COLOR_YELLOW}})
    ::init_pair(c, c, -1);
}

Screen::~Screen() {
  ::endwin();
  handle_crashes(false);
  ::delscreen(terminal_->screen);
  std::fclose(terminal_->output);
  ::close(terminal_->signals);
  ::pthread_sigmask(SIG_SETMASK, &terminal_->mask, nullptr);
}

std::pair<size_t, size_t> Screen::size() const {
  return {static_cast<size_t>(getmaxx(stdscr)), static_cast<size_t>(getmaxy(stdscr))};
}

void Screen::draw(const std::vector<Line>& lines) {
  ::erase();
  for (size_t i = 0; i < lines.size(); ++i) {
    ::move(static_cast<int>(i), 0);
    for (const Cell& piece : lines[i]) {
      ::attrset(attributes_of(piece.paint));
      ::addstr(piece.text.c_str());
    }
  }
  ::refresh();
}

Screen::Event Screen::on_signal() {
  signalfd_siginfo info{};
  if (::read(terminal_->signals, &info, sizeof info) != sizeof info) return {};
  const int signal = static_cast<int>(info.ssi_signo);
  winsize size{};
  switch (signal) {
    case SIGTSTP:
      ::endwin();
      ::raise(SIGSTOP);
      break;
    case SIGCONT: ::endwin(); break;  // the shell has changed the terminal's settings
    case SIGWINCH: break;
    default: return {Event::Kind::kEnd, {}, signal};
  }
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
    ::resizeterm(size.ws_row, size.ws_col);
  ::clearok(curscr, TRUE);  // makes the next draw() write the whole screen
  return {Event::Kind::kResized, {}, 0};
}

Screen::Event Screen::wait(std::chrono::milliseconds most) {
  // Look first for keys that ncurses has read ahead.
  for (bool waited = false;; waited = true) {
    for (int key; (key = ::getch()) != ERR;)
      if (const TopInput input = input_of(key); input.key != TopKey::kNone)
        return {Event::Kind::kKey, input, 0};
    if (waited) return {};
    std::array<pollfd, 2> from = {{{STDIN_FILENO, POLLIN, 0}, {terminal_->signals, POLLIN, 0}}};
    if (::poll(from.data(), from.size(), static_cast<int>(most.count())) <= 0) return {};
    if (from[1].revents != 0) return on_signal();
    if ((from[0].revents & ~POLLIN) != 0) return {Event::Kind::kEnd, {}, 0};
  }
}

}  // namespace yard::tool

#else  // without ncurses

namespace yard::tool {

struct Screen::Terminal {};

std::string Screen::unavailable() {
  return "this yard was built without ncurses, which the live table needs; use --once or --json";
}
Screen::Screen() = default;
Screen::~Screen() = default;
std::pair<size_t, size_t> Screen::size() const { return {80, 24}; }
void Screen::draw(const std::vector<Line>&) {}
Screen::Event Screen::wait(std::chrono::milliseconds) { return {Event::Kind::kEnd, {}, 0}; }

}  // namespace yard::tool
#endif
