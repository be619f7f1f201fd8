// SPDX-License-Identifier: Apache-2.0
// Makes random rule files for a random world.
#include "random_world.h"

#include <array>
#include <cstdint>

namespace yard::testing {
namespace {

constexpr const char* kCompare[] = {"",    "_eq",  "_ne", "_gt",    "_gte",
                                    "_lt", "_lte", "_in", "_not_in"};

constexpr int64_t kNumbers[] = {0, 1, 2, 3, 8, 16, 64, 500, -1, INT64_MIN, INT64_MAX};
constexpr const char* kFloatTexts[] = {"0", "0.5", "1", "-1", "1e300", "-0.0"};

}  // namespace

Condition World::condition() {
  Condition c;
  const auto word = [&](std::string key, std::initializer_list<const char*> words) {
    c.key = std::move(key);
    c.key += random_.of(std::array{"", "_ne", "_in", "_not_in"});
    c.list = c.key.ends_with("_in");
    for (size_t n = c.list ? 1 + random_.below(2) : 1; n > 0; --n)
      c.values.push_back({random_.of(words), false});
  };
  const auto compare = [&](const std::string& field, const auto& values) {
    c.key = field;
    c.key += random_.of(kCompare);
    c.list = c.key.ends_with("_in");
    for (size_t n = c.list ? 1 + random_.below(3) : 1; n > 0; --n)
      c.values.push_back({values(), false});
  };
  const auto like = [&](const std::string& field, std::initializer_list<const char*> globs,
                        std::initializer_list<const char*> expressions) {
    const bool glob = random_.chance(50);
    c.key = field + (glob ? "_match" : "_regex");
    c.values.push_back({random_.of(glob ? globs : expressions), false});
  };
  const op::Param* scalar = nullptr;  // a parameter that is not a field
  for (const op::Param& p : program_->schema().params)
    if ((p.kind == op::Kind::kFloat || p.kind == op::Kind::kString) && random_.chance(60))
      scalar = &p;
  switch (random_.below(scalar != nullptr ? 12 : 11)) {
    case 0: word("dtype", {"float32", "bf16", "float16"}); return c;
    case 1: word("label.tenant", {"0", "1", "2", "3"}); return c;
    case 2:
      c.key = random_.of(std::array{"inference", "deterministic", "capturing"});
      c.values = {{random_.of(std::array{"true", "false"}), false}};
      return c;
    case 3: word("device", {"cpu", "cuda", "cuda:1"}); return c;
    case 4:
      word(random_.chance(50) ? "layout" : "x.layout", {"contiguous", "dense", "strided"});
      return c;
    case 5:
      if (random_.chance(50)) {
        c.key = "contiguous";
        c.values = {{random_.of(std::array{"true", "false"}), false}};
      } else {
        word("platform", {"cpu", "cuda"});
      }
      return c;
    case 6:
      if (random_.chance(50))
        compare("tp_size", [&] { return std::string(random_.of(std::array{"1", "2", "8"})); });
      else
        like("label.tenant", {"[01]", "?", "2*"}, {"[0-2]", "1|3", "2.*"});
      return c;
    case 11:
      if (scalar->kind == op::Kind::kFloat)
        compare(scalar->name, [&] { return std::string(random_.of(kFloatTexts)); });
      else if (random_.chance(50))
        like(scalar->name, {"a*", "aa?", "*aaaa"}, {"a+", "(aa)+", ".{3}"});
      else
        word(scalar->name, {"a", "aa", "aaa", "b"});
      return c;
    default: break;
  }
  c.key = random_.of(fields_);
  const int arg = program_->index_of(c.key);
  const op::Kind kind =
      arg >= 0 ? program_->schema().params[static_cast<size_t>(arg)].kind : op::Kind::kInt;
  if (kind == op::Kind::kBool) {
    c.values = {{random_.of(std::array{"true", "false"}), false}};
  } else if (kind == op::Kind::kEnum) {
    const std::string key = c.key;
    word(key, {"a", "b", "c"});
  } else {
    compare(std::string(c.key), [&] { return std::to_string(random_.of(kNumbers)); });
  }
  return c;
}

Config World::config() {
  Config to;
  const auto id = [&] {
    return random_.chance(20) ? std::string(random_.of(std::array{"k*", "k[0-4]", "?1"}))
                              : kernel_id(static_cast<int>(random_.below(10)));
  };
  const auto conditions = [&](std::vector<Condition>& list) {
    for (size_t n = random_.below(4); n > 0; --n) list.push_back(condition());
    // Keep one condition for each key, because a file cannot repeat a key.
    std::vector<Condition> once;
    for (Condition& c : list) {
      bool there = false;
      for (const Condition& o : once) there |= o.key == c.key;
      if (!there) once.push_back(std::move(c));
    }
    list = std::move(once);
  };
  for (size_t n = random_.below(6); n > 0; --n) {
    DispatchRule& r = to.dispatch_rules.emplace_back();
    r.operation = random_.of(std::array{"op", "o*", "*"});
    r.kernel = id(), r.optional = true;
    if (random_.chance(20)) r.deny.push_back({id(), true, {}});
    if (random_.chance(10)) r.allow = {{id(), true, {}}, {id(), true, {}}};
    if (random_.chance(20) && (!r.deny.empty() || r.allow)) r.kernel.clear();
    if (random_.chance(70)) r.priority = static_cast<int>(random_.below(4) * 10);
    conditions(r.conditions);
  }
  for (size_t n = random_.below(3); n > 0; --n) {
    ScoreRule& s = to.score.emplace_back();
    s.kernel = id(), s.optional = true;
    s.add = static_cast<double>(random_.below(3)) * 60, s.multiply = random_.chance(50) ? 1 : 0.5;
    conditions(s.conditions);
  }
  const auto exact = [&] {
    return KernelRef{kernel_id(static_cast<int>(random_.below(10))), true, {}};
  };
  if (random_.chance(30))
    for (size_t n = 1 + random_.below(3); n > 0; --n) to.fallback_chains["op"].push_back(exact());
  if (random_.chance(15)) to.static_kernel_map["op"] = exact();
  if (random_.chance(30))
    to.settings.mode = random_.of(
        std::array{"auto", "dynamic", "config", "static", kWorldModes[0], kWorldModes[1]});
  if (random_.chance(40))
    to.settings.mode_fallback = random_.of(std::array<std::vector<std::string>, 4>{
        {{"dynamic"}, {"config"}, {"dynamic", "config"}, {"config", "dynamic"}}});
  if (random_.chance(20)) to.kernel_denies.push_back(exact());
  return to;
}

void World::change_config() {
  const Status s = runtime_.rules().set(config());
  // Rules that would leave a recorded call without a kernel are refused, which changes nothing.
  if (!s.ok() && s.to_string().find("would be left without a kernel") == std::string::npos)
    throw std::runtime_error(s.to_string());
}

}  // namespace yard::testing
