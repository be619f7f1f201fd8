# SPDX-License-Identifier: Apache-2.0
"""Tests the thread-local storage of the library, and opens it in Python.

  dlopen_test.py size LIBRARY READELF     fails if the library has more than 256 bytes of thread-local storage, or
                                          needs that of another library in the static block
  dlopen_test.py MODULE LIBRARY READELF   opens it after a module (numpy, torch), whose libraries use such storage, too
"""
import ctypes
import importlib
import re
import subprocess
import sys

MOST = 256  # glibc reserves about 1,600 bytes for all libraries that a process opens later
SKIPPED = 77


def size_of_thread_local_storage(library, readelf):
    headers = subprocess.run([readelf, "-lW", library], check=True, capture_output=True, text=True).stdout
    found = re.search(r"^\s*TLS\s+(?:0x\w+\s+){4}(0x\w+)", headers, re.M)
    return int(found[1], 16) if found else 0


def foreign_static_storage(library, readelf):
    """Variables of other libraries that cannot be found if those were opened with dlopen."""
    relocations = subprocess.run([readelf, "-rW", library], check=True, capture_output=True, text=True).stdout
    return re.findall(r"TPOFF\w*\s+\w+\s+(\S+@\S+)|TLS_TPREL\w*\s+\w+\s+(\S+@\S+)", relocations)


def main():
    what, library, readelf = sys.argv[1:]
    if what == "size":
        size = size_of_thread_local_storage(library, readelf)
        print(f"{library}: {size} bytes of thread-local storage, at most {MOST} are allowed")
        foreign = foreign_static_storage(library, readelf)
        print(f"static thread-local storage of other libraries: {foreign or 'none'}")
        sys.exit(size > MOST or bool(foreign))
    try:
        importlib.import_module(what)
    except ImportError:
        print(f"skipped, {what} is not installed")
        sys.exit(SKIPPED)
    ctypes.CDLL(library).yard_find_op


main()
