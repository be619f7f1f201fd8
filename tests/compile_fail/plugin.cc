// SPDX-License-Identifier: Apache-2.0
// The compiler refuses a kernel whose signature the ABI cannot carry.
#include <yard/plugin.hpp>

#include <string>

using yard::plugin::Call;
using yard::plugin::Kernel;
using yard::plugin::Tensor;
using yard::plugin::TensorList;

void all_types(Call, Tensor, Tensor, double, int64_t, bool, std::string_view, TensorList) {}
int32_t with_code(Call call, Tensor) { return call.fail(YARD_DECLINED, "odd %d", 1); }
void no_throw(Call, Tensor) noexcept {}
int32_t no_throw_with_code(Call, Tensor) noexcept { return YARD_OK; }
Kernel right() { return Kernel::of<all_types>("op", "default.a"); }
Kernel right_too() { return Kernel::of<with_code>("op", "default.b"); }
Kernel right_no_throw() { return Kernel::of<no_throw>("op", "default.c"); }
Kernel right_no_throw_too() { return Kernel::of<no_throw_with_code>("op", "default.d"); }

#ifdef CASE_1  // expect: a kernel returns void (and throws) or int32_t
double wrong_result(Call, Tensor) { return 0; }
Kernel wrong() { return Kernel::of<wrong_result>("op", "default.a"); }
#endif

#ifdef CASE_2  // expect: Wire<float>
void wrong_number(Call, Tensor, float) {}
Kernel wrong() { return Kernel::of<wrong_number>("op", "default.a"); }
#endif

#ifdef CASE_3  // expect: EntriesOf<
void no_call(Tensor, Tensor) {}
Kernel wrong() { return Kernel::of<no_call>("op", "default.a"); }
#endif

#ifdef CASE_4  // expect: Wire<std::__cxx11::basic_string<char> > | Wire<std::basic_string<char>>
void owned_string(Call, std::string) {}
Kernel wrong() { return Kernel::of<owned_string>("op", "default.a"); }
#endif
