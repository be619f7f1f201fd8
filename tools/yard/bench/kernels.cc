// SPDX-License-Identifier: Apache-2.0
// yard bench kernels: compares each kernel with a plain copy, and the selected kernel with the
// fastest.
#include <fmt/format.h>
#include <yard/bound.h>
#include <yard/call_spec.h>
#include <yard/runtime.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <memory>

#include "arguments.h"
#include "bench/kernel_timing.h"
#include "bench/measured_calls.h"
#include "bench/model_calls.h"
#include "commands.h"
#include "host_access.h"
#include "json.h"
#include "output.h"
#include "terminal.h"

namespace yard::tool {
namespace {

struct KernelsQuestion {
  std::vector<std::string> ops, calls, dtypes = {"f32", "bf16"}, shapes;
  std::string model;
  double seconds = 0.3;
  bool json = false;
};

struct KernelFigure {
  std::string id;
  double ns = 0;
};

// A call with the kernels that can serve it. Reference kernels are measured only if no other kernel
// can serve the call.
struct CallFigures {
  std::string call, selected, fastest;
  bool loaded = false;  // whether the calls are of an instance that has loaded the weight
  uint64_t bytes = 0;   // moved by one call
  double copy_ns = 0;
  int copy_threads = 1;
  double spread = 0;  // relative difference of two measurements of the selected kernel
  double regret = 0;  // how much slower the selected kernel is than the fastest, relative
  std::vector<KernelFigure> kernels;                         // in the order of selection
  std::vector<std::pair<std::string, std::string>> skipped;  // id, reason
};

// Times a kernel that is forced for the call. The time of dispatch does not count.
Timed forced(const ParsedCall& call, const CallTensors& data, const Instance* instance,
             const std::string& id) {
  return [&call, &data, instance, id](int64_t n) {
    ResultRecord record;
    Options o;
    o.force = id;
    o.instance = instance;
    o.result = &record;
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      Runtime::shared().call(call.op, data.args(), o).or_throw();
      sum += static_cast<double>(record.pre_ns + record.run_ns + record.post_ns);
    }
    return sum / static_cast<double>(n);
  };
}

// Returns the kernels to measure, and adds the others to to.skipped.
std::vector<std::string> able_kernels(const Explanation& plan, CallFigures& to) {
  std::vector<std::string> ids, references;
  for (const Candidate& c : plan.candidates) {
    if (c.verdict == "rejected")
      to.skipped.emplace_back(c.id, c.detail.empty() ? c.reason : c.detail);
    else
      (c.kind == Kind::kReference ? references : ids).push_back(c.id);
  }
  if (ids.empty()) return references;
  for (std::string& id : references)
    to.skipped.emplace_back(std::move(id), "a reference kernel, and there are others");
  return ids;
}

// Returns an instance of the op with the call's weight, if a kernel serves only such calls.
std::unique_ptr<Instance> with_weight(const Explanation& plan, const CallTensors& data) {
  const auto asks = [](const Candidate& c) { return c.reason == "not_loaded"; };
  const auto weight = std::ranges::find(data.args(), "weight", &Arg::name);
  if (std::ranges::none_of(plan.candidates, asks) || weight == data.args().end()) return nullptr;
  auto made = Instance::make(Runtime::shared(), data.call().op);
  if (!made.ok() || !made->load({*weight}).ok()) return nullptr;
  return std::make_unique<Instance>(std::move(made).value());
}

Result<CallFigures> measure_kernels(const std::string& text, double seconds) {
  CallFigures f;
  const auto call = Runtime::shared().parse(text);
  if (!call.ok()) return call.status();
  f.call = text;
  auto plan = Runtime::shared().explain(text);
  if (!plan.ok()) return plan.status();
  YARD_RETURN_IF_ERROR(CallTensors::check(*call, 2));
  const std::unique_ptr<CallTensors> data = measured_tensors(*call);
  const std::unique_ptr<Instance> instance = with_weight(*plan, *data);
  f.loaded = instance != nullptr;
  if (std::string loaded = call->text; f.loaded) {
    plan = Runtime::shared().explain(loaded.insert(loaded.find(")@cpu") + 5, "+loaded"));
    if (!plan.ok()) return plan.status();
  }
  f.bytes = data->traffic(), f.selected = plan->selected;
  const Copy copy(f.bytes);
  std::vector<Timed> paths = {copy.one_thread(), copy.all_threads()};
  for (const std::string& id : able_kernels(*plan, f)) {
    f.kernels.push_back({id});
    paths.push_back(forced(*call, *data, instance.get(), id));
  }
  if (f.kernels.empty())
    return Status(Code::kNoKernel, fmt::format("no kernel can serve {}", f.call));
  paths.push_back(
      forced(*call, *data, instance.get(), f.selected));  // a second time, for the spread
  const std::vector<double> ns = time_in_turn(paths, seconds);
  f.copy_ns = std::min(ns[0], ns[1]);
  f.copy_threads = ns[1] < ns[0] ? host_threads() : 1;
  double selected = 0;
  const KernelFigure* fastest = nullptr;
  for (size_t i = 0; i < f.kernels.size(); ++i) {
    KernelFigure& k = f.kernels[i];
    k.ns = ns[i + 2];
    if (k.id == f.selected) selected = k.ns;
    if (fastest == nullptr || k.ns < fastest->ns) fastest = &k;
  }
  f.fastest = fastest->id;
  f.regret = std::max(0.0, selected / fastest->ns - 1);
  f.spread = std::abs(selected - ns.back()) / std::min(selected, ns.back());
  return f;
}

struct Regret {
  double mean = 0, worst = 0;
  explicit Regret(const std::vector<CallFigures>& figures) {
    for (const CallFigures& f : figures) mean += f.regret, worst = std::max(worst, f.regret);
    if (!figures.empty()) mean /= static_cast<double>(figures.size());
  }
};

double gb_per_s(uint64_t bytes, double ns) { return static_cast<double>(bytes) / ns; }

Json figures_json(const std::vector<CallFigures>& figures) {
  Json rows = Json::array();
  for (const CallFigures& f : figures) {
    Json times = Json::object(), skipped = Json::array();
    for (const KernelFigure& k : f.kernels) times[k.id] = k.ns;
    for (const auto& [id, reason] : f.skipped) skipped.push_back({{"id", id}, {"reason", reason}});
    rows.push_back({{"call", f.call},
                    {"loaded", f.loaded},
                    {"times_ns", std::move(times)},
                    {"selected", f.selected},
                    {"fastest", f.fastest},
                    {"regret", f.regret},
                    {"spread", f.spread},
                    {"bytes", f.bytes},
                    {"copy_ns", f.copy_ns},
                    {"copy_threads", f.copy_threads},
                    {"skipped", std::move(skipped)}});
  }
  const Regret regret(figures);
  return {{"threads", host_threads()},
          {"rows", std::move(rows)},
          {"mean_regret", regret.mean},
          {"worst_regret", regret.worst}};
}

// Draws the time relative to the fastest kernel, with ten steps for each factor of ten.
std::string bar(double ns, double fastest) {
  const double steps = 1 + 10 * std::log10(std::max(ns / fastest, 1.0));
  return std::string(static_cast<size_t>(std::min(steps, 30.0)), '#');
}

void print_figures(const std::vector<CallFigures>& figures) {
  Table t("call, kernel|time>|GB/s>|of copy>|to the fastest");
  for (const CallFigures& f : figures) {
    t.add({{f.call + (f.loaded ? ", weight loaded" : ""), Paint::kBold}});
    t.add({{fmt::format("  copy, {} thread{}", f.copy_threads, f.copy_threads == 1 ? "" : "s"),
            Paint::kDim},
           {duration(f.copy_ns), Paint::kDim},
           {fmt::format("{:.1f}", gb_per_s(f.bytes, f.copy_ns)), Paint::kDim}});
    for (const KernelFigure& k : f.kernels) {
      const bool selected = k.id == f.selected;
      const double fastest =
          std::ranges::find_if(f.kernels, [&](const auto& o) { return o.id == f.fastest; })->ns;
      t.add({{"  " + k.id + (selected ? " *" : ""), selected ? Paint::kBold : Paint::kPlain},
             {duration(k.ns)},
             {fmt::format("{:.1f}", gb_per_s(f.bytes, k.ns))},
             {fmt::format("{:.3f}", f.copy_ns / k.ns)},
             {bar(k.ns, fastest) +
              (selected && f.regret > 0 ? fmt::format(" {:.0f} % regret", 100 * f.regret) : "")}});
    }
  }
  const Regret regret(figures);
  print_out(
      "{}\n* selected without options. Mean regret {:.1f} %, worst {:.1f} %: how much longer the\n"
      "selected kernel takes than the fastest. Bars: ten # for each factor of ten. Bytes are those "
      "of\n"
      "all tensors, once; the copy moves as many, half read and half written, on one thread or on "
      "all\n"
      "{}, whichever is faster.\n",
      t.text(), 100 * regret.mean, 100 * regret.worst, host_threads());
}

// Reads texts such as "rows=1,64".
Status read_shapes(const std::vector<const OpInfo*>& ops, const std::vector<std::string>& texts,
                   Shapes& to) {
  const auto bad = [](const std::string& problem) {
    return Status(Code::kInvalidArgument, "invalid --shapes: " + problem);
  };
  std::vector<std::string> known;
  for (const OpInfo* op : ops)
    for (std::string& d : measured_dimensions(*op)) known.push_back(std::move(d));
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals == std::string::npos)
      return bad(fmt::format("expected DIMENSION=SIZE,..., as rows=1,64, got '{}'", text));
    if (std::ranges::find(known, name) == known.end())
      return bad(
          fmt::format("none of the ops has a dimension '{}'{}", name, did_you_mean(name, known)));
    for (const std::string& number : split(text.substr(equals + 1), ",")) {
      int64_t size = 0;
      if (!CLI::detail::lexical_cast(number, size) || size < 1 || size > (int64_t{1} << 24))
        return bad(fmt::format("expected sizes from 1 to 16777216, got '{}'", text));
      to[name].push_back(size);
    }
  }
  return {};
}

Result<std::vector<std::string>> chosen_calls(const KernelsQuestion& q) {
  const Listing listing = Runtime::shared().list();
  std::vector<const OpInfo*> ops;
  std::vector<std::string> names;
  for (const OpInfo& op : listing.ops) {
    names.push_back(op.name);
    if (q.ops.empty()) ops.push_back(&op);
  }
  for (const std::string& op : q.ops) {
    ops.push_back(listing.find_op(op));
    if (ops.back() == nullptr)
      return Status(Code::kUnknownOp,
                    fmt::format("op '{}' is not known{}", op, did_you_mean(op, names)));
  }
  if (!q.model.empty()) return model_calls(q.model);
  if (!q.calls.empty()) return q.calls;
  Shapes shapes;
  YARD_RETURN_IF_ERROR(read_shapes(ops, q.shapes, shapes));
  std::vector<std::string> calls;
  for (const OpInfo* op : ops) {
    const auto made = measured_calls(*op, q.dtypes, shapes);
    if (!made.ok())
      return Status(made.status())
          .note(fmt::format("no call of {} can be made from its schema; use --call", op->name));
    calls.insert(calls.end(), made->begin(), made->end());
  }
  return calls;
}

int bench_kernels(const KernelsQuestion& q) {
  const auto calls = need(chosen_calls(q), kUsage);
  std::vector<CallFigures> figures;
  Progress progress;
  for (size_t i = 0; i < calls.size(); ++i) {
    progress.say(fmt::format("measuring {} of {}: {}", i + 1, calls.size(), (calls)[i]));
    auto measured = measure_kernels((calls)[i], q.seconds);
    if (!measured.ok())
      return progress.clear(), fail(exit_code(measured.status()), measured.status());
    figures.push_back(std::move(measured).value());
  }
  progress.clear();
  q.json ? print_json(figures_json(figures)) : print_figures(figures);
  return kOk;
}

}  // namespace

void add_bench_kernels(CLI::App& parent, Action& action) {
  const auto [c, q] = add_command<KernelsQuestion>(
      parent, action, "kernels", "How fast each kernel is, and how good the choice between them",
      bench_kernels);
  CLI::Option* const ops =
      c->add_option("op", q->ops, "Ops; all of them if none is given")->type_name("OP");
  CLI::Option* const shapes =
      add_value(*c, "--shapes", q->shapes, "DIM=N,...",
                "Sizes of a dimension, as rows=1,64; repeated for other dimensions");
  CLI::Option* const calls = add_value(*c, "--call", q->calls, "CALLSPEC",
                                       "Only this call, a CallSpec of any op; repeated");
  add_value(*c, "--model", q->model, "FILE.gguf", "The calls of a Llama model in this GGUF file")
      ->excludes(ops)
      ->excludes(shapes)
      ->excludes(calls);
  add_value(*c, "--dtype", q->dtypes, "DTYPE",
            "f32, f16, bf16; comma-separated or repeated (f32,bf16)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of({"f32", "f16", "bf16"}));
  add_value(*c, "--seconds", q->seconds, "SECONDS", "Approximate duration for each call (0.3)")
      ->check(between(0.0, 3600.0));
}

}  // namespace yard::tool
