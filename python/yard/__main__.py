# SPDX-License-Identifier: Apache-2.0
"""`python -m yard` is the command `yard`."""

import os
import shutil
import sys


def main():
    here = os.path.join(os.path.dirname(__file__), "bin", "yard")
    command = here if os.path.exists(here) else shutil.which("yard")
    if command is None:
        sys.exit("python -m yard: the command 'yard' is not installed with this package")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
