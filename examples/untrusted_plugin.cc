// SPDX-License-Identifier: Apache-2.0
// Loads plugins from other people only after they have been verified.
#include <yard/yard.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(x) \
  if (!(x)) return std::printf("failed: %s\n", #x), EXIT_FAILURE

int main() {
  // [settings]
  yard::RuntimeSettings settings;
  settings.plugins.paths = {"/opt/acme/plugins"};
  settings.plugins.require_verified = true;  // what `yard verify FILE` found good
  yard::Runtime runtime(settings);
  // [/settings]
  for (const yard::PluginInfo& p : runtime.plugins().list())
    if (p.state == yard::PluginState::kRefused)
      std::printf("%s: %s: %s\n", p.path.c_str(), to_string(p.reason), p.detail.c_str());
  const yard::Status s = runtime.plugins().load("/opt/acme/plugins/none.so");
  CHECK(!s.ok());
  std::printf("%s\n", s.to_string().c_str());
  return EXIT_SUCCESS;
}
