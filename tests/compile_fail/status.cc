// SPDX-License-Identifier: Apache-2.0
// The compiler refuses to drop a failure silently.
#include <yard/status.h>

yard::Status act();
yard::Result<int> compute();

void right() {
  act().ignore();
  if (!act()) return;
  (void)compute();
}

#ifdef CASE_1  // expect: unused-result | unused-value
void wrong() { act(); }
#endif

#ifdef CASE_2  // expect: unused-result | unused-value
void wrong() { compute(); }
#endif

#ifdef CASE_3  // expect: cannot convert | no viable conversion
int wrong() { return act(); }
#endif

#ifdef CASE_4  // expect: could not convert | cannot convert | no viable conversion
bool wrong() { return compute(); }
#endif
