// SPDX-License-Identifier: Apache-2.0
#include "top/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "output.h"

namespace yard::tool {
namespace {

// The alternate screen without a cursor; and back, with all attributes off.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?25h\x1b[?1049l";
constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
// How long the rest of a key's bytes may take, over a slow connection too.
constexpr int kRestOfKeyMs = 60;

// For the handler after a crash.
struct Restore {
  int output = -1;
  termios settings{};
};
Restore g_restore;

// The crash itself follows: the handler is reset when it is entered.
void restore_after_crash(int signal) {
  [[maybe_unused]] const ssize_t n = ::write(g_restore.output, kLeave.data(), kLeave.size());
  ::tcsetattr(STDIN_FILENO, TCSANOW, &g_restore.settings);
  ::raise(signal);
}

void handle_crashes(bool on) {
  struct sigaction action {};
  action.sa_handler = on ? restore_after_crash : SIG_DFL;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int s : kCrashes) ::sigaction(s, &action, nullptr);
}

TopInput key_of(std::string_view sequence) {
  static constexpr std::pair<std::string_view, TopKey> kKeys[] = {
      {"[A", TopKey::kUp},    {"OA", TopKey::kUp},      {"[B", TopKey::kDown},
      {"OB", TopKey::kDown},  {"[5~", TopKey::kPageUp}, {"[6~", TopKey::kPageDown},
      {"[H", TopKey::kHome},  {"OH", TopKey::kHome},    {"[1~", TopKey::kHome},
      {"[7~", TopKey::kHome}, {"[F", TopKey::kEnd},     {"OF", TopKey::kEnd},
      {"[4~", TopKey::kEnd},  {"[8~", TopKey::kEnd},    {"[C", TopKey::kEnter},
      {"OC", TopKey::kEnter}, {"[D", TopKey::kEscape},  {"OD", TopKey::kEscape},
      {"OM", TopKey::kEnter}};
  for (const auto& [text, key] : kKeys)
    if (sequence == text) return {key, 0};
  return {};
}

// Bytes of the sequence behind the escape byte; 0: it is not complete.
size_t length_of(std::string_view rest) {
  if (rest.empty()) return 0;
  if (rest[0] == 'O') return rest.size() > 1 ? 2 : 0;
  if (rest[0] != '[') return 1;
  for (size_t i = 1; i < rest.size(); ++i)
    if (rest[i] >= 0x40 && rest[i] <= 0x7e) return i + 1;
  return 0;
}

TopInput plain_key(char c) {
  switch (c) {
    case '\r':
    case '\n': return {TopKey::kEnter, 0};
    case 0x7f:
    case '\b': return {TopKey::kBackspace, 0};
    case 0x15: return {TopKey::kClear, 0};  // ctrl-U
    default: break;
  }
  if (static_cast<unsigned char>(c) < 0x20) return {};
  return {TopKey::kCharacter, c};
}

}  // namespace

TopInput take_key(std::string& bytes, bool complete) {
  while (!bytes.empty()) {
    if (bytes[0] != '\x1b') {
      const TopInput key = plain_key(bytes[0]);
      bytes.erase(0, 1);
      if (key.key != TopKey::kNone) return key;
      continue;
    }
    const std::string_view rest = std::string_view(bytes).substr(1);
    const size_t length = length_of(rest);
    if (length == 0 && !complete) return {};
    // The key itself, or before another key.
    if (rest.empty() || rest[0] == '\x1b' || (length == 0 && complete)) {
      bytes.erase(0, length == 0 ? bytes.size() : 1);
      return {TopKey::kEscape, 0};
    }
    const TopInput key = key_of(rest.substr(0, length));
    bytes.erase(0, 1 + length);
    if (key.key != TopKey::kNone) return key;
  }
  return {};
}

struct Screen::Terminal {
  termios before{};
  sigset_t mask{};
  int signals = -1;
  std::string bytes;  // of keys that are not complete
  bool gone = false;
};

bool Screen::possible() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDIN_FILENO) != 0 && output_is_terminal() && term != nullptr && *term != '\0' &&
         std::string_view(term) != "dumb";
}

Screen::Screen() : terminal_(std::make_unique<Terminal>()) {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH})
    ::sigaddset(&wanted, s);
  ::pthread_sigmask(SIG_BLOCK, &wanted, &terminal_->mask);
  terminal_->signals = ::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  ::tcgetattr(STDIN_FILENO, &terminal_->before);
  g_restore = {output_descriptor(), terminal_->before};
  handle_crashes(true);
  enter();
}

Screen::~Screen() {
  leave();
  handle_crashes(false);
  if (terminal_->signals >= 0) ::close(terminal_->signals);
  ::pthread_sigmask(SIG_SETMASK, &terminal_->mask, nullptr);
}

void Screen::enter() {
  termios raw = terminal_->before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_iflag &= ~static_cast<tcflag_t>(IXON);
  raw.c_cc[VMIN] = 1, raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  write_out(kEnter);
  flush_output();
}

void Screen::leave() {
  write_out(kLeave);
  flush_output();
  ::tcsetattr(STDIN_FILENO, TCSANOW, &terminal_->before);
}

std::pair<size_t, size_t> Screen::size() const {
  winsize w{};
  if (::ioctl(STDIN_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 && w.ws_row > 0)
    return {w.ws_col, w.ws_row};
  return {80, 24};
}

void Screen::draw(const std::vector<std::string>& lines) {
  // In one piece, each line erased behind its text: nothing flickers.
  std::string to = "\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) to += (i > 0 ? "\r\n" : "") + lines[i] + "\x1b[K";
  write_out(to + "\x1b[J");
  flush_output();
}

Screen::Event Screen::on_signal() {
  signalfd_siginfo info{};
  if (::read(terminal_->signals, &info, sizeof info) != sizeof info) return {};
  const int signal = static_cast<int>(info.ssi_signo);
  switch (signal) {
    case SIGTSTP:
      leave();
      ::raise(SIGSTOP);
      enter();
      return {Event::Kind::kResized, {}, 0};
    case SIGCONT: enter(); return {Event::Kind::kResized, {}, 0};
    case SIGWINCH: return {Event::Kind::kResized, {}, 0};
    default: return {Event::Kind::kEnd, {}, signal};
  }
}

Screen::Event Screen::wait(std::chrono::milliseconds most) {
  std::string& bytes = terminal_->bytes;
  if (const TopInput key = take_key(bytes, false); key.key != TopKey::kNone)
    return {Event::Kind::kKey, key, 0};
  if (terminal_->gone) return {Event::Kind::kEnd, {}, 0};
  std::array<pollfd, 2> from = {{{STDIN_FILENO, POLLIN, 0}, {terminal_->signals, POLLIN, 0}}};
  const int timeout = bytes.empty() ? static_cast<int>(most.count()) : kRestOfKeyMs;
  const int ready = ::poll(from.data(), from.size(), timeout);
  if (ready < 0) return {};
  if (ready == 0) {
    const TopInput key = take_key(bytes, true);
    return {key.key != TopKey::kNone ? Event::Kind::kKey : Event::Kind::kTimeout, key, 0};
  }
  if (from[1].revents != 0) return on_signal();
  char read_bytes[256];
  const ssize_t n = ::read(STDIN_FILENO, read_bytes, sizeof read_bytes);
  if (n > 0)
    bytes.append(read_bytes, static_cast<size_t>(n));
  else if (n == 0 || errno != EINTR)
    terminal_->gone = true;
  return wait(std::chrono::milliseconds(0));
}

}  // namespace yard::tool
