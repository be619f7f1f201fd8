// SPDX-License-Identifier: Apache-2.0
// Modes of a random world. Their answers are hashes of exactly the values that they declare to
// read.
#include <algorithm>

#include "random_world.h"

namespace yard::testing {
namespace {

// Hashes what every question contains: the flags, the device, the labels and the candidates.
uint64_t hash_question(uint64_t salt, const ModeCall& c) {
  uint64_t h = mix(mix(salt, c.flags), static_cast<uint64_t>(c.device.index));
  for (const auto& [name, value] : c.labels)
    for (const char letter : name + value) h = mix(h, static_cast<uint8_t>(letter));
  for (const ModeCall::Candidate& k : c.candidates) h = mix(h, static_cast<uint8_t>(k.id[1]));
  return h;
}

// Returns some candidates in some order. Sometimes there is none, one is repeated, or one cannot
// serve.
std::vector<std::string> answer(uint64_t h, const ModeCall& c) {
  if (h % 17 == 0) throw std::runtime_error("no answer");
  std::vector<std::string> ids;
  for (uint64_t n = h % 4; n > 0; --n) {
    h = mix(h, n);
    ids.emplace_back(c.candidates[h % c.candidates.size()].id);
    if (h % 11 == 0) ids.push_back("k" + std::to_string(h / 11 % 10));
  }
  return ids;
}

}  // namespace

void World::add_modes() {
  const uint64_t salt = random_.below(1u << 30);
  ModeProvider some;
  std::vector<std::string> reads;
  for (size_t n = random_.below(3); n > 0; --n) reads.push_back(random_.of(fields_));
  // An argument that is not an integer field is read as a whole.
  std::vector<size_t> whole;
  if (random_.chance(40)) {
    const size_t i = random_.below(program_->schema().params.size());
    const std::string& name = program_->schema().params[i].name;
    if (!program_->field(name)) reads.push_back(name), whole.push_back(i);
  }
  if (random_.chance(20)) reads.emplace_back("no_such_field");
  some.reads = std::move(reads);
  some.plan = [salt, whole](const ModeCall& c) {
    uint64_t h = hash_question(salt, c);
    for (const int64_t v : c.read) h = mix(h, static_cast<uint64_t>(v));
    for (const size_t i : whole) h = hash_value(h, c.args[i]);
    return answer(h, c);
  };
  runtime_.rules().add_mode(kWorldModes[0], std::move(some)).or_throw();

  ModeProvider all;
  if (random_.chance(50)) {
    all.plan = [salt](const ModeCall& c) {
      uint64_t h = hash_question(salt, c);
      for (const yard_value_t& v : c.args) h = hash_value(h, v);
      return answer(h, c);
    };
  }
  if (all.plan == nullptr || random_.chance(50)) {
    all.kernel = [salt](std::string_view call) -> std::string {
      uint64_t h = salt;
      for (const char letter : call) h = mix(h, static_cast<uint8_t>(letter));
      return h % 3 == 0 ? "" : "k" + std::to_string(h % 10);
    };
  }
  runtime_.rules().add_mode(kWorldModes[1], std::move(all)).or_throw();
}

}  // namespace yard::testing
