// SPDX-License-Identifier: Apache-2.0
// An older C++ standard is refused by name. The cases are compiled with it.
// standard: c++17
#if defined(CASE_2)
#include <yard/plugin.hpp>
#else
#include <yard/op.h>
#endif

#ifdef CASE_1  // expect: Switchyard needs C++20
#endif

#ifdef CASE_2  // expect: Switchyard needs C++20
#endif
