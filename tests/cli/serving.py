# SPDX-License-Identifier: Apache-2.0
"""Starts tests/cli/serving_program.cc without any configuration, as a service to observe from outside."""
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

from command import Yard, environment


def wait_for(what, seconds=30):
    """Returns the first true value of what(), or fails after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        time.sleep(0.05)


class Service(Yard):
    def start(self, **changes):
        """Starts a service and waits until it has made calls."""
        kept = {k: v for k, v in environment().items() if not k.startswith("YARD_")}
        self.log = os.path.join(self.folder(), "log")
        with open(self.log, "w", encoding="utf-8") as log:
            service = subprocess.Popen([os.environ["SERVING_PROGRAM"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=log, text=True, env={**kept, **changes})
        service.lines = []

        def read():
            for line in service.stdout:
                service.lines.append(line)

        service.reader = threading.Thread(target=read)
        service.reader.start()
        self.addCleanup(self.stop, service)
        wait_for(lambda: len(service.lines) >= 2 or service.poll() is not None)
        self.assertIsNone(service.poll(), "the service has ended")
        return service

    def stop(self, service):
        if service.poll() is None:
            service.send_signal(signal.SIGCONT)
        service.stdin.close()
        service.wait(30)
        service.reader.join()
        service.stdout.close()

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def logged(self):
        """Returns the stderr of the last service."""
        with open(self.log, encoding="utf-8") as f:
            return f.read()

    def wrong_results(self, service):
        """Returns the number of results with a NaN by kind of call, in two whole intervals from now."""
        first = len(service.lines) + 1  # the current interval began earlier
        wait_for(lambda: len(service.lines) >= first + 2)
        sums = {}
        for line in service.lines[first:first + 2]:
            for kind, count in re.findall(r"(\w,\d+)=(\d+)", line):
                sums[kind] = sums.get(kind, 0) + int(count)
        return sums
