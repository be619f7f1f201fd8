// SPDX-License-Identifier: Apache-2.0
#include "plugin/installed.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

namespace yard::plugin {

std::string directory_of_this_library() {
  Dl_info info;
  static const char anchor = 0;
  if (::dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return {};
  std::string path = info.dli_fname;
  if (!path.starts_with('/')) {  // of a program that holds the library itself
    char real[PATH_MAX];
    const ssize_t n = ::readlink("/proc/self/exe", real, sizeof real);
    if (n <= 0) return {};
    path.assign(real, static_cast<size_t>(n));
  }
  return path.substr(0, std::max<size_t>(path.rfind('/'), 1));
}

std::string installed_directory() {
  const std::string here = directory_of_this_library();
  char real[PATH_MAX];
  if (!here.empty())
    for (const char* from_here : {YARD_PLUGINS_FROM_LIBRARY, YARD_PLUGINS_FROM_PROGRAM})
      if (::realpath((here + "/" + from_here).c_str(), real) != nullptr) return real;
  return YARD_PLUGIN_DIRECTORY;
}

}  // namespace yard::plugin
