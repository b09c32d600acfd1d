"""Commands killed at a moment given by a seed, then run again; and kills during the replacement of a result.

python -m tests.faults.kills [KILLS [CRASHES]]      100 and 50 seeds by default
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.helpers.export_samples import choice

VICTIM = Path(__file__).with_name("victim.py")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EXIT_CODES = (0, -signal.SIGKILL, 143, 130)
FIT = ["--model", "dawid-skene", "--jobs", "1", "--no-report"]
COMMANDS = {
    "store": ["import", "votes.csv", "-o", "result.store"],
    "fit": ["fit", "votes.csv", *FIT, "-o", "result"],
    "select": [
        "select", "votes.csv", "--model", "fmm", "-k", "2,3", "--repeats", "2", "--jobs", "1", "--no-report",
        "-o", "result",
    ],
    "import": ["import", "export.json", "-o", "result/labels.csv", "--items-to", "result/items.csv"],
}  # fmt: skip
COMMANDS_OUTPUT = dict.fromkeys(COMMANDS, "result") | {"store": "result.store"}
REPLACEMENT = [*COMMANDS["fit"], "--set", "max_iter=2"]


class Victims:
    """Program that runs commands in child processes and stops them."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program

    def run(
        self, command: list[str], cwd: Path, at: int | None = 0, number: int = signal.SIGKILL
    ) -> dict[str, Any]:
        """Run a command, stop it at file operation ``at`` (0: never), and return how it ended."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        plan = {"command": command, "cwd": str(cwd), "at": at, "signal": int(number)}
        self._program.stdin.write(json.dumps(plan) + "\n")
        self._program.stdin.flush()
        result: dict[str, Any] = json.loads(self._program.stdout.readline())
        return result


@contextmanager
def victims() -> Iterator[Victims]:
    """Start the program, which imports everything once for all commands."""
    command = [sys.executable, "-W", "ignore", str(VICTIM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        yield Victims(program)
        assert program.stdin is not None
        program.stdin.close()


def write_inputs(folder: Path) -> None:
    """Write labels as a table, and as an annotation tool's export."""
    rng = random.Random(0)
    rows = [(i, a, rng.choice("xyz")) for i in range(30) for a in rng.sample(range(8), 4)]
    lines = [f"item-{i},worker-{a},{label}\n" for i, a, label in rows]
    (folder / "votes.csv").write_text("item,annotator,label\n" + "".join(lines))
    tasks: list[Any] = [{"id": i, "data": {"text": f"text {i}"}, "annotations": []} for i in range(30)]
    for i, a, label in rows:
        tasks[i]["annotations"].append({"completed_by": a, "result": [choice("mood", label)]})
    (folder / "export.json").write_text(json.dumps(tasks))


def content(folder: Path) -> dict[str, Any]:
    """Return the content of every file of a result, without timings."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    return {name: without_timings(file) for name, file in sorted(files.items())}


def without_timings(file: Path) -> Any:
    """Return a file's content without seconds and without digests of what contains seconds."""
    if file.name == "cells.csv":
        header, *rows = [line.split(",") for line in file.read_text().splitlines()]
        timed = {column for column, name in enumerate(header) if "seconds" in name}
        return [[cell for column, cell in enumerate(row) if column not in timed] for row in rows]
    if file.name == "search.jsonl":
        return sorted(json.dumps(without_seconds(json.loads(line))) for line in file.read_text().splitlines())
    return without_seconds(json.loads(file.read_text())) if file.name == "summary.json" else file.read_bytes()


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            k: without_seconds(v)
            for k, v in value.items()
            if "seconds" not in k and k not in ("cells.csv", "checksum")
        }
    return [without_seconds(part) for part in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Outcome:
    """Result of one kill."""

    seed: int
    command: str
    signal: int
    at: int
    of: int
    code: int
    fault: str  # empty if there is none

    def __str__(self) -> str:
        name = signal.Signals(self.signal).name
        return f"seed {self.seed}: {self.command} {name} at {self.at} of {self.of}: {self.code} {self.fault}"


class Study:
    """Kills of commands, compared with undisturbed runs."""

    def __init__(self, program: Victims, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._undisturbed: dict[str, tuple[dict[str, Any], int]] = {}
        self._replaced: tuple[dict[str, Any], dict[str, Any], int] | None = None

    def _fresh(self, name: str) -> Path:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_inputs(folder)
        return folder

    def _expected(self, name: str) -> tuple[dict[str, Any], int]:
        """Return what an undisturbed run writes, and its number of file operations."""
        if name not in self._undisturbed:
            self._program.run(COMMANDS[name], self._fresh("loaded"), at=None)
            folder = self._fresh(f"undisturbed-{name}")
            result = self._program.run(COMMANDS[name], folder, at=-1)
            assert result["code"] == 0, result
            self._undisturbed[name] = content(folder / COMMANDS_OUTPUT[name]), result["n"]
        return self._undisturbed[name]

    def kill(self, seed: int) -> Outcome:
        """Stop a command at a moment given by the seed, check its output, run it again, and compare."""
        rng = random.Random(seed)
        name = list(COMMANDS)[seed % len(COMMANDS)]
        number = SIGNALS[seed // len(COMMANDS) % len(SIGNALS)]
        expected, n = self._expected(name)
        at = rng.randint(1, n)
        folder = self._fresh("killed")
        result = self._program.run(COMMANDS[name], folder, at, number)
        fault = self._after_kill(name, result, content(folder / COMMANDS_OUTPUT[name]), expected)
        again = self._program.run(COMMANDS[name], folder)
        if again["code"]:
            fault = fault or f"the second run failed: {again['output']}"
        elif content(folder / COMMANDS_OUTPUT[name]) != expected:
            fault = fault or "the second run wrote something else"
        hidden = [file.name for file in folder.rglob(".*")]
        fault = fault or (f"temporary files remain: {hidden}" if hidden else "")
        return Outcome(seed, name, number, at, n, result["code"], fault)

    def _after_kill(
        self, name: str, result: dict[str, Any], actual: dict[str, Any], expected: dict[str, Any]
    ) -> str:
        """Compare exit code and message with the files written."""
        code, output = result["code"], result["output"]
        if code not in EXIT_CODES or "Traceback" in output or "this should not" in output:
            return f"ended with {code}: {output}"
        if code == 0 and actual != expected:
            return "exit 0 without the complete result"
        if code in (130, 143) and name != "select" and actual:
            return f"exit {code} means that nothing was written, but something was"
        if code == 130 and sum(not line.startswith("note: ") for line in output.splitlines()) != 1:
            return f"not one line: {output}"
        return ""

    def crash(self, seed: int) -> Outcome:
        """Kill the replacement of a result at a moment given by the seed; the old or the new one remains."""
        from dissensus.workflow.runs import load_run

        rng = random.Random(seed)
        folder = self._fresh("crashed")
        old, new, n = self._replacement()
        shutil.copytree(self._folder / "replaced" / "old", folder / "result")
        # The first half of the operations reads, fits, and writes temporary files.
        at = rng.randint(n // 2, n)
        result = self._program.run(REPLACEMENT, folder, at, signal.SIGKILL)
        load_run(folder / "result")
        fault = "" if content(folder / "result") in (old, new) else "a mixture of two results"
        return Outcome(seed, "replace", signal.SIGKILL, at, n, result["code"], fault)

    def _replacement(self) -> tuple[dict[str, Any], dict[str, Any], int]:
        """Return a result, its replacement, and the number of file operations of replacing it."""
        if self._replaced is None:
            folder = self._fresh("replaced")
            self._program.run(COMMANDS["fit"], folder)
            shutil.copytree(folder / "result", folder / "old")
            result = self._program.run(REPLACEMENT, folder, at=-1)
            self._replaced = content(folder / "old"), content(folder / "result"), result["n"]
        return self._replaced


def study(kills: range, crashes: range) -> list[Outcome]:
    """Return the outcomes of all seeds."""
    with tempfile.TemporaryDirectory() as folder, victims() as program:
        kills_study = Study(program, Path(folder))
        return [*map(kills_study.kill, kills), *map(kills_study.crash, crashes)]


def main() -> None:
    kills, crashes = range(100), range(50)
    if sys.argv[1:]:
        kills, crashes = (range(*map(int, words.split("-"))) for words in sys.argv[1:])
    outcomes = study(kills, crashes)
    print(*outcomes, sep="\n")
    endings = Counter((outcome.command, outcome.code) for outcome in outcomes)
    print(f"seeds {kills} (kills) and {crashes} (replacements); endings: {dict(endings)}")
    print(f"without fault: {sum(not outcome.fault for outcome in outcomes)} of {len(outcomes)}")
    sys.exit(any(outcome.fault for outcome in outcomes))


if __name__ == "__main__":
    main()
