// SPDX-License-Identifier: Apache-2.0
#include "top/frame.h"

#include <fmt/format.h>
#include <yard/log.h>

#include <algorithm>

namespace yard::tool {
namespace {

constexpr size_t kNoLimit = SIZE_MAX;

size_t columns_of(std::string_view s) {
  return static_cast<size_t>(
      std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

// At most `width` columns; the end of a longer text is replaced by `~`.
std::string clipped(std::string_view text, size_t width) {
  if (columns_of(text) <= width) return std::string(text);
  if (width == 0) return {};
  size_t at = 0;
  for (size_t n = 0; n < width; ++n) do
      ++at;
    while (at < text.size() && (text[at] & 0xc0) == 0x80);
  // `at` is behind `width` characters: the last of them gives way to the mark.
  do --at;
  while (at > 0 && (text[at] & 0xc0) == 0x80);
  return std::string(text.substr(0, at)) + '~';
}

// A line that is put together from pieces and never wider than the screen.
class Line {
 public:
  explicit Line(size_t width) : left_(width) {}
  Line& add(std::string_view text, Paint p = Paint::kPlain) {
    std::string shown = clipped(printable(text, kNoLimit), left_);
    left_ -= columns_of(shown);
    pieces_.push_back({std::move(shown), p});
    return *this;
  }
  TopLine take() { return std::move(pieces_); }

 private:
  TopLine pieces_;
  size_t left_;
};

std::string number(double n) {
  const auto text = [](double v, const char* unit) {
    return fmt::format("{:.{}f}{}", v, v < 10 ? 2 : v < 100 ? 1 : 0, unit);
  };
  if (n < 0.005) return "0";
  if (n < 999.5) return text(n, "");
  if (n < 999.5e3) return text(n / 1e3, " k");
  if (n < 999.5e6) return text(n / 1e6, " M");
  return text(n / 1e9, " G");
}

std::string time_text(double ns) { return ns > 0 ? duration(ns) : "-"; }

std::string percent(double part) {
  return part >= 0.9995 ? "100%" : fmt::format("{:.1f}%", part * 100);
}

Cell health_cell(const TopRow& r) {
  switch (r.health) {
    case TopHealth::kHealthy: return {"ok", Paint::kGood};
    case TopHealth::kFailing: return {number(r.failures_per_s) + "/s fail", Paint::kBad};
    case TopHealth::kHalfOpen: return {"half-open", Paint::kWarning};
    case TopHealth::kOpen: return {"open", Paint::kBad};
  }
  return {};
}

// Columns that give way on a narrow screen, the last first; names are clipped before that down to kName.
constexpr size_t kName = 10;

struct Grid {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
  size_t names = 2;  // columns at the left that may be clipped
  size_t least = 0;  // columns that are never left out

  std::vector<size_t> widths() const {
    std::vector<size_t> to;
    for (size_t i = 0; i < columns.size(); ++i) {
      size_t most = columns_of(columns[i].title);
      for (const auto& r : rows) most = std::max(most, columns_of(printable(r[i].text, kNoLimit)));
      to.push_back(most);
    }
    return to;
  }
};

size_t sum_of(const std::vector<size_t>& widths) {
  size_t sum = 0;
  for (const size_t w : widths) sum += w + 2;
  return sum;
}

// Widths that fit: first columns are left out, then names are clipped, the widest first.
std::vector<size_t> fitted(const Grid& grid, size_t width) {
  std::vector<size_t> to = grid.widths();
  if (width == kNoLimit) return to;
  while (to.size() > grid.least && sum_of(to) > width) to.pop_back();
  while (sum_of(to) > width) {
    const auto widest = std::max_element(to.begin(), to.begin() + static_cast<long>(grid.names));
    if (*widest <= kName) break;
    --*widest;
  }
  return to;
}

// The head and the rows as lines; every line begins with two columns for the mark of the cursor.
std::vector<TopLine> lines_of(const Grid& grid, size_t width, const size_t* cursor) {
  const std::vector<size_t> widths = fitted(grid, width);
  const auto line = [&](const std::vector<Cell>& cells, bool head, bool marked) {
    Line to(width);
    to.add(marked ? "> " : "  ", Paint::kBold);
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string text = clipped(printable(cells[i].text, kNoLimit), widths[i]);
      const std::string blanks(widths[i] - columns_of(text), ' ');
      if (grid.columns[i].align == Align::kRight) to.add(blanks);
      to.add(text, head || marked ? Paint::kBold : cells[i].paint);
      if (i + 1 == widths.size()) break;
      if (grid.columns[i].align == Align::kLeft) to.add(blanks);
      to.add("  ");
    }
    return to.take();
  };
  std::vector<TopLine> to;
  std::vector<Cell> head;
  for (const Column& c : grid.columns) head.push_back({c.title});
  to.push_back(line(head, true, false));
  for (size_t i = 0; i < grid.rows.size(); ++i)
    to.push_back(line(grid.rows[i], false, cursor != nullptr && *cursor == i));
  return to;
}

std::string title(const char* text, TopSort of, const TopView& view) {
  if (view.sort != of) return text;
  const bool rising = (of == TopSort::kOp || of == TopSort::kKernel) != view.reverse;
  return fmt::format("{}{}", text, rising ? '^' : 'v');
}

Paint row_paint(const TopRow& r) { return r.calls_per_s > 0 ? Paint::kPlain : Paint::kDim; }

Grid kernel_grid(const std::vector<TopRow>& rows, const TopView& view) {
  Grid to;
  to.columns = {{title("op", TopSort::kOp, view)},
                {title("kernel", TopSort::kKernel, view)},
                {title("calls/s", TopSort::kCalls, view), Align::kRight},
                {"p50", Align::kRight},
                {title("p99", TopSort::kLatency, view), Align::kRight},
                {title("share", TopSort::kShare, view), Align::kRight},
                {title("health", TopSort::kHealth, view)},
                {"fallback/s", Align::kRight},
                {"calls", Align::kRight},
                {"mean", Align::kRight}};
  to.least = 7;
  for (const TopRow& r : rows) {
    const Paint p = row_paint(r);
    to.rows.push_back({{r.op},
                       {r.kernel},
                       {number(r.calls_per_s), p},
                       {time_text(r.p50_ns), p},
                       {time_text(r.p99_ns), p},
                       {percent(r.share), p},
                       health_cell(r),
                       {number(r.fallbacks_per_s), p},
                       {number(static_cast<double>(r.calls)), p},
                       {time_text(r.mean_ns), p}});
  }
  return to;
}

// "f32[8,64], f32[64]@cpu": the op is in the heading.
std::string without_op(const TopRow& r) {
  if (!r.call.starts_with(r.op + "(")) return r.call;
  std::string to = r.call.substr(r.op.size() + 1);
  if (const size_t end = to.rfind(')'); end != to.npos) to.erase(end, 1);
  return to;
}

Grid class_grid(const std::vector<TopRow>& rows, const TopView& view) {
  Grid to;
  to.columns = {{"class"},
                {title("kernel", TopSort::kKernel, view)},
                {title("calls/s", TopSort::kCalls, view), Align::kRight},
                {title("p99", TopSort::kLatency, view), Align::kRight},
                {title("share", TopSort::kShare, view), Align::kRight},
                {title("health", TopSort::kHealth, view)},
                {"p50", Align::kRight},
                {"mode"},
                {"fallback/s", Align::kRight}};
  to.least = 6;
  for (const TopRow& r : rows) {
    const Paint p = row_paint(r);
    to.rows.push_back({{without_op(r)},
                       {r.kernel},
                       {number(r.calls_per_s), p},
                       {time_text(r.p99_ns), p},
                       {percent(r.share), p},
                       health_cell(r),
                       {time_text(r.p50_ns), p},
                       {r.mode},
                       {number(r.fallbacks_per_s), p}});
  }
  return to;
}

std::string breaker_text(const TopBreaker& b) {
  std::string to = fmt::format("{} {}", b.kernel, b.state);
  if (b.until_s > 0) to += fmt::format(" for {}", duration(b.until_s * 1e9));
  if (!b.key.empty()) to += fmt::format(" ({})", b.key);
  if (!b.reason.empty()) to += ": " + b.reason;
  return to;
}

std::vector<TopRow> rows_of_op(const TopData& data, const TopView& view) {
  std::vector<TopRow> of_op;
  for (const TopRow& r : data.model.classes)
    if (r.op == view.op) of_op.push_back(r);
  return chosen_rows(of_op, view.filter, view.sort, view.reverse);
}

// Classes, breakers and plans of an op.
std::vector<TopLine> op_lines(const TopData& data, const TopView& view, size_t width) {
  const std::vector<TopRow> rows = rows_of_op(data, view);
  std::vector<TopLine> to = lines_of(class_grid(rows, view), width, nullptr);
  if (rows.empty()) to.push_back(Line(width).add("  none").take());
  const auto heading = [&](const char* text) {
    to.push_back({});
    to.push_back(Line(width).add("  ").add(text, Paint::kBold).take());
  };
  bool first = true;
  for (const TopBreaker& b : data.model.breakers) {
    if (b.op != view.op) continue;
    if (std::exchange(first, false)) heading("breakers");
    to.push_back(Line(width).add("  ").add(breaker_text(b), Paint::kBad).take());
  }
  heading("plans and rejected candidates");
  for (const TopPlan& p : data.plans) {
    to.push_back(Line(width)
                     .add("  ")
                     .add(p.kernel.empty() ? "no kernel" : p.kernel,
                          p.kernel.empty() ? Paint::kBad : Paint::kGood)
                     .add(fmt::format("  {}{}  ", p.mode, p.direct ? "" : ", watched"), Paint::kDim)
                     .add(p.call)
                     .take());
    for (const TopPlan::Rejected& r : p.rejected)
      to.push_back(Line(width)
                       .add("      " + r.kernel + "  ")
                       .add(r.reason, Paint::kWarning)
                       .add(r.detail.empty() ? "" : ": " + r.detail)
                       .take());
  }
  if (data.plans.empty()) to.push_back(Line(width).add("  none").take());
  return to;
}

std::vector<TopLine> table_lines(const TopData& data, const TopView& view, size_t width,
                                 const size_t* cursor) {
  const std::vector<TopRow> rows =
      chosen_rows(data.model.rows, view.filter, view.sort, view.reverse);
  std::vector<TopLine> to = lines_of(kernel_grid(rows, view), width, cursor);
  if (rows.empty())
    to.push_back(Line(width)
                     .add(data.model.rows.empty() ? "  no calls yet"
                                                  : "  no op or kernel has '" + view.filter + "'")
                     .take());
  return to;
}

// What stands above the table, in any view.
std::vector<TopLine> header(const TopData& data, const TopView& view, size_t width) {
  const TopProcess& p = data.process;
  const TopModel& m = data.model;
  std::vector<TopLine> to;
  to.push_back(Line(width)
                   .add("yard top", Paint::kBold)
                   .add(p.problem.empty() ? "" : "  " + p.problem, Paint::kBad)
                   .add(view.paused ? "  paused" : "", Paint::kWarning)
                   .add(fmt::format("  {} ({})  up {}  {} calls/s  {} hits", p.program, p.pid,
                                    age_text(p.up_s), number(m.calls_per_s), percent(m.hit_rate)))
                   .take());
  const ReloadStats& r = m.reloads;
  Line reloads(width);
  reloads.add(
      fmt::format("generation {}; rules: {}", m.generation, p.rules.empty() ? "none" : p.rules));
  if (p.rules_age_s >= 0) reloads.add(fmt::format(", loaded {} ago", age_text(p.rules_age_s)));
  reloads.add(fmt::format("; reloads: {} applied, {} refused, {} aborted", r.applied, r.refused,
                          r.aborted));
  if (r.last_ns > 0)
    reloads.add(fmt::format(", last took {}", duration(static_cast<double>(r.last_ns))));
  to.push_back(reloads.take());
  if (!r.last_error.empty())
    to.push_back(Line(width).add("last error: " + r.last_error, Paint::kBad).take());
  Line health(width);
  health.add("health: ");
  if (m.breakers.empty())
    health.add("ok", Paint::kGood);
  else if (m.breakers.size() == 1)
    health.add(fmt::format("{}: {}", m.breakers[0].op, breaker_text(m.breakers[0])), Paint::kBad);
  else
    health.add(fmt::format("{} breakers not closed", m.breakers.size()), Paint::kBad);
  if (!p.switches.empty()) health.add("; on: " + p.switches, Paint::kWarning);
  to.push_back(health.take());
  if (!p.last_change.empty()) to.push_back(Line(width).add("last change: " + p.last_change).take());
  to.push_back({});
  if (!view.op.empty()) {
    double calls = 0, share = 0;
    for (const TopRow& row : m.rows)
      if (row.op == view.op) calls += row.calls_per_s, share += row.share;
    to.push_back(
        Line(width)
            .add(view.op, Paint::kBold)
            .add(fmt::format("  {} calls/s, {} of the time", number(calls), percent(share)))
            .take());
  }
  return to;
}

TopLine footer(const TopView& view, size_t width) {
  if (view.typing) return Line(width).add("/" + view.filter + "_", Paint::kBold).take();
  Line to(width);
  if (!view.op.empty())
    to.add("Esc back  arrows scroll  ");
  else
    to.add("Enter opens an op  ");
  to.add("/ filter");
  if (!view.filter.empty()) to.add(": " + view.filter, Paint::kWarning);
  to.add(fmt::format("  sort: {}  r reverse  ? help  q quit", to_string(view.sort)));
  return to.take();
}

const std::vector<const char*>& help_lines() {
  static const std::vector<const char*> lines = {
      "Keys",
      "  up, down, j, k, PgUp, PgDn, Home, End   move",
      "  Enter         open an op: its classes, plans and rejected candidates",
      "  Esc           back; clears the filter",
      "  /             filter by op, kernel or call; Enter keeps it",
      "  s c l h o n   sort by share, calls, latency, health, op, name of the kernel",
      "  r             reverse the order",
      "  space         pause and go on",
      "  q             quit",
      "",
      "Columns",
      "  calls/s       calls that the kernel served in the last interval",
      "  p50, p99      latency that half and 99 % of the sampled calls did not exceed",
      "  share         mean latency x calls, as part of the time of all kernels",
      "  health        ok; failures a second; circuit breaker open or half-open",
      "  fallback/s    calls that it served after another kernel had failed",
      "  class         calls that are alike in all that the selection reads",
      "",
      "Press a key to go on."};
  return lines;
}

size_t count_of_rows(const TopData& data, const TopView& view) {
  return chosen_rows(data.model.rows, view.filter, view.sort, view.reverse).size();
}

}  // namespace

std::vector<TopLine> frame(const TopData& data, TopView& view, size_t width, size_t height) {
  std::vector<TopLine> to;
  if (view.help) {
    for (const char* line : help_lines()) to.push_back(Line(width).add(line).take());
    to.resize(height);
    return to;
  }
  to = header(data, view, width);
  std::vector<TopLine> body;
  size_t pinned = 1;  // lines of the body that do not scroll
  if (view.op.empty()) {
    const size_t rows = count_of_rows(data, view);
    view.cursor = rows == 0 ? 0 : std::min(view.cursor, rows - 1);
    body = table_lines(data, view, width, &view.cursor);
  } else {
    body = op_lines(data, view, width);
    pinned = 0;
  }
  if (height > 0 && to.size() + 3 > height) to.resize(std::min(to.size(), size_t{1}));
  const size_t room = height > to.size() + pinned + 1 ? height - to.size() - pinned - 1 : 0;
  const size_t lines = body.size() - pinned;
  if (view.op.empty() && room > 0) {
    if (view.cursor < view.scroll) view.scroll = view.cursor;
    if (view.cursor >= view.scroll + room) view.scroll = view.cursor + 1 - room;
  }
  view.scroll = std::min(view.scroll, lines > room ? lines - room : 0);
  for (size_t i = 0; i < pinned; ++i) to.push_back(body[i]);
  for (size_t i = 0; i < room && view.scroll + i < lines; ++i)
    to.push_back(body[pinned + view.scroll + i]);
  to.resize(height > 0 ? height - 1 : 0);
  if (height > 0) to.push_back(footer(view, width));
  return to;
}

std::string plain_frame(const TopData& data, const TopView& view) {
  std::vector<TopLine> lines = header(data, view, kNoLimit);
  for (TopLine& line : view.op.empty() ? table_lines(data, view, kNoLimit, nullptr)
                                       : op_lines(data, view, kNoLimit))
    lines.push_back(std::move(line));
  std::string to;
  for (const TopLine& line : lines) {
    for (const Cell& piece : line) to += paint(piece.paint, piece.text);
    to += '\n';
  }
  return to;
}

}  // namespace yard::tool
