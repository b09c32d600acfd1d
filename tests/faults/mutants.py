"""Seeded faults: each changes one line of the source, and the named tests must fail on it.

    python -m tests.faults.mutants [WORD ...] [--finished FILE]

The packages are copied to a temporary folder, the line is changed in the copy, and the tests run against the
copy; a changed C file is compiled. A fault is caught if a test fails or if the tests exceed ``CPU_SECONDS``
of processor time. The tests must pass on the unchanged copy first. WORD selects faults by name;
``--finished`` stores every outcome, and a later run skips the faults whose source file and tests have not
changed.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
CPU_SECONDS = 300  # limit for the tests of one fault: a fault can cause an endless loop


class Fault(NamedTuple):
    """A line of a source file, its faulty version, and the tests that must notice it."""

    name: str
    file: str  # below src/dissensus, or reproduction/...
    tests: str  # files below tests/, optionally followed by -k and words
    line: str
    faulty: str

    @property
    def path(self) -> str:
        """Source file relative to the folder that contains both packages."""
        return self.file if self.file.startswith("reproduction/") else f"dissensus/{self.file}"

    @property
    def source(self) -> Path:
        """Source file in the repository."""
        return ROOT / ("" if self.file.startswith("reproduction/") else "src") / self.path

    def test_command(self) -> tuple[list[str], str]:
        """Return the test files and the words given to ``-k``."""
        files, _, words = self.tests.partition(" -k ")
        return [f"tests/{file}" for file in files.split()], words


with (Path(__file__).parent / "mutants.toml").open("rb") as table:
    FAULTS = [Fault(**fault) for fault in tomllib.load(table)["fault"]]


def check_faults(faults: list[Fault]) -> None:
    """Check that every line occurs exactly once in its file, and that the tests exist."""
    for fault in faults:
        n_lines = fault.source.read_text(encoding="utf-8").count(fault.line)
        if n_lines != 1:
            raise SystemExit(f"{fault.name}: its line occurs {n_lines} times in {fault.file}; correct it")
        files, word = fault.test_command()
        if word and not any(word in (ROOT / file).read_text(encoding="utf-8") for file in files):
            raise SystemExit(f"{fault.name}: no test of {', '.join(files)} has {word!r} in its name")


def run_tests(fault: Fault, folder: Path) -> str:
    """Run the tests of a fault against the packages in a folder: "pass", "fail" or "endless"."""
    files, word = fault.test_command()
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not verify"]
    command += ["-o", f"pythonpath={folder}", *files, *(["-k", word] if word else [])]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["prlimit", f"--cpu={CPU_SECONDS}", *command]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return "endless"
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest could not run {fault.tests}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return "fail" if done.returncode else "pass"


def run_faulty(fault: Fault, folder: Path) -> str:
    """Run the tests of a fault with its line changed in the folder; the line is restored afterwards."""
    path = folder / fault.path
    text = path.read_text(encoding="utf-8")
    compiled, kept = path.parent / "loops.so", path.parent / "loops.kept"
    if path.suffix == ".c":
        shutil.copy(compiled, kept)
    path.write_text(text.replace(fault.line, fault.faulty), encoding="utf-8")
    try:
        if path.suffix == ".c":
            from hatch_build import compile_loops  # needs hatchling, which other uses of this file do not

            compile_loops(path.parent)
        return run_tests(fault, folder)
    finally:
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".c":
            kept.replace(compiled)


def key_of(fault: Fault) -> str:
    """Return a digest of everything that decides the outcome of a fault."""
    files = [fault.source, *(ROOT / file for file in fault.test_command()[0])]
    texts = [file.read_text(encoding="utf-8") for file in files]
    return hashlib.sha256(repr([fault.line, fault.faulty, fault.tests, texts]).encode()).hexdigest()[:16]


def main() -> int:
    """Run the selected faults and print the outcome of each; 1 if a fault goes unnoticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="run the faults whose names contain one of these words")
    parser.add_argument("--finished", type=Path, help="file of outcomes; finished faults are skipped")
    options = parser.parse_args()
    faults = [f for f in FAULTS if not options.words or any(word in f.name for word in options.words)]
    check_faults(faults)
    finished, outcomes = options.finished, {}
    if finished is not None and finished.exists():
        outcomes = dict(map(json.loads, finished.read_text(encoding="utf-8").splitlines()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for package in (ROOT / "src" / "dissensus", ROOT / "reproduction"):
            shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        passing: set[str] = set()
        for fault in faults:
            key = key_of(fault)
            if key not in outcomes:
                if fault.tests not in passing and run_tests(fault, folder) != "pass":
                    raise SystemExit(f"{fault.tests}: fails on the unchanged source")
                passing.add(fault.tests)
                outcomes[key] = run_faulty(fault, folder)
                if finished is not None:
                    with finished.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([key, outcomes[key]]) + "\n")
            print(f"{'SURVIVES' if outcomes[key] == 'pass' else 'caught':8} {fault.name}", flush=True)
    survivors = sum(outcomes[key_of(fault)] == "pass" for fault in faults)
    print(f"{survivors} of {len(faults)} faults survive")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
