// SPDX-License-Identifier: Apache-2.0
#include "top/frame.h"

#include <fmt/format.h>
#include <yard/log.h>

#include <algorithm>
#include <sstream>

#include "templates.h"

namespace yard::tool {
namespace {

constexpr size_t kNoLimit = SIZE_MAX;

// Puts a line together from pieces and clips it at the width of the screen.
class Writer {
 public:
  explicit Writer(size_t width) : left_(width) {}
  Writer& add(std::string_view text, Paint p = Paint::kPlain) {
    std::string shown = clipped(printable(text, kNoLimit), left_);
    left_ -= columns_of(shown);
    pieces_.push_back({std::move(shown), p});
    return *this;
  }
  Line take() { return std::move(pieces_); }

 private:
  Line pieces_;
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

// Adds two columns for the cursor's mark at the left of a table.
std::vector<Line> marked(const Table& table, size_t least, size_t width, const size_t* cursor) {
  std::vector<Line> to = table.lines(width, least);
  for (size_t i = 0; i < to.size(); ++i) {
    const bool here = cursor != nullptr && *cursor + 1 == i;
    Writer line(width);
    line.add(here ? "> " : "  ", Paint::kBold);
    for (const Cell& c : to[i]) line.add(c.text, here ? Paint::kBold : c.paint);
    to[i] = line.take();
  }
  return to;
}

std::string title(const char* text, TopSort of, const TopView& view) {
  if (view.sort != of) return text;
  const bool rising = (of == TopSort::kOp || of == TopSort::kKernel) != view.reverse;
  return fmt::format("{}{}", text, rising ? '^' : '*');
}

Paint row_paint(const TopRow& r) { return r.calls_per_s > 0 ? Paint::kPlain : Paint::kDim; }

std::vector<Line> kernel_lines(const std::vector<TopRow>& rows, const TopView& view, size_t width,
                               const size_t* cursor) {
  Table table(
      fmt::format("{}|{}|{}>|p50>|{}>|{}>|{}|fallback/s>|calls>|mean>",
                  title("op", TopSort::kOp, view), title("kernel", TopSort::kKernel, view),
                  title("calls/s", TopSort::kCalls, view), title("p99", TopSort::kLatency, view),
                  title("share", TopSort::kShare, view), title("health", TopSort::kHealth, view)));
  for (const TopRow& r : rows) {
    const Paint p = row_paint(r);
    table.add({{r.op},
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
  return marked(table, 7, width, cursor);
}

// Returns "f32[8,64], f32[64]@cpu", because the heading has the op.
std::string without_op(const TopRow& r) {
  if (!r.call.starts_with(r.op + "(")) return r.call;
  std::string to = r.call.substr(r.op.size() + 1);
  if (const size_t end = to.rfind(')'); end != to.npos) to.erase(end, 1);
  return to;
}

std::vector<Line> class_lines(const std::vector<TopRow>& rows, const TopView& view, size_t width) {
  Table table(fmt::format(
      "class|{}|{}>|{}>|{}>|{}|p50>|mode|fallback/s>", title("kernel", TopSort::kKernel, view),
      title("calls/s", TopSort::kCalls, view), title("p99", TopSort::kLatency, view),
      title("share", TopSort::kShare, view), title("health", TopSort::kHealth, view)));
  for (const TopRow& r : rows) {
    const Paint p = row_paint(r);
    table.add({{without_op(r)},
               {r.kernel},
               {number(r.calls_per_s), p},
               {time_text(r.p99_ns), p},
               {percent(r.share), p},
               health_cell(r),
               {time_text(r.p50_ns), p},
               {r.mode},
               {number(r.fallbacks_per_s), p}});
  }
  return marked(table, 6, width, nullptr);
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

std::vector<Line> op_lines(const TopData& data, const TopView& view, size_t width) {
  const std::vector<TopRow> rows = rows_of_op(data, view);
  std::vector<Line> to = class_lines(rows, view, width);
  if (rows.empty()) to.push_back(Writer(width).add("  none").take());
  const auto heading = [&](const char* text) {
    to.push_back({});
    to.push_back(Writer(width).add("  ").add(text, Paint::kBold).take());
  };
  bool first = true;
  for (const TopBreaker& b : data.model.breakers) {
    if (b.op != view.op) continue;
    if (std::exchange(first, false)) heading("breakers");
    to.push_back(Writer(width).add("  ").add(breaker_text(b), Paint::kBad).take());
  }
  heading("plans and rejected candidates");
  for (const TopPlan& p : data.plans) {
    to.push_back(Writer(width)
                     .add("  ")
                     .add(p.kernel.empty() ? "no kernel" : p.kernel,
                          p.kernel.empty() ? Paint::kBad : Paint::kGood)
                     .add(fmt::format("  {}{}  ", p.mode, p.direct ? "" : ", watched"), Paint::kDim)
                     .add(p.call)
                     .take());
    for (const TopPlan::Rejected& r : p.rejected)
      to.push_back(Writer(width)
                       .add("      " + r.kernel + "  ")
                       .add(r.reason, Paint::kWarning)
                       .add(r.detail.empty() ? "" : ": " + r.detail)
                       .take());
  }
  if (data.plans.empty()) to.push_back(Writer(width).add("  none").take());
  return to;
}

std::vector<Line> table_lines(const TopData& data, const TopView& view, size_t width,
                              const size_t* cursor) {
  const std::vector<TopRow> rows =
      chosen_rows(data.model.rows, view.filter, view.sort, view.reverse);
  std::vector<Line> to = kernel_lines(rows, view, width, cursor);
  if (rows.empty())
    to.push_back(Writer(width)
                     .add(data.model.rows.empty() ? "  no calls yet"
                                                  : "  no op or kernel has '" + view.filter + "'")
                     .take());
  return to;
}

std::vector<Line> event_lines(const TopData& data, size_t width) {
  std::vector<Line> to;
  for (const std::string& e : data.events) to.push_back(Writer(width).add("  " + e).take());
  if (to.empty()) to.push_back(Writer(width).add("  no events").take());
  return to;
}

std::vector<Line> header(const TopData& data, const TopView& view, size_t width) {
  const TopProcess& p = data.process;
  const TopModel& m = data.model;
  std::vector<Line> to;
  to.push_back(Writer(width)
                   .add("yard top", Paint::kBold)
                   .add(p.problem.empty() ? "" : "  " + p.problem, Paint::kBad)
                   .add(view.paused ? "  paused" : "", Paint::kWarning)
                   .add(fmt::format("  {} ({})  up {}  {} calls/s  {} hits", p.program, p.pid,
                                    age_text(p.up_s), number(m.calls_per_s), percent(m.hit_rate)))
                   .take());
  const RuntimeStats::Reloads& r = m.reloads;
  Writer reloads(width);
  reloads.add(
      fmt::format("generation {}; rules: {}", m.generation, p.rules.empty() ? "none" : p.rules));
  if (p.rules_age_s >= 0) reloads.add(fmt::format(", loaded {} ago", age_text(p.rules_age_s)));
  reloads.add(fmt::format("; reloads: {} applied, {} refused, {} aborted", r.applied, r.refused,
                          r.aborted));
  if (r.last_ns > 0)
    reloads.add(fmt::format(", last took {}", duration(static_cast<double>(r.last_ns))));
  to.push_back(reloads.take());
  if (!r.last_error.empty())
    to.push_back(Writer(width).add("last error: " + r.last_error, Paint::kBad).take());
  Writer health(width);
  health.add("health: ");
  if (m.breakers.empty())
    health.add("ok", Paint::kGood);
  else if (m.breakers.size() == 1)
    health.add(fmt::format("{}: {}", m.breakers[0].op, breaker_text(m.breakers[0])), Paint::kBad);
  else
    health.add(fmt::format("{} breakers not closed", m.breakers.size()), Paint::kBad);
  if (!p.switches.empty()) health.add("; on: " + p.switches, Paint::kWarning);
  to.push_back(health.take());
  if (!m.slower.empty())
    to.push_back(
        Writer(width)
            .add(fmt::format(
                     "slow: {}{}", m.slower[0].text(),
                     m.slower.size() > 1 ? fmt::format(", and {} more", m.slower.size() - 1) : ""),
                 Paint::kWarning)
            .take());
  if (!p.last_change.empty())
    to.push_back(Writer(width).add("last change: " + p.last_change).take());
  to.push_back({});
  if (!view.op.empty()) {
    double calls = 0, share = 0;
    for (const TopRow& row : m.rows)
      if (row.op == view.op) calls += row.calls_per_s, share += row.share;
    to.push_back(
        Writer(width)
            .add(view.op, Paint::kBold)
            .add(fmt::format("  {} calls/s, {} of the time", number(calls), percent(share)))
            .take());
  }
  return to;
}

Line footer(const TopView& view, size_t width) {
  if (view.typing) return Writer(width).add("/" + view.filter + "_", Paint::kBold).take();
  Writer to(width);
  if (view.events || !view.op.empty())
    to.add("Esc back  arrows scroll  ");
  else
    to.add("Enter opens an op  ");
  to.add("/ filter");
  if (!view.filter.empty()) to.add(": " + view.filter, Paint::kWarning);
  to.add(fmt::format("  sort: {}  r reverse  ? help  q quit", to_string(view.sort)));
  return to.take();
}

size_t count_of_rows(const TopData& data, const TopView& view) {
  return chosen_rows(data.model.rows, view.filter, view.sort, view.reverse).size();
}

}  // namespace

std::vector<Line> frame(const TopData& data, TopView& view, size_t width, size_t height) {
  std::vector<Line> to;
  if (view.help) {
    std::istringstream text(fill_in("top_keys.txt", {}));
    for (std::string line; std::getline(text, line);) to.push_back(Writer(width).add(line).take());
    to.resize(height);
    return to;
  }
  to = header(data, view, width);
  std::vector<Line> body;
  size_t pinned = 1;  // number of body lines that do not scroll
  if (view.events) {
    body = event_lines(data, width);
    pinned = 0;
  } else if (view.op.empty()) {
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
  if (view.op.empty() && !view.events && room > 0) {
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
  std::vector<Line> lines = header(data, view, kNoLimit);
  for (Line& line : view.op.empty() ? table_lines(data, view, kNoLimit, nullptr)
                                    : op_lines(data, view, kNoLimit))
    lines.push_back(std::move(line));
  std::string to;
  for (const Line& line : lines) {
    for (const Cell& piece : line) to += paint(piece.paint, piece.text);
    to += '\n';
  }
  return to;
}

}  // namespace yard::tool
