// SPDX-License-Identifier: Apache-2.0
// What the program itself adds: a static map, modes, somebody who is told of calls.
#include <fmt/format.h>

#include "base/log.h"
#include "base/text.h"
#include "dispatch/call.h"

namespace yard::detail {
namespace {

template <class Map>
std::vector<std::string> names_of(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, value] : map) names.push_back(name);
  return names;
}

// All that is wrong, the first as the error and the others as its notes.
Status check_map(const registry::State& state, const StaticMap& map) {
  Status status;
  const auto wrong = [&](Code code, std::string text) {
    if (status.ok())
      status = Status(code, std::move(text));
    else
      status.note(std::move(text));
  };
  for (const auto& [op, kernel] : map.kernels()) {
    const registry::OpRecord* op_record = state.find(op);
    if (op_record == nullptr)
      wrong(Code::kUnknownOp, fmt::format("the static map names op '{}', which is not known{}", op,
                                          base::did_you_mean(op, names_of(state.op_records))));
    else if (op_record->kernels.count(kernel) == 0)
      wrong(Code::kNotFound,
            fmt::format("the static map names '{}' for op '{}', which has no such kernel{}", kernel,
                        op, base::did_you_mean(kernel, names_of(op_record->kernels))));
  }
  return status;
}

// Calls f(name, path) for the modes that a rule file names, until it gives an error.
template <class F>
Status each_mode(const Config& config, const F& f) {
  const ConfigSettings& s = config.settings;
  if (s.mode) YARD_RETURN_IF_ERROR(f(*s.mode, std::string("settings.mode"), ""));
  for (const auto& [op, mode] : s.modes) YARD_RETURN_IF_ERROR(f(mode, "settings.modes." + op, op));
  return {};
}

// " (rules.yaml:7)" or nothing.
std::string place_text(const Config& config, const std::string& path, const std::string& op) {
  const auto it = config.sources.places.find(
      fmt::format("{}/{}", op.empty() ? path : std::string("settings.modes"), op));
  if (it == config.sources.places.end() || it->second.file >= config.sources.files.size())
    return "";
  return fmt::format(" ({}:{})", config.sources.files[it->second.file], it->second.line);
}

// A field that no op has is most likely misspelt, but an op to come may have it.
void warn_of_strangers(const registry::State& state, const policy::ProgramMode& mode) {
  if (!mode.provider.reads) return;
  std::vector<std::string> known;
  for (const auto& [name, op_record] : state.op_records) {
    for (const std::string& f : op_record->op->program->field_names()) known.push_back(f);
    for (const auto& p : op_record->op->program->schema().params) known.push_back(p.name);
  }
  for (const std::string& name : *mode.provider.reads)
    if (std::find(known.begin(), known.end(), name) == known.end())
      base::log(LogLevel::kWarn, "select",
                fmt::format("mode '{}' reads '{}', which no op has{}", mode.name, name,
                            base::did_you_mean(name, known)));
}

}  // namespace

Status check_override(const PolicyOverride& extra, const policy::Modes& modes) {
  if (extra.mode.empty()) return {};
  Status s = policy::check_mode_name(extra.mode, &modes);
  if (!s.ok()) s.note(fmt::format("said by the {}", extra.mode_by));
  return s;
}

Status check_modes(const Config& config, const policy::Modes& modes) {
  return each_mode(config, [&](const std::string& name, const std::string& path, const auto&) {
    return policy::check_mode_name(name, &modes).note("named by " + path);
  });
}

Status Core::set_static_map(StaticMap map) {
  for (const auto& [op, kernel] : map.kernels()) first_need(op, snapshot()->state->find(op));
  return edit_policy([&](const registry::State& state, policy::ProcessPolicy& p) {
    p.mapped = map;
    return check_map(state, map);
  });
}

Status Core::add_mode(std::shared_ptr<const policy::ProgramMode> mode) {
  return edit_policy([&](const registry::State& state, policy::ProcessPolicy& p) {
    auto modes = std::make_shared<policy::Modes>(*p.modes);
    if (!modes->emplace(mode->name, mode).second)
      return Status(
          Code::kConflict,
          fmt::format("there is a mode '{}' already; remove_mode() takes it away", mode->name));
    p.modes = std::move(modes);
    warn_of_strangers(state, *mode);
    return Status();
  });
}

Status Core::remove_mode(std::string_view name) {
  return edit_policy([&](const registry::State&, policy::ProcessPolicy& p) -> Status {
    if (p.modes->find(name) == p.modes->end())
      return Status(Code::kNotFound, fmt::format("the program has added no mode '{}'{}", name,
                                                 base::did_you_mean(name, names_of(*p.modes))));
    if (p.file != nullptr) {
      const Config& config = p.file->config;
      YARD_RETURN_IF_ERROR(each_mode(
          config, [&](const std::string& used, const std::string& path, const std::string& op) {
            if (used != name) return Status();
            return Status(Code::kConflict,
                          fmt::format("mode '{}' is in use: {}{} of the rules in force names it; "
                                      "other rules must come first",
                                      name, path, place_text(config, path, op)));
          }));
    }
    auto modes = std::make_shared<policy::Modes>(*p.modes);
    modes->erase(modes->find(name));
    p.modes = std::move(modes);
    return {};
  });
}

Status Core::set_observer(std::shared_ptr<registry::CallObserver> observer) {
  return edit_policy([&](const registry::State&, policy::ProcessPolicy& p) {
    p.observer = observer;
    return Status();
  });
}

void observe(const Entry& e, const yard_value_t* args, uint32_t flags, const Options* o) noexcept {
  const select::CandidateSet& candidates = e.candidates();
  const select::OpSettings& d = candidates.settings();
  const uint32_t index = candidates.op_record().op->index;
  const op::Labels* labels = &d.labels;
  op::Labels both;
  if (o != nullptr && !o->labels.empty()) {
    // Those that no rule reads are not part of the entry.
    try {
      std::map<std::string, std::string, std::less<>> all = o->labels;
      all.insert(d.labels.begin(), d.labels.end());
      both.assign(all.begin(), all.end());
      labels = &both;
    } catch (const std::bad_alloc&) {
      // The call goes on, and counts without its own labels.
    }
  }
  d.watch.observer->seen({e.program(), index, args, flags, *labels});
}

}  // namespace yard::detail
