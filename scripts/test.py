#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests stage by stage and ends in one line: N passed, N failed.

A program of GoogleTest is one entry of ctest and counts as many times as it has tests. A stage that cannot be built counts
as one failure. Up to three tests of a stage that fail are rerun alone: those that pass then are listed as unstable and do
not fail the run. What a sanitizer has reported stays a failure.

Usage: test.py [--full] [--fuzz-seconds N] [--soak-seconds N] [stage ...]
  --full  only the tests with the label `full`, with ten times as many rounds (TEST_SCALE)

The stage `soak` repeats the tests of tests/soak.txt under the address and the thread sanitizer. What could not be run is
listed at the end as left out.
"""
import argparse
import concurrent.futures
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOST_UNSTABLE = 3  # per stage; more failures than that are not rerun
CORES = os.cpu_count() or 2
JOBS = CORES + 1  # some tests wait most of their time; those that measure run alone
FULL_SCALE = 10
SOAK_REPEAT = 10
SOAK_HANGS = 1800  # seconds


class Tally:
    def __init__(self):
        self.passed, self.skipped, self.failures, self.unstable = 0, [], [], []

    def fail(self, name):
        self.failures.append(name)
        print(f"FAILED: {name}", flush=True)


def configure(preset):
    """True if it succeeds. The release build has the Python package if its tools can be installed."""
    command = ["cmake", "--preset", preset, "--log-level=WARNING"]
    if preset == "release":
        tools = subprocess.run([ROOT / "scripts" / "python_tools.sh"]).returncode == 0
        command += [f"-DYARD_BUILD_PYTHON={'ON' if tools else 'OFF'}",
                    f"-DPython_EXECUTABLE={ROOT / 'build' / 'python-tools' / 'bin' / 'python'}"]
    return subprocess.run(command, cwd=ROOT).returncode == 0


def build(preset, *targets):
    """Configures and builds; true if both succeed."""
    command = ["cmake", "--build", "--preset", preset]
    if targets:
        command += ["--target", *targets]
    return configure(preset) and subprocess.run(command, cwd=ROOT).returncode == 0


def folder(preset):
    return ROOT / "build" if preset == "release" else ROOT / "build" / preset


def why_skipped(case):
    """The reason for which a test did not run, or None. A test that could not be started has failed."""
    if case.get("status") == "disabled":
        return "disabled"
    skipped = case.find("skipped")
    if skipped is None or not str(skipped.get("message")).startswith("SKIP_"):
        return None
    said = re.search(r": Skipped\n+(.+)|^SKIPPED \[\d+\] \S+ (.+)", case.findtext("system-out") or "", flags=re.M)
    return said.group(1) or said.group(2) if said else "skipped"


def output_of(case):
    return case.findtext("system-out") or ""


def skipped_inside(case):
    """Tests that a program of GoogleTest skipped: the name of the program alone would hide them."""
    return re.findall(r"^\[  SKIPPED \] (\w+\.\S+) \(", output_of(case), flags=re.M)


def passed_inside(case):
    """How many tests passed in this entry of ctest: 1, or those that a program of GoogleTest counts."""
    output = output_of(case)
    if not re.search(r"^\[==========\] Running \d+ test", output, flags=re.M):
        return int(case.get("status") == "run")
    counted = re.findall(r"^\[  PASSED  \] (\d+) tests?\.$", output, flags=re.M)
    return int(counted[-1]) if counted else len(set(re.findall(r"\[       OK \] (\w\S*)", output)))


def failed_inside(case):
    """The tests of GoogleTest that failed or did not end, and whether the program came to its end."""
    output = output_of(case)
    ended = {"OK": set(), "FAILED": set(), "SKIPPED": set()}
    for result, test in re.findall(r"\[ +(OK|FAILED|SKIPPED) +\] ([\w/]+\.[\w/]+)", output):
        ended[result].add(test)
    begun = set(re.findall(r"\[ RUN +\] ([\w/]+\.[\w/]+)", output))
    unfinished = begun - set().union(*ended.values())
    complete = re.search(r"^\[==========\] \d+ tests? from \d+ .*ran\.", output, flags=re.M) is not None
    return sorted(ended["FAILED"] | unfinished), complete and not unfinished


def run_ctest(preset, arguments, environment, prefix):
    """Runs tests of a build, one line each. Returns the exit code and the cases that ctest reports."""
    report = folder(preset) / "ctest.xml"
    report.unlink(missing_ok=True)
    process = subprocess.Popen(
        [*prefix, "ctest", "--test-dir", str(folder(preset)), "--output-on-failure",
         "--test-output-size-failed", str(16 << 20),  # to keep whole sanitizer reports
         "--test-output-size-passed", str(16 << 20),  # to count passed and skipped tests
         "--output-junit", str(report), *arguments],
        cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace")
    for line in process.stdout:
        if not line.lstrip().startswith("Start "):
            print(line, end="", flush=True)
    rc = process.wait()
    try:
        return rc, list(xml.etree.ElementTree.parse(report).getroot().iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        return rc, []


def passes_alone(preset, case, environment, prefix):
    """Whether an entry of ctest that failed passes when it is rerun alone; of GoogleTest, the tests that failed."""
    if "Sanitizer" in output_of(case):
        return False
    tests, complete = failed_inside(case)
    if complete and tests:  # otherwise some tests have not run at all
        environment = {**(environment or {}), "GTEST_FILTER": ":".join(tests)}
    print("rerun alone:", case.get("name"), *tests, flush=True)
    _, again = run_ctest(preset, ["-R", f"^{re.escape(case.get('name'))}$"], environment, prefix)
    return any(c.get("status") == "run" for c in again)


def ctest(preset, tally, arguments=(), environment=None, prefix=()):
    """Runs the tests of a build and adds up what ctest reports."""
    rc, cases = run_ctest(preset, ["-j", str(JOBS), *arguments], environment, prefix)
    failed = []
    for case in cases:
        if why_skipped(case):
            tally.skipped.append(f"{preset}: {case.get('name')}: {why_skipped(case)}")
            continue
        tally.passed += passed_inside(case)
        tally.skipped += [f"{preset}: {case.get('name')}: {test}" for test in skipped_inside(case)]
        if case.get("status") != "run":
            failed.append(case)
    few = sum(max(1, len(failed_inside(case)[0])) for case in failed) <= MOST_UNSTABLE
    for case in failed:
        name = f"{preset}: {case.get('name')}"
        tests = [f"{name}: {test}" for test in failed_inside(case)[0]] or [name]
        if few and passes_alone(preset, case, environment, prefix):
            tally.passed += len(tests)
            tally.unstable += tests
        else:
            for test in tests:
                tally.fail(test)
    if not cases or (rc != 0 and not failed):
        tally.fail(f"{preset}: ctest" + ("" if cases else " found no test"))


def release(tally, options):
    if build("release"):
        ctest("release", tally, ["-L", "^full$"] if options.full else ["-LE", "^check$"])
    else:
        tally.fail("release: build")


def package(tally, options):
    """Tests of the release build that build the library themselves."""
    if options.full:
        return
    if configure("release"):
        ctest("release", tally, ["-L", "^check$"])
    else:
        tally.fail("package: configure")


def asan(tally, options):
    # A search for leaks takes seconds at each exit. The test programs turn it on for themselves,
    # and the programs that they start run without it.
    # programs that they start do without.
    environment = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    if build("asan"):
        ctest("asan", tally, ["-L", "^full$"] if options.full else (), environment)
    else:
        tally.fail("asan: build")


def without_random_addresses():
    """The thread sanitizer of older compilers fails where address randomisation is strong."""
    prefix = ("setarch", platform.machine(), "-R")
    if not shutil.which("setarch"):
        return ()
    works = subprocess.run([*prefix, "true"], stderr=subprocess.DEVNULL).returncode == 0
    return prefix if works else ()


def tsan(tally, options):
    if build("tsan", "yard_tsan_tests"):
        ctest("tsan", tally, ["-L", "^tsan$"] + ["-L", "^full$"] * options.full,
              {"TSAN_OPTIONS": "halt_on_error=1"}, without_random_addresses())
    else:
        tally.fail("tsan: build")


def run_fuzzer(program, seconds):
    """One fuzzer over its seeds; new inputs are kept in the build tree. Returns exit code and output."""
    name = program.name.removesuffix("_fuzz")
    found = folder("asan") / "corpus" / name
    found.mkdir(parents=True, exist_ok=True)
    seeds = ROOT / "tests" / "fuzz" / "corpus" / name
    run = subprocess.run(
        [str(program), f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=3000",
         "-detect_leaks=0", "-print_final_stats=1", "-verbosity=0",
         f"-artifact_prefix={folder('asan')}/{name}-", str(found)] + [str(seeds)] * seeds.is_dir(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    return run.returncode, run.stdout


def fuzz(tally, options):
    sources = sorted((ROOT / "tests" / "fuzz").glob("*_fuzz.cc"))
    if not sources:
        print("no fuzzer in tests/fuzz")
        return
    # The fuzzers are part of the build for the address sanitizer.
    if not build("asan", "yard_fuzzers"):
        tally.fail("fuzz: build")
        return
    programs = [folder("asan") / "bin" / source.stem for source in sources]
    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        outcomes = pool.map(lambda p: run_fuzzer(p, options.fuzz_seconds), programs)
        for program, (rc, output) in zip(programs, outcomes):
            if rc == 0:
                tally.passed += 1
                units = [l.split()[-1] for l in output.splitlines() if "number_of_executed_units" in l]
                print(f"{program.name}: {units[0] if units else '?'} inputs, none bad", flush=True)
            else:
                print(output)
                tally.fail(f"fuzz: {program.name}")


def read_soaks(path):
    """The lines of tests/soak.txt: subject, program, filter."""
    soaks = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            subject, program, tests = (part.strip() for part in line.split("|"))
            soaks.append((subject, program, tests))
    return soaks


def why_no_soak(program, tests, prefix):
    """Why a soak cannot be run; None if it can."""
    if not program.is_file():
        return f"there is no program {program.name} in this build"
    listed = subprocess.run([*prefix, str(program), f"--gtest_filter={tests}", "--gtest_list_tests"], capture_output=True,
                            text=True, errors="replace")
    names = [line for line in listed.stdout.splitlines() if line.startswith("  ")]
    return None if names else f"no test of {program.name} matches {tests}"


def run_soak(command, seconds, environment):
    """Starts a program again and again, its tests shuffled. Returns exit code, number of starts, and the last output."""
    start, runs = time.monotonic(), 0
    environment = {**os.environ, "TEST_SCALE": "1", **environment}  # repeating is the scale
    while True:
        # Repeat the tests within one process, because its start and end take seconds under a
        # sanitizer.
        arguments = [f"--gtest_repeat={SOAK_REPEAT}", "--gtest_shuffle", f"--gtest_random_seed={runs % 99999 + 1}"]
        runs += 1
        try:
            run = subprocess.run([*command, *arguments], env=environment, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SOAK_HANGS)
        except subprocess.TimeoutExpired as e:
            output = (e.stdout or b"").decode(errors="replace")
            return 1, runs, f"{output[-4000:]}\nstill running after {SOAK_HANGS} s"
        if run.returncode != 0 or time.monotonic() - start >= seconds:
            return run.returncode, runs, run.stdout


def soak_build(tally, preset, bin_folder, soaks, seconds, environment, prefix=()):
    """Soaks of one build, as many at a time as there are cores."""
    def one(soak):
        _, program, tests = soak
        why = why_no_soak(bin_folder / program, tests, prefix)
        if why:
            return why, 0, 0, ""
        return (None, *run_soak([*prefix, str(bin_folder / program), f"--gtest_filter={tests}"], seconds, environment))

    with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
        for (subject, *_), (why, rc, runs, output) in zip(soaks, pool.map(one, soaks)):
            if why:
                tally.skipped.append(f"soak {preset}: {subject}: {why}")
            elif rc == 0:
                tally.passed += 1
                print(f"soak {preset}: {subject}: {runs * SOAK_REPEAT} runs, none failed", flush=True)
            else:
                print(output)
                tally.fail(f"soak {preset}: {subject}: start {runs}")


def soak(tally, options):
    soaks = read_soaks(ROOT / "tests" / "soak.txt")
    for preset, targets, environment, prefix in (
            ("asan", (), {"ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}, ()),
            ("tsan", ("yard_tsan_tests", "yard_soak_tests"), {"TSAN_OPTIONS": "halt_on_error=1"},
             without_random_addresses())):
        if build(preset, *targets):
            soak_build(tally, preset, folder(preset) / "bin", soaks, options.soak_seconds, environment, prefix)
        else:
            tally.fail(f"soak {preset}: build")


STAGES = {"release": release, "package": package, "asan": asan, "fuzz": fuzz, "tsan": tsan, "soak": soak}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--fuzz-seconds", type=int, default=15)
    parser.add_argument("--soak-seconds", type=float, default=60)
    parser.add_argument("stages", nargs="*", default=[s for s in STAGES if s != "soak"], metavar="stage")
    options = parser.parse_args()
    for stage in options.stages:
        if stage not in STAGES:
            parser.error(f"unknown stage '{stage}': expected {', '.join(STAGES)}")
    if options.full:
        os.environ.setdefault("TEST_SCALE", str(FULL_SCALE))
    tally = Tally()
    for stage in options.stages:
        start, passed = time.monotonic(), tally.passed
        print(f"\n==== {stage} ====", flush=True)
        STAGES[stage](tally, options)
        print(f"==== {stage}: {tally.passed - passed} passed, "
              f"{time.monotonic() - start:.0f} s ====", flush=True)
    if tally.skipped:
        print("\nleft out:", *tally.skipped, sep="\n  ")
    if tally.unstable:
        print("\nunstable: passed when rerun alone:", *tally.unstable, sep="\n  ")
    if tally.failures:
        print("\nfailed:", *tally.failures, sep="\n  ")
    print(f"\n{tally.passed} passed, {len(tally.failures)} failed", flush=True)
    sys.exit(1 if tally.failures or not tally.passed else 0)


if __name__ == "__main__":
    main()
