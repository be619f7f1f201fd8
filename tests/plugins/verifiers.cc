// SPDX-License-Identifier: Apache-2.0
// A plugin whose implementation of a function has the verifier CASE: good, moody, throws, crashes,
// or no_samples, which is good but has no sample calls.
#include <yard/plugin_function.hpp>

#include <atomic>
#include <stdexcept>

#ifndef CASE
#define CASE good
#endif

namespace {

using namespace yard::plugin;

struct Job {
  int64_t* data;
  int64_t size;
};

constexpr const char* kReasons[] = {"{0} is more than {1}"};
int64_t run(const Job& j) { return j.size; }

yard::Verdict good(const Job& j) {
  if (j.size > 4) return yard::Reject(kReasons[0], j.size, 4);
  return yard::Accept();
}
[[maybe_unused]] yard::Verdict no_samples(const Job& j) { return good(j); }
[[maybe_unused]] yard::Verdict moody(const Job&) {
  static std::atomic<int> asked{0};
  if (asked.fetch_add(1) % 2 != 0) return yard::Reject(kReasons[0], 1, 0);
  return yard::Accept();
}
[[maybe_unused]] yard::Verdict throws(const Job&) { throw std::out_of_range("no entry 7"); }
[[maybe_unused]] yard::Verdict crashes(const Job&) { __builtin_trap(); }

[[maybe_unused]] void jobs(const yard::SampleCalls<int64_t(const Job&)>& call) {
  int64_t data[8] = {};
  call(Job{data, 4});
  call(Job{data, 8});
}

}  // namespace

const yard_plugin_t* YARD_PLUGIN_QUERY(uint32_t, const yard_host_t* host) {
  static const Plugin plugin = Plugin("verifiers", "1.0")
                                   .add(Backend("judge"))
                                   .add(function<run>("v_jobs", "run", "judge")
                                            .verify<CASE>(kReasons, host)
#ifndef NO_SAMPLES
                                            .samples<jobs>()
#endif
                                   );
  return plugin.get();
}

YARD_MANIFEST("verifiers", "1.0", YARD_MANIFEST_FUNCTIONS("v_jobs"));
