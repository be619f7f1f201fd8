// SPDX-License-Identifier: Apache-2.0
#include "top/frame.h"

#include <gtest/gtest.h>

namespace yard::tool {
namespace {

TopRow row(const char* op, const char* kernel, double calls, double ns, double share) {
  TopRow r;
  r.op = op, r.kernel = kernel;
  r.calls_per_s = calls, r.p50_ns = ns, r.p99_ns = 2 * ns, r.mean_ns = ns, r.share = share;
  r.calls = 1234567;
  return r;
}

TopData example() {
  TopData d;
  d.process = {4242, "serve", "0.1.0", 751, "version 3 of rules.yaml", 12, "", "", ""};
  d.model.generation = 7, d.model.calls_per_s = 1234, d.model.interval_s = 1;
  d.model.rows = {row("rms_norm", "vendor.acme", 812345, 12400, 0.712),
                  row("rms_norm", "default.simd", 52, 830, 0.1),
                  row("softmax", "default.simd", 0, 0, 0)};
  d.model.rows[0].health = TopHealth::kOpen;
  d.model.rows[1].health = TopHealth::kFailing, d.model.rows[1].failures_per_s = 3;
  d.model.classes = {row("rms_norm", "vendor.acme", 812345, 12400, 0.712)};
  d.model.classes[0].call = "rms_norm(f32[8,5120], f32[5120])@cpu",
  d.model.classes[0].mode = "auto";
  d.model.breakers = {{"rms_norm", "vendor.acme", "", "open", "5 failures in a row", 12}};
  d.model.reloads = {3, 1, 0, 1200000, 3000000, ""};
  return d;
}
std::vector<std::string> screen(const TopData& data, TopView& view, size_t width, size_t height) {
  std::vector<std::string> to;
  for (const Line& line : frame(data, view, width, height)) {
    to.emplace_back();
    for (const Cell& piece : line) to.back() += piece.text;
  }
  return to;
}
std::string text(const std::vector<std::string>& lines) {
  std::string to;
  for (const std::string& l : lines) to += l + "\n";
  return to;
}
TopInput key(TopKey k) { return {k, 0}; }
TopInput key(char c) { return {TopKey::kCharacter, c}; }

constexpr const char* kTable =
    R"(yard top  serve (4242)  up 13 min  1.23 k calls/s  100% hits
generation 7; rules: version 3 of rules.yaml, loaded 12 s ago; reloads: 3 appli~
health: rms_norm: vendor.acme open for 12.0 s: 5 failures in a row

  op        kernel        calls/s      p50      p99  share*  health
> rms_norm  vendor.acme     812 k  12.4 us  24.8 us   71.2%  open
  rms_norm  default.simd     52.0   830 ns  1.66 us   10.0%  3.00/s fail
  softmax   default.simd        0        -        -    0.0%  ok

Enter opens an op  / filter  sort: share  r reverse  ? help  q quit
)";

TEST(TopFrame, TheTable) {
  TopView view;
  EXPECT_EQ(text(screen(example(), view, 80, 10)), kTable);
}

TEST(TopFrame, WideScreensHaveMoreColumns) {
  TopView view;
  const auto lines = screen(example(), view, 130, 24);
  EXPECT_EQ(lines[4],
            "  op        kernel        calls/s      p50      p99  share*  health       fallback/s"
            "   calls     mean");
  EXPECT_EQ(lines[5],
            "> rms_norm  vendor.acme     812 k  12.4 us  24.8 us   71.2%  open                  0"
            "  1.23 M  12.4 us");
}

TEST(TopFrame, EveryLineFitsAnyScreen) {
  TopData d = example();
  d.model.rows[0].op = "attention.sliding_window.with.a.very.long.name";
  d.model.rows[0].kernel = "vendor.a_long_name_of_a_kernel_that_nobody_types";
  d.model.reloads.last_error = std::string(300, 'x');
  d.plans = {{std::string(200, 'y'), "k", "auto", true, {{"z", "dtype", std::string(200, 'w')}}}};
  for (const char* op : {"", "rms_norm"})
    for (const bool help : {false, true})
      for (size_t width = 0; width < 140; ++width)
        for (const size_t height : {0, 1, 2, 3, 5, 9, 24, 60}) {
          TopView view;
          view.op = op, view.help = help;
          const auto lines = screen(d, view, width, height);
          ASSERT_EQ(lines.size(), height);
          for (const std::string& l : lines) ASSERT_LE(l.size(), width) << l;
        }
}

TEST(TopFrame, NamesAreClippedBeforeFigures) {
  TopData d = example();
  d.model.rows[0].op = "attention.sliding_window.causal";
  TopView view;
  const auto lines = screen(d, view, 80, 24);
  EXPECT_EQ(lines[5], "> attention.slidi~  vendor.acme     812 k  12.4 us  24.8 us   71.2%  open");
}

TEST(TopFrame, TextsOfTheProcessAreEscaped) {
  TopData d = example();
  d.process.program = "\x1b[31mx\n";
  d.model.rows[0].kernel = "a\x1b]0;b\a";
  TopView view;
  for (const std::string& l : screen(d, view, 200, 24)) {
    EXPECT_EQ(l.find('\x1b'), std::string::npos) << l;
    EXPECT_EQ(l.find('\n'), std::string::npos) << l;
  }
  EXPECT_NE(text(screen(d, view, 200, 24)).find("\\x1b"), std::string::npos);
}

TEST(TopFrame, AnOpHasItsClassesBreakersAndPlans) {
  TopData d = example();
  d.plans = {{"rms_norm(f32[8,5120], f32[5120])@cpu",
              "default.simd",
              "auto",
              false,
              {{"vendor.acme", "unhealthy", "open for 12 s"}, {"reference.cpp", "outranked", ""}}}};
  TopView view;
  ASSERT_TRUE(handle_key(key(TopKey::kEnter), d, 24, view));
  EXPECT_EQ(view.op, "rms_norm");
  EXPECT_EQ(text(screen(d, view, 100, 19)).substr(text(screen(d, view, 100, 19)).find("\n\n") + 2),
            R"(rms_norm  812 k calls/s, 81.2% of the time
  class                       kernel       calls/s      p99  share*  health      p50  mode
  f32[8,5120], f32[5120]@cpu  vendor.acme    812 k  24.8 us   71.2%  ok      12.4 us  auto

  breakers
  vendor.acme open for 12.0 s: 5 failures in a row

  plans and rejected candidates
  default.simd  auto, watched  rms_norm(f32[8,5120], f32[5120])@cpu
      vendor.acme  unhealthy: open for 12 s
      reference.cpp  outranked



Esc back  arrows scroll  / filter  sort: share  r reverse  ? help  q quit
)");
  ASSERT_TRUE(handle_key(key(TopKey::kEscape), d, 24, view));
  EXPECT_EQ(text(screen(d, view, 80, 10)), kTable);
}

TEST(TopFrame, TheCursorStaysOnTheScreen) {
  TopData d = example();
  d.model.rows.clear();
  for (int i = 0; i < 100; ++i)
    d.model.rows.push_back(row("f", ("k" + std::to_string(i)).c_str(), 1, 1, 0.01));
  TopView view;
  const auto marked = [&] {
    for (const std::string& l : screen(d, view, 80, 12))
      if (l.starts_with("> ")) return l.substr(0, 9);
    return std::string();
  };
  EXPECT_EQ(marked(), "> f   k0 ");
  handle_key(key(TopKey::kEnd), d, 12, view);
  EXPECT_EQ(marked(), "> f   k99");
  handle_key(key(TopKey::kDown), d, 12, view);
  EXPECT_EQ(marked(), "> f   k99");
  handle_key(key('k'), d, 12, view);
  EXPECT_EQ(marked(), "> f   k98");
  handle_key(key(TopKey::kPageUp), d, 12, view);
  EXPECT_EQ(marked(), "> f   k94");
  handle_key(key(TopKey::kHome), d, 12, view);
  handle_key(key('j'), d, 12, view);
  EXPECT_EQ(marked(), "> f   k1 ");
  d.model.rows.clear();
  EXPECT_EQ(marked(), "");
  EXPECT_TRUE(handle_key(key(TopKey::kEnter), d, 12, view));
  EXPECT_EQ(view.op, "");
}

TEST(TopFrame, AFilterIsTyped) {
  const TopData d = example();
  TopView view;
  for (const char c : {'/', 's', 'o', 'q'}) EXPECT_TRUE(handle_key(key(c), d, 24, view));
  EXPECT_EQ(screen(d, view, 80, 10).back(), "/soq_");
  EXPECT_NE(text(screen(d, view, 80, 10)).find("no op or kernel has 'soq'"), std::string::npos);
  handle_key(key(TopKey::kBackspace), d, 24, view);
  handle_key(key(TopKey::kEnter), d, 24, view);
  const auto lines = screen(d, view, 80, 10);
  EXPECT_EQ(lines[5].substr(0, 12), "> softmax  d");
  EXPECT_EQ(lines[6], "");
  EXPECT_EQ(lines.back(),
            "Enter opens an op  / filter: so  sort: share  r reverse  ? help  q quit");
  handle_key(key(TopKey::kEscape), d, 24, view);
  EXPECT_EQ(text(screen(d, view, 80, 10)), kTable);
  handle_key(key('/'), d, 24, view);
  handle_key(key('x'), d, 24, view);
  handle_key(key(TopKey::kClear), d, 24, view);
  EXPECT_EQ(view.filter, "");
}

TEST(TopFrame, KeysSortHelpAndQuit) {
  const TopData d = example();
  TopView view;
  handle_key(key('o'), d, 24, view);
  handle_key(key('r'), d, 24, view);
  const auto lines = screen(d, view, 80, 10);
  EXPECT_EQ(lines[4].substr(0, 14), "  op*       ke");
  EXPECT_EQ(lines[5].substr(0, 12), "> softmax   ");
  handle_key(key('?'), d, 24, view);
  EXPECT_EQ(screen(d, view, 80, 24)[0], "Keys");
  EXPECT_EQ(text(screen(d, view, 80, 24)).find('~'), std::string::npos) << "all of it is shown";
  EXPECT_TRUE(handle_key(key('q'), d, 24, view)) << "leaves the help";
  EXPECT_FALSE(view.help);
  EXPECT_FALSE(handle_key(key('q'), d, 24, view));
}

TEST(TopFrame, AFrameForPipesHasAllRows) {
  TopData d = example();
  for (int i = 0; i < 100; ++i) d.model.rows.push_back(row("f", "k", 1, 1, 0.01));
  const std::string all = plain_frame(d, {});
  EXPECT_EQ(std::count(all.begin(), all.end(), '\n'), 4 + 1 + 103);
  EXPECT_EQ(all.find('>'), std::string::npos);
}

TEST(TopFrame, EventsAreShownUntilEscape) {
  TopData d = example();
  d.events = {"12:00:01  breaker_opened  rms_norm vendor.acme: bad", "12:00:00  rules  a.yaml"};
  TopView view;
  handle_key(key('e'), d, 24, view);
  const auto lines = screen(d, view, 80, 24);
  EXPECT_EQ(lines[4], "  " + d.events[0]);
  EXPECT_EQ(lines[5], "  " + d.events[1]);
  EXPECT_EQ(lines[6], "");
  EXPECT_TRUE(lines[23].starts_with("Esc back"));
  handle_key(key(TopKey::kDown), d, 24, view);
  handle_key(key(TopKey::kEnter), d, 24, view);
  EXPECT_EQ(view.op, "");
  for (size_t height : {0u, 1u, 2u, 6u}) EXPECT_EQ(screen(d, view, 80, height).size(), height);
  handle_key(key(TopKey::kEscape), d, 24, view);
  EXPECT_EQ(text(screen(d, view, 80, 10)), kTable);
}

}  // namespace
}  // namespace yard::tool
