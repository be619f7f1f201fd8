// SPDX-License-Identifier: Apache-2.0
// Defines a type of an unnamed namespace with the name and size of one in functions_test.cc but
// with its fields in another order.
#include <yard/function.h>
#include <yard/plugin_function.hpp>

namespace yard::testing {

const char* signature_in_another_file();
void bring_from_another_file(Changes& c);

namespace {
struct OfThisFile {
  double first;
  int64_t second;
};
int count_of(const OfThisFile& x) { return static_cast<int>(x.second); }
}  // namespace

const char* signature_in_another_file() { return signature_of<int(const OfThisFile&)>(); }
void bring_from_another_file(Changes& c) {
  c.add_function(plugin::function<count_of>("t_math", "of_this_file", "of_other").d);
}

}  // namespace yard::testing
