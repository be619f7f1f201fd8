// SPDX-License-Identifier: Apache-2.0
// yard bench kernels: how fast each kernel of the built-in ops is, beside a plain copy.
#include <fmt/format.h>
#include <yard/call_spec.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include "arguments.h"
#include "commands.h"
#include "host_access.h"
#include "json.h"
#include "kernel_timing.h"
#include "output.h"
#include "progress.h"
#include "table.h"

namespace yard::tool {
namespace {

struct KernelsQuestion {
  std::vector<std::string> ops, dtypes = {"f32", "bf16"};
  std::vector<int64_t> rows = {1, 64, 4096};
  int64_t hidden = 4096;
  double seconds = 0.3;
  bool json = false;
};

struct KernelFigure {
  std::string id;
  double ns = 0;
  double over_copy = 0;   // speed over the copy's
  bool selected = false;  // runs for a call without options
};

// One call, with every kernel that can serve it.
struct CallFigures {
  std::string op, dtype, call;
  int64_t rows = 0;
  uint64_t bytes = 0;  // of all tensors, once
  double copy_ns = 0;
  int copy_threads = 1;
  std::vector<KernelFigure> kernels;
  std::vector<std::pair<std::string, std::string>> skipped;  // id, reason
};

// A kernel forced on the call's tensors; the time of the kernel alone, without dispatch.
Timed forced(const ParsedCall& call, const CallTensors& data, const std::string& id) {
  return [&call, &data, id](int64_t n) {
    ResultRecord record;
    Options o;
    o.force = id;
    o.result = &record;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      Runtime::shared().call(call.op, data.args(), o).or_throw();
      sum += static_cast<double>(record.run_ns);
    }
    return sum / static_cast<double>(n);
  };
}

Result<CallFigures> measure_kernels(const KernelsQuestion& q, CallFigures f) {
  const auto call = Runtime::shared().parse(f.call);
  if (!call.ok()) return call.status();
  const auto plan = Runtime::shared().explain(f.call);
  if (!plan.ok()) return plan.status();
  YARD_RETURN_IF_ERROR(CallTensors::check(*call, 2));
  const CallTensors data(*call, 1);
  f.bytes = data.traffic();
  const Copy copy(f.bytes);
  std::vector<Timed> paths = {copy.one_thread(), copy.all_threads()};
  for (const Candidate& c : plan->candidates) {
    if (c.verdict == "rejected") {
      f.skipped.emplace_back(c.id, c.detail.empty() ? c.reason : c.detail);
      continue;
    }
    f.kernels.push_back({c.id, 0, 0, c.id == plan->selected});
    paths.push_back(forced(*call, data, c.id));
  }
  const std::vector<double> ns = time_in_turn(paths, q.seconds);
  f.copy_ns = std::min(ns[0], ns[1]);
  f.copy_threads = ns[1] < ns[0] ? host_threads() : 1;
  for (size_t i = 0; i < f.kernels.size(); ++i) {
    f.kernels[i].ns = ns[i + 2];
    f.kernels[i].over_copy = f.copy_ns / ns[i + 2];
  }
  return f;
}

double gb_per_s(uint64_t bytes, double ns) { return static_cast<double>(bytes) / ns; }

Json figures_json(const KernelsQuestion& q, const std::vector<CallFigures>& figures) {
  Json results = Json::array();
  for (const CallFigures& f : figures) {
    Json kernels = Json::array(), skipped = Json::array();
    for (const KernelFigure& k : f.kernels)
      kernels.push_back({{"id", k.id},
                         {"ns", k.ns},
                         {"gb_per_s", gb_per_s(f.bytes, k.ns)},
                         {"over_copy", k.over_copy},
                         {"selected", k.selected}});
    for (const auto& [id, reason] : f.skipped) skipped.push_back({{"id", id}, {"reason", reason}});
    results.push_back({{"op", f.op},
                       {"dtype", f.dtype},
                       {"rows", f.rows},
                       {"call", f.call},
                       {"bytes", f.bytes},
                       {"copy_ns", f.copy_ns},
                       {"copy_gb_per_s", gb_per_s(f.bytes, f.copy_ns)},
                       {"copy_threads", f.copy_threads},
                       {"kernels", std::move(kernels)},
                       {"skipped", std::move(skipped)}});
  }
  return {{"threads", host_threads()}, {"hidden", q.hidden}, {"results", std::move(results)}};
}

void print_figures(const std::vector<CallFigures>& figures) {
  Table t({{"op"},
           {"dtype"},
           {"rows", Align::kRight},
           {"kernel"},
           {"time", Align::kRight},
           {"GB/s", Align::kRight},
           {"of copy", Align::kRight}});
  const auto speed = [](uint64_t bytes, double ns) {
    return fmt::format("{:.1f}", gb_per_s(bytes, ns));
  };
  for (const CallFigures& f : figures) {
    t.add({{f.op, Paint::kBold},
           {f.dtype},
           {std::to_string(f.rows)},
           {fmt::format("copy, {} thread{}", f.copy_threads, f.copy_threads == 1 ? "" : "s"),
            Paint::kDim},
           {duration(f.copy_ns), Paint::kDim},
           {speed(f.bytes, f.copy_ns), Paint::kDim}});
    for (const KernelFigure& k : f.kernels)
      t.add({{""},
             {""},
             {""},
             {k.id + (k.selected ? " *" : ""), k.selected ? Paint::kBold : Paint::kPlain},
             {duration(k.ns)},
             {speed(f.bytes, k.ns)},
             {fmt::format("{:.3f}", k.over_copy), k.selected ? Paint::kBold : Paint::kPlain}});
  }
  print_out(
      "{}\n* selected without options. Bytes are those of all tensors, once; the copy "
      "moves "
      "as\nmany, half read and half written, on one thread or on all {}, whichever is faster.\n",
      t.text(), host_threads());
}

int bench_kernels(const KernelsQuestion& q) {
  const std::vector<std::string>& known = measured_ops();
  for (const std::string& op : q.ops)
    if (std::find(known.begin(), known.end(), op) == known.end())
      return fail(kUsage,
                  fmt::format("--op '{}' is not a built-in op{}", op, did_you_mean(op, known)));
  std::vector<CallFigures> figures;
  Progress progress;
  for (const std::string& op : q.ops.empty() ? known : q.ops)
    for (const std::string& dtype : q.dtypes)
      for (const int64_t rows : q.rows) {
        CallFigures f;
        f.op = op, f.dtype = dtype, f.rows = rows;
        f.call = measured_call(op, dtype, rows, q.hidden);
        progress.say(fmt::format("measuring {}", f.call));
        auto measured = measure_kernels(q, std::move(f));
        if (!measured.ok())
          return progress.clear(), fail(exit_code(measured.status()), measured.status());
        figures.push_back(std::move(measured).value());
      }
  progress.clear();
  if (q.json)
    print_json(figures_json(q, figures));
  else
    print_figures(figures);
  return kOk;
}

}  // namespace

void add_bench_kernels(CLI::App& parent, Action& action) {
  auto q = std::make_shared<KernelsQuestion>();
  CLI::App* c = parent.add_subcommand("kernels", "How fast each kernel of the built-in ops is");
  c->add_option("--op", q->ops, "Only these ops; comma-separated or repeated")
      ->type_name("OP")
      ->delimiter(',')
      ->allow_extra_args(false);
  c->add_option("--dtype", q->dtypes, "f32, f16, bf16; comma-separated or repeated (f32,bf16)")
      ->type_name("DTYPE")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of({"f32", "f16", "bf16"}));
  c->add_option("--rows", q->rows, "Rows of the call (1,64,4096)")
      ->type_name("N,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(between(int64_t{1}, int64_t{1} << 24));
  c->add_option("--hidden", q->hidden, "Elements of a row (4096)")
      ->type_name("N")
      ->check(between(int64_t{2}, int64_t{1} << 24));
  c->add_option("--seconds", q->seconds, "Approximate duration for each call (0.3)")
      ->type_name("SECONDS")
      ->check(between(0.0, 3600.0));
  c->add_flag("--json", q->json, "JSON for programs instead of a table");
  c->footer(
      "Runs each kernel that can serve a call, in turn with a plain copy of the same number of\n"
      "bytes, round after round; the time is that of the kernel alone, the median over the\n"
      "rounds. Slow reference kernels make the whole table take minutes: name an op, a dtype or\n"
      "fewer rows.\n"
      "\n"
      "Examples:\n"
      "  yard bench kernels --op rms_norm\n"
      "  yard bench kernels --op softmax,layer_norm --dtype f32 --rows 64,4096\n"
      "  yard bench kernels --op silu_and_mul --hidden 11008 --json");
  c->callback([q, &action] { action = [q] { return bench_kernels(*q); }; });
}

}  // namespace yard::tool
