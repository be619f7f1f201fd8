// SPDX-License-Identifier: Apache-2.0
// The compiler refuses typed ops that can never be called correctly.
#include <yard/yard.h>

#include <vector>

inline constexpr yard::Op<void(yard::Out, yard::In, yard::In, float)> rms_norm{"rms_norm"};

yard::Status right(const yard::TensorView& out, const yard::TensorView& x) {
  return rms_norm(out, x, x, 1e-6f);
}

#ifdef CASE_1  // expect: unused-result | unused-value
void wrong(const yard::TensorView& t) { rms_norm(t, t, t, 1e-6f); }
#endif

#ifdef CASE_2  // expect: an op's parameter is In, Out
inline constexpr yard::Op<void(yard::Out, std::vector<float>)> odd{"odd"};
yard::Status wrong(const yard::TensorView& t) { return odd(t, {}); }
#endif

#ifdef CASE_3  // expect: no match for call | no matching function
yard::Status wrong(const yard::TensorView& t) { return rms_norm(t, t, 1e-6f); }
#endif

#ifdef CASE_4  // expect: no match for call | no matching function
yard::Status wrong(const yard::TensorView& t) { return rms_norm(t, t, t, "small"); }
#endif
