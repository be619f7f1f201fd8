// SPDX-License-Identifier: Apache-2.0
#include "dispatch/trace.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/reclaimer.h"
#include "dispatch/scope.h"

namespace yard::detail {

static std::string scalar_text(const op::CallSpec& spec, const std::string& param) {
  const auto it = std::ranges::find(spec.args, param, &op::SpecArg::name);
  return it != spec.args.end() ? op::to_string(it->value) : "none";
}

Tracer::Use Tracer::use_of(size_t arg, const yard_tensor_t& t, bool reads, bool writes) {
  const void* const data = static_cast<const char*>(t.data) + t.byte_offset;
  return {arg, t.data != nullptr ? data : t.origin, reads, writes};
}

void Tracer::add(TraceNode node, const std::vector<Use>& uses) {
  const std::lock_guard lock(lock_);
  for (const Use& u : uses) {
    if (!u.reads) continue;
    const auto known = latest_.find(u.place);
    node.args[u.arg].reads = known != latest_.end() ? known->second : values_++;
    if (u.place != nullptr) latest_[u.place] = node.args[u.arg].reads;
  }
  for (const Use& u : uses) {
    if (!u.writes) continue;
    node.args[u.arg].writes = values_++;
    if (u.place != nullptr) latest_[u.place] = node.args[u.arg].writes;
  }
  nodes_.push_back(std::move(node));
}

void Tracer::add(const op::Program& program, const yard_value_t* args, const op::CallSpec& spec,
                 std::string_view kernel, std::string_view note) {
  TraceNode node{program.name(), op::to_string(spec), std::string(kernel), std::string(note), {}};
  std::vector<Use> uses;
  const auto tensor = [&](const op::Param& p, std::string name, const yard_tensor_t* t) {
    if (t != nullptr)
      uses.push_back(use_of(node.args.size(), *t, p.access != op::Access::kWrite, p.is_written()));
    node.args.push_back({std::move(name), t != nullptr ? op::brief(*t) : "none"});
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
      node.args.push_back({p.name, scalar_text(spec, p.name)});
    }
  }
  add(std::move(node), uses);
}

void Tracer::add(std::string function, const std::vector<ShownArgument>& args,
                 std::string_view backend, std::string_view note) {
  TraceNode node{std::move(function), {}, std::string(backend), std::string(note), {}};
  std::vector<Use> uses;
  std::vector<std::string> texts;
  for (const ShownArgument& a : args) {
    if (a.tensor != nullptr) uses.push_back(use_of(texts.size(), *a.tensor, true, true));
    texts.push_back(a.tensor != nullptr ? op::brief(*a.tensor) : a.text);
    node.args.push_back({"", texts.back()});
  }
  node.call = fmt::format("{}({})", node.op, fmt::join(texts, ", "));
  add(std::move(node), uses);
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
    std::vector<std::string> made, given;
    for (const TraceNode::Arg& a : node.args) {
      if (a.writes != TraceNode::Arg::kNone)
        made.push_back(fmt::format("%{}: {}", a.writes, a.text));
      if (a.writes != TraceNode::Arg::kNone && a.reads == TraceNode::Arg::kNone) continue;
      given.push_back((a.name.empty() ? "" : a.name + "=") +
                      (a.reads != TraceNode::Arg::kNone ? fmt::format("%{}", a.reads) : a.text));
    }
    text += fmt::format("{}{}{}({})  [{}]{}{}\n", fmt::join(made, ", "), made.empty() ? "" : " = ",
                        node.op, fmt::join(given, ", "), node.kernel,
                        node.note.empty() ? "" : "  # ", node.note);
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
      arg.add("name", a.name).add("text", a.text).add_json("reads", number(a.reads));
      args.push_back(arg.add_json("writes", number(a.writes)).text());
    }
    base::JsonObject to;
    to.add("op", node.op).add("call", node.call).add("kernel", node.kernel);
    to.add_or_null("note", node.note).add_json("args", base::json_list(args));
    nodes.push_back(to.text());
  }
  return base::JsonObject().add_json("nodes", base::json_list(nodes)).text();
}

}  // namespace yard
