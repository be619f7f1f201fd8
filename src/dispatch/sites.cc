// SPDX-License-Identifier: Apache-2.0
#include "dispatch/sites.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"
#include "dispatch/core.h"

namespace yard::dispatch {
namespace {

const char* cpp_name(char letter) {
  constexpr std::pair<char, const char*> kNames[] = {{'r', "In"},
                                                     {'w', "Out"},
                                                     {'m', "InOut"},
                                                     {'R', "OptIn"},
                                                     {'W', "OptOut"},
                                                     {'M', "OptInOut"},
                                                     {'l', "InList"},
                                                     {'s', "std::string_view"},
                                                     {'f', "a floating-point type"},
                                                     {'n', "an integer or enum type"},
                                                     {'b', "bool"}};
  return std::ranges::find(kNames, letter, &std::pair<char, const char*>::first)->second;
}

char letter_of(const op::Param& p) {
  switch (p.kind) {
    case op::Kind::kTensor: return (p.optional ? "RWM" : "rwm")[static_cast<size_t>(p.access)];
    case op::Kind::kTensorList: return 'l';
    case op::Kind::kFloat: return 'f';
    case op::Kind::kBool: return 'b';
    case op::Kind::kString: return 's';
    default: return 'n';
  }
}

void aim(Site& site, const registry::Op& op) noexcept {
  uint32_t tensors = 0, written = 0, n = 0;
  const auto& params = op.program->schema().params;
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].is_tensor()) continue;
    tensors |= 1u << i;
    if (params[i].is_written()) written |= 1u << n;
    ++n;
  }
  site.count.store(op.program->arg_count(), std::memory_order_relaxed);
  site.tensors.store(tensors, std::memory_order_relaxed);
  site.written.store(written, std::memory_order_relaxed);
  site.index.store(op.index, std::memory_order_release);
}

Status check_signature(const op::Program& program, std::string_view letters) {
  const auto& params = program.schema().params;
  const auto wrong = [&](const std::string& what) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("op '{}' is declared with a C++ signature that does not fit its schema: {}\n"
                    "  schema: {}",
                    program.name(), what, op::to_string(program.schema())));
  };
  if (letters.size() != params.size())
    return wrong(fmt::format("{} parameters, the schema has {}", letters.size(), params.size()));
  for (size_t i = 0; i < letters.size(); ++i) {
    const char want = letter_of(params[i]);
    if (letters[i] != want)
      return wrong(fmt::format("parameter {} ('{}') is {}, expected {}", i + 1, params[i].name,
                               cpp_name(letters[i]), cpp_name(want)));
  }
  return {};
}

}  // namespace

bool Sites::first_need(std::string_view op, const registry::OpRecord* op_record) const {
  registry::LazyLoader* const loader = core_.services().lazy_loader();
  if (loader == nullptr) return false;
  std::atomic<bool>* needed =
      op_record != nullptr ? &(*by_index_)[op_record->op->index].needed : nullptr;
  if (needed != nullptr && needed->load(std::memory_order_acquire)) return false;
  if (select::inside_select()) return false;  // nothing may be published here
  if (!loader->need(registry::PluginOffer::kOp, op)) return false;
  if (needed != nullptr) needed->store(true, std::memory_order_release);
  return true;
}

bool Sites::in_use(std::string_view op) const {
  const auto s = core_.snapshot();
  const registry::OpRecord* op_record = s->state->find(op);
  return op_record != nullptr &&
         (*by_index_)[op_record->op->index].needed.load(std::memory_order_acquire);
}

void Sites::forget_needed(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) (*by_index_)[i].needed = false;
}

Status Sites::unknown_op(const registry::State& state, std::string_view name) const {
  Status s(Code::kUnknownOp, fmt::format("op '{}' is not known{}", name,
                                         base::did_you_mean(name, base::keys(state.op_records))));
  if (registry::LazyLoader* const loader = core_.services().lazy_loader())
    for (std::string& line : loader->refused_for(registry::PluginOffer::kOp, name))
      s.note(std::move(line));
  return s;
}

Result<FoundOp> Sites::find(std::string_view name) const {
  auto s = core_.snapshot();
  const registry::OpRecord* record = s->state->find(name);
  if (first_need(name, record)) {
    s = core_.snapshot();
    record = s->state->find(name);
  }
  if (record == nullptr) return unknown_op(*s->state, name);
  return FoundOp{std::move(s), record};
}

Site* Sites::attach(std::string_view name, std::string_view letters, Status* why) {
  const auto found = find(name);
  *why = found.status();
  if (!found.ok()) return nullptr;
  const registry::Op& op = *found->record->op;
  const bool typed = letters != kPackedLetters;
  if (typed) *why = check_signature(*op.program, letters);
  if (!why->ok()) return nullptr;
  // An index belongs to one schema for ever. A site belongs to a name.
  std::atomic<Site*>& packed = (*by_index_)[op.index].packed;
  Site* site = typed ? nullptr : packed.load(std::memory_order_acquire);
  uint64_t id = 0;  // the id of another site of the op
  if (site == nullptr)
    for (Site& s : sites_)
      if (s.name == name) {
        id = s.id;
        if (s.letters == letters) site = &s;
      }
  if (site == nullptr) {
    // Two threads may both make a site. Both sites work.
    static std::atomic<uint64_t> last_id{0};
    if (id == 0) id = last_id.fetch_add(1, std::memory_order_relaxed) + 1;
    site = &sites_.append(std::unique_ptr<Site>(new Site{.core = &core_,
                                                         .id = id,
                                                         .typed = typed,
                                                         .name = std::string(name),
                                                         .letters = std::string(letters)}));
  }
  aim(*site, op);  // do this even if another thread has made the site
  if (!typed) packed.store(site, std::memory_order_release);
  return site;
}

Status Sites::attach_again(Site& site) {
  YARD_ASSIGN_OR_RETURN(const auto found, find(site.name));
  const registry::Op& op = *found.record->op;
  if (site.typed) YARD_RETURN_IF_ERROR(check_signature(*op.program, site.letters));
  aim(site, op);
  return {};
}

}  // namespace yard::dispatch
