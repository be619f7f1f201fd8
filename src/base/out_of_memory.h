// SPDX-License-Identifier: Apache-2.0
// Where exceptions for lack of memory become errors: at the boundary of the library, in functions that return a Status or a
// Result. Below it they pass, and a change that meets one has not happened.
#pragma once

#include <yard/result.h>

#include <new>

namespace yard::base {

// What f() returns, a Status or Result; Status::out_of_memory() if there was no memory for it.
template <class F>
auto or_out_of_memory(const F& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return Status::out_of_memory();
  }
}

// For what comes after a change is in force, and may be left out: nothing that is thrown for lack of memory passes.
template <class F>
void if_memory_allows(const F& f) {
  try {
    f();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace yard::base
