// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "select/reasons.h"

namespace yard::select {
namespace {

// Returns text like "deny_vendors excluded vendor.acme, which would have been first", or nothing.
std::string counterfactual(const CandidateSet& candidates, const KernelCandidate& c,
                           const op::Call& call, const yard_verdict_t& verdict) {
  const policy::Clause* clause = deciding_clause(candidates, verdict);
  if (clause == nullptr) return "";
  policy::ClauseSources sources = candidates.clauses().sources();
  sources.without = {clause->act, clause->source, facts_of(*c.kernel)};
  const CandidateSet other = candidates.with(std::move(sources));
  const Order order = select(other, call.args(), call.count(), call.flags());
  if (order.empty() || other.all()[order[0]].kernel->id != c.kernel->id) return "";
  return fmt::format("{} excluded {}, which would have been first",
                     candidates.clauses().text(*clause), c.kernel->id);
}

std::vector<Candidate::Score> score_notes(const CandidateSet& candidates, std::string_view kernel,
                                          const op::Call& call) {
  std::vector<Candidate::Score> to;
  const policy::Clauses& clauses = candidates.clauses();
  const policy::CallView view{call.args(), call.flags(), device_of(call.args(), call.count()),
                              &candidates.settings().labels};
  for (const policy::Clause* c : clauses.scores(view, kernel))
    to.push_back({clauses.sources().file->config.score[c->source].name, clauses.text(*c), c->add,
                  c->multiply});
  return to;
}

std::string text_of(const CandidateSet& candidates, policy::Clause::Act act) {
  const policy::Clause* clause = candidates.clauses().find(act);
  return clause != nullptr ? candidates.clauses().text(*clause) : "";
}

Candidate describe_candidate(const CandidateSet& candidates, size_t i, const Notes& notes,
                             const op::Call& call) {
  const KernelCandidate& c = candidates.all()[i];
  const Notes::Entry& note = notes.entries[i];
  Candidate out;
  out.id = c.kernel->id, out.kind = c.kernel->kind, out.vendor = c.kernel->backend->vendor;
  out.backend = c.kernel->backend_name, out.priority = c.kernel->priority;
  out.adjusted_priority = c.kernel->priority;
  if (note.verdict.reason != YARD_REASON_NONE) {
    out.verdict = "rejected";
    out.reason = reason_name(note.verdict.reason);
    out.detail = describe(candidates, c, note.verdict, note.text);
    return out;
  }
  if (note.estimate_ns >= 0) out.estimate_ns = note.estimate_ns;
  for (const NeededTransform& t : note.transforms) {
    const auto source = static_cast<size_t>(c.kernel->map->params[t.param].source);
    out.transforms.push_back(
        {candidates.program().schema().params[source].name, op::transforms_text(t.kinds), t.ns});
  }
  out.scores = score_notes(candidates, out.id, call);
  if (!out.scores.empty()) out.adjusted_priority = note.priority;
  if (note.by_chain) out.placed_by = text_of(candidates, policy::Clause::Act::kChain);
  return out;
}

std::string chooser(const CandidateSet& candidates, const Notes& notes, uint16_t winner) {
  const policy::Clauses& clauses = candidates.clauses();
  const uint32_t rule = notes.entries[winner].rule;
  if (notes.by_mode > 0) return fmt::format("mode '{}'", candidates.mode().program->name);
  if (rule != policy::kNoClause) return clauses.text(clauses.clause(rule));
  return clauses.tier(winner) < 0 ? text_of(candidates, policy::Clause::Act::kMap) : "";
}

std::string why_after(const CandidateSet& candidates, const Notes& notes, uint16_t winner,
                      uint16_t other) {
  const KernelCandidate &w = candidates.all()[winner], &o = candidates.all()[other];
  const policy::Clauses& clauses = candidates.clauses();
  const int tier = clauses.tier(winner);
  const uint32_t rule = notes.entries[winner].rule;
  const std::string by = chooser(candidates, notes, winner);
  if (!by.empty() && (rule == policy::kNoClause || rule != notes.entries[other].rule))
    return tier < 0 && notes.by_mode == 0
               ? fmt::format("the op is mapped to {} by {}", w.kernel->id, by)
               : fmt::format("{} chose {}", by, w.kernel->id);
  if (tier != clauses.tier(other))
    return fmt::format("{} comes later in the order of preference ({})", o.kernel->id,
                       to_string(o.kernel->kind));
  const Notes::Entry &best = notes.entries[winner], &next = notes.entries[other];
  if (best.by_estimate && best.estimate_ns < next.estimate_ns)
    return fmt::format("estimated {:.0f} ns against {:.0f} ns", next.estimate_ns, best.estimate_ns);
  if (best.priority != next.priority)
    return fmt::format("priority {:g} against {:g}", next.priority, best.priority);
  if (best.transforms.empty() && !next.transforms.empty())
    return fmt::format("equal priority, and {} needs no transform", w.kernel->id);
  return fmt::format("equal in all else; '{}' comes first by name", w.kernel->id);
}

void note_mode(const policy::ModeSettings& d, const Notes& notes,
               std::vector<Explanation::PolicyNote>& to) {
  if (d.source == nullptr) return;
  std::string text = d.program != nullptr ? d.program->name : to_string(d.mode);
  std::vector<const char*> then;
  for (const Mode m : d.fallback) then.push_back(to_string(m));
  if (d.mode == Mode::kStatic && !then.empty())
    text += fmt::format(" (then {} by settings.mode_fallback)", fmt::join(then, ", "));
  if (!notes.mode_text.empty()) text += fmt::format(" ({}: as in dynamic)", notes.mode_text);
  to.push_back({"mode", std::move(text), d.source});
}

}  // namespace

Explanation explain(const CandidateSet& candidates, const op::Call& call,
                    std::span<const policy::Source> sources) {
  const policy::ClauseSources& clauses = candidates.clauses().sources();
  Notes notes;
  const Order order = select(candidates, call.args(), call.count(), call.flags(), &notes);
  Explanation e;
  e.op = candidates.program().name();
  e.call = op::to_string(call.to_spec(candidates.program()));
  e.policy = policy::notes(sources);
  note_mode(candidates.mode(), notes, e.policy);
  if (!clauses.force.empty()) e.policy.push_back({"force", clauses.force, "call"});
  if (!clauses.deny.empty())
    e.policy.push_back({"deny", fmt::format("{}", fmt::join(clauses.deny, ",")), "call"});
  for (size_t rank = 0; rank < order.size(); ++rank) {
    Candidate c = describe_candidate(candidates, order[rank], notes, call);
    c.verdict = rank == 0 ? "selected" : "able";
    if (const std::string by = chooser(candidates, notes, order[0]); rank == 0 && !by.empty())
      c.detail = "chosen by " + by;
    if (rank > 0) {
      c.reason = reason_name(YARD_REASON_OUTRANKED);
      c.detail = why_after(candidates, notes, order[0], order[rank]);
      if (!c.placed_by.empty()) c.detail += "; tried here by " + c.placed_by;
    }
    e.candidates.push_back(std::move(c));
  }
  std::set<std::string> scores;
  for (const Candidate& c : e.candidates)
    for (const Candidate::Score& s : c.scores)
      if (scores.insert(to_string(s)).second) e.policy.push_back({"score", to_string(s), "file"});
  if (const policy::Clause* chain = candidates.clauses().find(policy::Clause::Act::kChain)) {
    e.policy.push_back(
        {"fallback_chains",
         fmt::format("{}: {}", candidates.clauses().text(*chain), fmt::join(chain->names, ", ")),
         "file"});
  }
  if (!order.empty()) e.selected = candidates.all()[order[0]].kernel->id;
  for (size_t i = 0; i < candidates.all().size(); ++i) {
    if (notes.entries[i].verdict.reason == YARD_REASON_NONE) continue;
    e.candidates.push_back(describe_candidate(candidates, i, notes, call));
    const KernelCandidate& c = candidates.all()[i];
    if (std::string s = counterfactual(candidates, c, call, notes.entries[i].verdict); !s.empty())
      e.counterfactuals.push_back(std::move(s));
  }
  return e;
}

}  // namespace yard::select

namespace yard {
namespace {

using base::JsonObject;

std::string number_json(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

template <class T, class F>
std::string json_list(const std::vector<T>& list, const F& f) {
  std::vector<std::string> values;
  for (const T& x : list) values.push_back(f(x));
  return base::json_list(values);
}

std::string score_json(const Candidate::Score& s) {
  JsonObject to;
  to.add_or_null("name", s.name).add("place", s.place).add_json("add", number_json(s.add));
  return to.add_json("multiply", number_json(s.multiply)).text();
}

std::string transform_json(const Candidate::Transform& t) {
  JsonObject to;
  to.add("argument", t.argument).add("what", t.what);
  return to.add_json("estimate_ns", number_json(t.estimate_ns)).text();
}

std::string policy_json(const Explanation::PolicyNote& n) {
  return JsonObject().add("field", n.field).add("value", n.value).add("source", n.source).text();
}

std::string candidate_json(const Candidate& c) {
  JsonObject to;
  to.add("id", c.id).add("verdict", c.verdict);
  to.add_or_null("reason", c.reason).add_or_null("detail", c.detail);
  to.add("kind", to_string(c.kind)).add_or_null("vendor", c.vendor).add("backend", c.backend);
  to.add("priority", c.priority);
  to.add_json("adjusted_priority", number_json(c.adjusted_priority));
  to.add_json("scores", json_list(c.scores, score_json)).add_or_null("placed_by", c.placed_by);
  to.add_json("estimate_ns", c.estimate_ns ? number_json(*c.estimate_ns) : "null");
  to.add_json("transforms", json_list(c.transforms, transform_json));
  return to.text();
}

std::string lines_below(const Candidate& c) {
  const auto line = [](const std::string& title, const std::vector<std::string>& texts) {
    if (texts.empty()) return std::string();
    const std::string text = fmt::format("{}", fmt::join(texts, "; "));
    return fmt::format("      {}: {}\n", title, base::printable(text));
  };
  std::vector<std::string> scores, transforms;
  for (const Candidate::Score& s : c.scores) scores.push_back(to_string(s));
  for (const Candidate::Transform& t : c.transforms)
    transforms.push_back(fmt::format("{} ({}, ~{:.0f} ns)", t.argument, t.what, t.estimate_ns));
  return line(fmt::format("priority {} counts as {:g}", c.priority, c.adjusted_priority), scores) +
         line("transforms", transforms);
}

}  // namespace

std::string to_string(const Candidate::Score& s) {
  std::string text = s.name.empty() ? s.place : fmt::format("'{}', {}", s.name, s.place);
  std::string what;
  if (s.add != 0) what = fmt::format("{} {:g}", s.add < 0 ? "-" : "+", std::abs(s.add));
  if (s.multiply != 1 || what.empty())
    what += fmt::format("{}x {:g}", what.empty() ? "" : ", ", s.multiply);
  return text + ": " + what;
}

std::string Explanation::to_json() const {
  JsonObject to;
  to.add("op", op).add("call", call).add_or_null("selected", selected);
  to.add_json("candidates", json_list(candidates, candidate_json));
  to.add_json("policy", json_list(policy, policy_json));
  to.add_json("counterfactuals", base::json_strings(counterfactuals));
  to.add("generation", generation);
  return to.text();
}

std::string Explanation::to_text(bool colour) const {
  const auto paint = [&](const char* code, const std::string& s) {
    return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, s) : s;
  };
  std::string out = call + "\n";
  out += selected.empty() ? "  " + paint("31", "no kernel is allowed, able and healthy") + "\n"
                          : "  runs " + paint("1;32", selected) + "\n";
  size_t id_width = 6, kind_width = 4, estimate_width = 0;  // the sizes of the titles
  const auto estimate = [](const Candidate& c) {
    return c.estimate_ns ? fmt::format("~{:.0f} ns", *c.estimate_ns) : std::string();
  };
  for (const Candidate& c : candidates) {
    if (c.estimate_ns) estimate_width = std::max({estimate_width, size_t{8}, estimate(c).size()});
    id_width = std::max(id_width, c.id.size());
    kind_width = std::max(kind_width, std::string_view(to_string(c.kind)).size());
  }
  std::string title =
      fmt::format("  {:<{}}  {:<{}}  priority  verdict   ", "kernel", id_width, "kind", kind_width);
  if (estimate_width > 0) title += fmt::format("{:>{}}  ", "estimate", estimate_width);
  if (!candidates.empty()) out += paint("1", title + "reason") + "\n";
  for (const Candidate& c : candidates) {
    const char* code = c.verdict == "selected" ? "32" : c.verdict == "able" ? "33" : "31";
    std::string line = fmt::format("  {:<{}}  {:<{}}  {:>8}  ", c.id, id_width, to_string(c.kind),
                                   kind_width, c.priority);
    line += paint(code, fmt::format("{:<8}", c.verdict));
    if (estimate_width > 0) line += fmt::format("  {:>{}}", estimate(c), estimate_width);
    line +=
        fmt::format("  {}{}{}", c.reason, c.reason.empty() ? "" : ": ", base::printable(c.detail));
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n" + lines_below(c);
  }
  if (policy.empty()) out += "  policy: nothing set\n";
  for (const Explanation::PolicyNote& n : policy)
    out += base::printable(fmt::format("  policy: {} = {} (from {})", n.field, n.value, n.source)) +
           "\n";
  for (const std::string& s : counterfactuals) out += "  " + s + "\n";
  return out;
}

}  // namespace yard
