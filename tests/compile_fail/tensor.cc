// SPDX-License-Identifier: Apache-2.0
// The compiler refuses a view over an element type that has no dtype.
#include <yard/tensor.h>

#include <string>
#include <vector>

std::vector<float> floats(8);
const yard::TensorView right = yard::view(floats, {2, 4});
const yard::TensorView row = yard::view(floats.data() + 4, {4});

#ifdef CASE_1  // expect: no dtype for this element type
std::vector<std::string> words(8);
const yard::TensorView wrong = yard::view(words, {8});
#endif

#ifdef CASE_2  // expect: no dtype for this element type
std::vector<std::string> words(8);
const yard::TensorView wrong = yard::view(words.data(), {8});
#endif
