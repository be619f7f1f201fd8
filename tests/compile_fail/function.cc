// SPDX-License-Identifier: Apache-2.0
// The compiler refuses functions whose signature differs from the declaration.
#include <yard/function.h>

struct Args {
  int heads;
};
inline const yard::Function<int(const Args&, float)> chunk{
    "kda", "chunk", [](const Args& a, float) { return a.heads; }};
YARD_DISPATCHED(recur, "kda")(const Args& a) { return a.heads; };

int good(const Args& a, float) { return a.heads; }
yard::Verdict fits(const Args& a, float) {
  if (a.heads == 0) return yard::Reject("no heads");
  return yard::Accept();
}
void right(yard::Changes& c) {
  yard::implement(c, chunk, "fast", good, fits, {.priority = 1});
  yard::implement(c, recur, "fast", [](const Args&) { return 1; });
}

#ifdef CASE_1  // expect: the very signature
void wrong(yard::Changes& c) {
  yard::implement(c, chunk, "fast", [](const Args&, double) { return 1; });
}
#endif

#ifdef CASE_2  // expect: the very signature
void wrong(yard::Changes& c) {
  yard::implement(c, chunk, "fast", [](const Args&, float) { return 1.0; });
}
#endif

#ifdef CASE_3  // expect: must take the function's parameters
yard::Verdict stale(const Args&) { return yard::Accept(); }
void wrong(yard::Changes& c) { yard::implement(c, chunk, "fast", good, stale); }
#endif

#ifdef CASE_4  // expect: must return yard::Verdict
void wrong(yard::Changes& c) {
  yard::implement(c, chunk, "fast", good, [](const Args&, float) { return true; });
}
#endif

#ifdef CASE_5  // expect: must take the function's parameters
yard::Verdict changes(Args& a, float) { return a.heads = 0, yard::Accept(); }
void wrong(yard::Changes& c) { yard::implement(c, chunk, "fast", good, changes); }
#endif

#ifdef CASE_6  // expect: no match for call | no matching function
int wrong() { return chunk(Args{1}); }
#endif

#ifdef CASE_7  // expect: needs parameters with types
YARD_DISPATCHED(generic, "kda")(auto x) { return x; };
#endif

inline const yard::Function<int(int)> extended{"kda", "extended"};
int right_call() {
  return extended.call_or([] { return 0; }, 1);
}
void right_next(yard::Changes& c) {
  yard::implement(c, extended, "fast", [](yard::Next<int(int)> next, int x) { return next(x); });
}

#ifdef CASE_8  // expect: takes nothing and returns what the function does
int wrong_default() {
  return extended.call_or([](int x) { return x; }, 1);
}
#endif

#ifdef CASE_9  // expect: the very signature
void wrong_next(yard::Changes& c) {
  yard::implement(c, extended, "fast", [](yard::Next<int(int)>, short x) { return int{x}; });
}
#endif

#ifdef CASE_10  // expect: must be complete, so that its layout can be compared
struct Opaque;
inline const yard::Function<void(Opaque*)> opaque{"kda", "opaque"};
#endif
