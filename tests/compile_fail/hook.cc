// SPDX-License-Identifier: Apache-2.0
// Hooks: what does not fit the signature is refused by the compiler.
#include <yard/yard.h>

#include <memory>
#include <string>

struct Builder {
  int lines = 0;
};
struct Opaque;

inline yard::Hook<int(Builder&, std::unique_ptr<int>)> hook{"hook"};

int right(Builder& b) {
  return yard::call_or(
      hook, [] { return 0; }, b, std::make_unique<int>(1));
}
auto chosen() {
  return yard::choose(hook, [](Builder&, std::unique_ptr<int>) { return 0; });
}
void set(yard::HookSet& s) {
  s.add(hook, [](Builder& b, std::unique_ptr<int>) { return b.lines; });
  s.add(hook, [](yard::Next<int(Builder&, std::unique_ptr<int>)> next, Builder& b,
                 std::unique_ptr<int> p) { return next(b, std::move(p)); });
}

bool listed(const yard::Hooks& hooks) {
  const yard::HookListing list = hooks.list();
  return list.find("hook") != nullptr;
}

#ifdef CASE_1  // expect: these are not the arguments of the hook's signature
int wrong() {
  return yard::call_or(
      hook, [] { return 0; }, std::string("text"));
}
#endif

#ifdef CASE_2  // expect: the default of a hook takes nothing and returns what the hook does
int wrong(Builder& b) {
  return yard::call_or(
      hook, [] { return std::string(); }, b, std::make_unique<int>(1));
}
#endif

#ifdef CASE_3  // expect: the implementation does not fit the hook's signature
void wrong(yard::HookSet& s) {
  s.add(hook, [](std::string) { return 1; });
}
#endif

#ifdef CASE_4  // expect: the default definition has another signature than the hook
auto wrong() {
  return yard::choose(hook, [](int) { return 0; });
}
#endif

#ifdef CASE_5  // expect: must be complete, so that its layout can be compared
inline yard::Hook<void(Opaque*)> opaque{"opaque"};
#endif

#ifdef CASE_6                   // expect: the implementation does not fit the hook's signature
void wrong(yard::HookSet& s) {  // several threads call it at once
  s.add(hook, [n = 0](Builder&, std::unique_ptr<int>) mutable { return ++n; });
}
#endif

#ifdef CASE_7  // expect: these are not the arguments of the hook's signature
int wrong(const Builder& b) {
  return yard::call_or(
      hook, [] { return 0; }, b, nullptr);
}
#endif

#ifdef CASE_8                   // expect: the implementation does not fit the hook's signature
void wrong(yard::HookSet& s) {  // numbers would be cut
  s.add<int64_t(int64_t)>("narrow", [](int x) { return x; });
}
#endif

#ifdef CASE_9  // expect: the implementation does not fit the hook's signature
void wrong(yard::HookSet& s) {
  s.add<float(int64_t)>("narrow", [](int64_t x) -> double { return 0.1 * static_cast<double>(x); });
}
#endif

#ifdef CASE_10  // expect: the implementation does not fit the hook's signature
void wrong(yard::HookSet& s) {
  s.add<int64_t(int64_t)>("narrow", [](yard::Next<int64_t(int64_t)>, short x) { return x; });
}
#endif

#ifdef CASE_11  // expect: use of deleted function | call to deleted function
auto wrong() {
  return yard::choose(yard::Hook<int(int)>("gone"), [](int x) { return x; });
}
#endif

#ifdef CASE_12  // expect: use of deleted function | call to deleted member function
auto wrong(const yard::Hooks& hooks) {  // it would point into the listing, which is gone
  return hooks.list().find("hook");
}
#endif
