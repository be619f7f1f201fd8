// SPDX-License-Identifier: Apache-2.0
// The compiler refuses verifiers of plugins whose parameters differ from the function's, even if
// they convert.
#include <yard/plugin_function.hpp>

using yard::plugin::function;

int64_t impl(int64_t x, float) { return x; }
yard::Verdict says(int64_t, float) { return yard::Accept(); }
yard::Verdict says_by_reference(const int64_t&, const float&) { return yard::Accept(); }
yard::Verdict asks(const yard::FunctionQuery& q, int64_t, float) {
  return q.training() ? yard::Verdict(yard::Reject(YARD_REASON_INFERENCE_ONLY)) : yard::Accept();
}
void right() {
  auto f = function<impl>("group", "name", "backend");
  f.verify<says>().verify<says_by_reference>().verify<asks>();
  f.verify<[](auto, auto) -> yard::Verdict { return yard::Accept(); }>();
}

#ifdef CASE_1  // expect: must take the function's parameters
yard::Verdict converts(int8_t, double) { return yard::Accept(); }
void wrong() { function<impl>("group", "name", "backend").verify<converts>(); }
#endif

#ifdef CASE_2  // expect: must take the function's parameters
yard::Verdict converts(const yard::FunctionQuery&, int64_t, double) { return yard::Accept(); }
void wrong() { function<impl>("group", "name", "backend").verify<converts>(); }
#endif

#ifdef CASE_3  // expect: must return yard::Verdict
bool vague(int64_t, float) { return true; }
void wrong() { function<impl>("group", "name", "backend").verify<vague>(); }
#endif

#ifdef CASE_4  // expect: must take the function's parameters
yard::Verdict stale(int64_t) { return yard::Accept(); }
void wrong() { function<impl>("group", "name", "backend").verify<stale>(); }
#endif
