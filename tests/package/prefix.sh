#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Follows docs/get_started.md for a prefix: installs there, builds programs with it, and installs
# one of them. Run by ctest as prefix.sh BUILD PACKAGE LIBDIR, with the build tree, this folder and
# the name of the library folder.
set -e
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
ln -s "$1" build
mkdir my_program
cp "$2/find_package/CMakeLists.txt" "$2/find_package/main.cc" my_program
PREFIX=$work/prefix
mkdir "$PREFIX"
test "$3" = lib || ln -s "$3" "$PREFIX/lib"
unset LD_LIBRARY_PATH

# [install]
cmake --install build --prefix "$PREFIX"
export PATH="$PREFIX/bin:$PATH"
yard --version
# [/install]
test "$(command -v yard)" = "$PREFIX/bin/yard"
"$PREFIX/bin/yard-chat" --version | grep -q "^yard-chat $(yard --version)$"

# The manual page and the completions come from this command.
share=$PREFIX/share
yard help --man | cmp - "$share/man/man1/yard.1"
yard completion bash | cmp - "$share/bash-completion/completions/yard"
yard completion zsh | cmp - "$share/zsh/site-functions/_yard"
yard completion fish | cmp - "$share/fish/vendor_completions.d/yard.fish"

# [cmake]
cmake -S my_program -B my_build -DCMAKE_PREFIX_PATH="$PREFIX"
cmake --build my_build
my_build/consumer
# [/cmake]

# [rpath]
cmake -S my_program -B my_build -DCMAKE_INSTALL_RPATH_USE_LINK_PATH=ON
cmake --install my_build --prefix apps
apps/bin/consumer
# [/rpath]

# [pkg_config]
export PKG_CONFIG_PATH="$PREFIX/lib/pkgconfig"
rpath=$(pkg-config --variable=libdir switchyard)
c++ -std=c++20 my_program/main.cc -o consumer $(pkg-config --cflags --libs switchyard) -Wl,-rpath,"$rpath"
./consumer
# [/pkg_config]

# Without an rpath the program does not find the library, unless the environment names its folder.
c++ -std=c++20 my_program/main.cc -o bare $(pkg-config --cflags --libs switchyard)
if ./bare 2> error; then
  echo "a program without an rpath should not start" >&2
  exit 1
fi
grep -q libyard error
LD_LIBRARY_PATH="$rpath" ./bare

# The prefix can be moved as a whole.
mv "$PREFIX" moved
moved/bin/yard list rms_norm > /dev/null
PKG_CONFIG_PATH=$work/moved/lib/pkgconfig pkg-config --cflags switchyard | grep -q moved/
