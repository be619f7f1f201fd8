// SPDX-License-Identifier: Apache-2.0
#include "dispatch/trace.h"

#include <fmt/format.h>

#include <mutex>

#include "base/json.h"
#include "base/reclaimer.h"
#include "base/text.h"
#include "dispatch/scope.h"
#include "op/call_spec.h"

namespace yard::detail {
namespace {

std::string scalar_text(const op::Param& param, const yard_value_t& v) {
  switch (v.tag) {
    case YARD_TAG_INT:
      if (param.kind == op::Kind::kEnum && static_cast<uint64_t>(v.u.i) < param.enumerators.size())
        return param.enumerators[static_cast<size_t>(v.u.i)];
      return std::to_string(v.u.i);
    case YARD_TAG_BOOL: return v.u.i != 0 ? "true" : "false";
    case YARD_TAG_FLOAT: return op::to_string(op::SpecValue{op::shortest_float(v.u.f)});
    case YARD_TAG_STRING: return base::quote(v.u.string);
    default: return "none";
  }
}

}  // namespace

Tracer::Place Tracer::place_of(const yard_tensor_t& t) {
  return t.data != nullptr ? static_cast<const char*>(t.data) + t.byte_offset : t.origin;
}

int64_t Tracer::read(Place place) {
  if (place == nullptr) return values_++;
  const auto [at, fresh] = latest_.try_emplace(place, values_);
  if (fresh) ++values_;
  return at->second;
}

void Tracer::finish(TraceNode node, const std::vector<Written>& written) {
  for (const Written& w : written) {
    node.args[w.arg].writes = values_++;
    if (w.place != nullptr) latest_[w.place] = node.args[w.arg].writes;
  }
  nodes_.push_back(std::move(node));
}

void Tracer::add(const op::Program& program, const yard_value_t* args, std::string spec,
                 std::string_view kernel, std::string_view note) {
  const std::lock_guard lock(lock_);
  TraceNode node{program.name(), std::move(spec), std::string(kernel), std::string(note), {}};
  std::vector<Written> written;
  const auto tensor = [&](const op::Param& p, std::string name, const yard_tensor_t* t) {
    TraceNode::Arg& arg = node.args.emplace_back();
    arg.name = std::move(name);
    arg.text = t != nullptr ? op::brief(*t) : "none";
    if (t == nullptr) return;
    if (p.access != op::Access::kWrite) arg.reads = read(place_of(*t));
    if (p.is_written()) written.push_back({node.args.size() - 1, place_of(*t)});
  };
  for (uint32_t i = 0; i < program.arg_count(); ++i) {
    const op::Param& p = program.schema().params[i];
    const yard_value_t& v = args[i];
    if (v.tag == YARD_TAG_LIST) {
      for (uint32_t k = 0; k < v.count; ++k)
        tensor(p, fmt::format("{}[{}]", p.name, k), v.u.list[k]);
    } else if (p.is_tensor()) {
      tensor(p, p.name, v.tag == YARD_TAG_TENSOR ? v.u.tensor : nullptr);
    } else {
      node.args.push_back(
          {p.name, scalar_text(p, v), TraceNode::Arg::kNone, TraceNode::Arg::kNone});
    }
  }
  finish(std::move(node), written);
}

void Tracer::add(std::string function, const std::vector<ShownArgument>& args,
                 std::string_view backend, std::string_view note) {
  const std::lock_guard lock(lock_);
  TraceNode node{std::move(function), {}, std::string(backend), std::string(note), {}};
  std::vector<Written> written;
  node.call = node.op + "(";
  for (const ShownArgument& a : args) {
    if (!node.args.empty()) node.call += ", ";
    TraceNode::Arg& arg = node.args.emplace_back();
    arg.text = a.tensor != nullptr ? op::brief(*a.tensor) : a.text;
    node.call += arg.text;
    if (a.tensor == nullptr) continue;
    arg.reads = read(place_of(*a.tensor));
    written.push_back({node.args.size() - 1, place_of(*a.tensor)});
  }
  node.call += ")";
  finish(std::move(node), written);
}

std::vector<TraceNode> Tracer::nodes() const {
  const std::lock_guard lock(lock_);
  return nodes_;
}

}  // namespace yard::detail

namespace yard {

TraceScope::TraceScope()
    : tracer_(std::make_unique<detail::Tracer>()),
      thread_(&base::this_thread()),
      outer_(thread_->scope_state) {
  state_ = detail::traced(outer_, tracer_.get());
  detail::set_scope(*thread_, state_.get());
}

TraceScope::~TraceScope() { detail::set_scope(*thread_, outer_); }

std::vector<TraceNode> TraceScope::nodes() const { return tracer_->nodes(); }

std::string TraceScope::to_text() const {
  std::string text;
  for (const TraceNode& node : tracer_->nodes()) {
    std::string made, given;
    for (const TraceNode::Arg& a : node.args) {
      if (a.writes != TraceNode::Arg::kNone)
        made += fmt::format("{}%{}: {}", made.empty() ? "" : ", ", a.writes, a.text);
      if (a.writes != TraceNode::Arg::kNone && a.reads == TraceNode::Arg::kNone) continue;
      given += given.empty() ? "" : ", ";
      if (!a.name.empty()) given += a.name + "=";
      given += a.reads != TraceNode::Arg::kNone ? fmt::format("%{}", a.reads) : a.text;
    }
    text += fmt::format("{}{}{}({})  [{}]{}{}\n", made, made.empty() ? "" : " = ", node.op, given,
                        node.kernel, node.note.empty() ? "" : "  # ", node.note);
  }
  return text;
}

std::string TraceScope::to_json() const {
  const auto number = [](int64_t n) { return n < 0 ? std::string("null") : std::to_string(n); };
  std::vector<std::string> nodes;
  for (const TraceNode& node : tracer_->nodes()) {
    std::vector<std::string> args;
    for (const TraceNode::Arg& a : node.args) {
      base::JsonObject arg;
      arg.add("name", a.name).add("text", a.text);
      arg.add_json("reads", number(a.reads)).add_json("writes", number(a.writes));
      args.push_back(std::move(arg).text());
    }
    base::JsonObject to;
    to.add("op", node.op).add("call", node.call).add("kernel", node.kernel);
    to.add_or_null("note", node.note).add_json("args", base::json_list(args));
    nodes.push_back(std::move(to).text());
  }
  return std::move(base::JsonObject().add_json("nodes", base::json_list(nodes))).text();
}

}  // namespace yard
