"""Seeded kills of commands, each followed by the same command again; and kills of a result's replacement.

PYTHONPATH=tests python -m faults.kills [KILLS [CRASHES]]      the whole study, 100 and 50 by default
"""

from __future__ import annotations

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

VICTIM = Path(__file__).with_name("victim.py")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SAID = {0: "", -signal.SIGKILL: "", 143: "", 130: "interrupted"}
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
RESULT = {"store": "result.store"}
OTHER = [*COMMANDS["fit"], "--set", "max_iter=2"]


class Victims:
    """The program that runs commands and stops them."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program

    def run(
        self, words: list[str], cwd: Path, at: int | None = 0, number: int = signal.SIGKILL
    ) -> dict[str, Any]:
        """Run a command, and stop it at a file operation; how it ended."""
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        plan = {"words": words, "cwd": str(cwd), "at": at, "signal": int(number)}
        self._program.stdin.write(json.dumps(plan) + "\n")
        self._program.stdin.flush()
        told: dict[str, Any] = json.loads(self._program.stdout.readline())
        return told


@contextmanager
def victims() -> Iterator[Victims]:
    """Commands run in children of one process, which has loaded everything once."""
    command = [sys.executable, "-W", "ignore", str(VICTIM)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        yield Victims(program)
        assert program.stdin is not None
        program.stdin.close()


def write_inputs(folder: Path) -> None:
    """A small crowd as a table, and one as an annotation tool's export."""
    chance = random.Random(0)
    rows = [(i, a, chance.choice("xyz")) for i in range(30) for a in chance.sample(range(8), 4)]
    lines = [f"item-{i},worker-{a},{label}\n" for i, a, label in rows]
    (folder / "votes.csv").write_text("item,annotator,label\n" + "".join(lines))
    tasks = [
        {
            "id": i,
            "data": {"text": f"text {i}"},
            "annotations": [{"completed_by": a, "result": [choice(label)]} for j, a, label in rows if j == i],
        }
        for i in range(30)
    ]
    (folder / "export.json").write_text(json.dumps(tasks))


def choice(label: str) -> dict[str, Any]:
    return {"type": "choices", "from_name": "mood", "to_name": "text", "value": {"choices": [label]}}


def content(folder: Path) -> dict[str, Any]:
    """Every file of a result, timings apart."""
    found: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")) if folder.is_dir() else []:
        name = file.relative_to(folder).as_posix()
        if file.suffix in (".json", ".jsonl", ".csv") and file.name in (
            "summary.json",
            "search.jsonl",
            "cells.csv",
        ):
            found[name] = untimed(file)
        elif file.is_file():
            found[name] = file.read_bytes()
    return found


def untimed(file: Path) -> Any:
    """A file of ours without what differs from run to run: seconds, and digests of tables that have them."""
    if file.suffix == ".csv":
        header, *rows = [line.split(",") for line in file.read_text().splitlines()]
        timed = {place for place, name in enumerate(header) if "seconds" in name}
        return [[cell for place, cell in enumerate(row) if place not in timed] for row in rows]
    if file.suffix == ".jsonl":
        return sorted(json.dumps(without_seconds(json.loads(line))) for line in file.read_text().splitlines())
    return without_seconds(json.loads(file.read_text()))


def without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if "seconds" not in k and k != "cells.csv"}
    return [without_seconds(part) for part in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Outcome:
    """One kill."""

    seed: int
    command: str
    signal: int
    at: int
    of: int
    code: int
    fault: str  # what was wrong; empty where nothing was

    def __str__(self) -> str:
        name = signal.Signals(self.signal).name
        return f"seed {self.seed}: {self.command} {name} at {self.at} of {self.of}: {self.code} {self.fault}"


class Study:
    """Commands with what they write when nobody disturbs them."""

    def __init__(self, program: Victims, folder: Path) -> None:
        self._program, self._folder = program, folder
        self._undisturbed: dict[str, tuple[dict[str, Any], int]] = {}
        self._replaced: tuple[dict[str, Any], dict[str, Any], int] | None = None

    def _fresh(self, name: str) -> Path:
        place = self._folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        write_inputs(place)
        return place

    def _expected(self, name: str) -> tuple[dict[str, Any], int]:
        """What an undisturbed run writes, and how many file operations it takes."""
        if name not in self._undisturbed:
            self._program.run(COMMANDS[name], self._fresh("loaded"), at=None)
            place = self._fresh(f"undisturbed-{name}")
            told = self._program.run(COMMANDS[name], place, at=-1)
            assert told["code"] == 0, told
            self._undisturbed[name] = content(place / RESULT.get(name, "result")), told["n"]
        return self._undisturbed[name]

    def kill(self, seed: int) -> Outcome:
        """Stop a command at a moment that the seed names, look, run it again, and compare."""
        chance = random.Random(seed)
        name = list(COMMANDS)[seed % len(COMMANDS)]
        number = SIGNALS[seed // len(COMMANDS) % len(SIGNALS)]
        expected, n = self._expected(name)
        at = chance.randint(1, n)
        place = self._fresh("killed")
        told = self._program.run(COMMANDS[name], place, at, number)
        fault = self._after_kill(name, told, content(place / RESULT.get(name, "result")), expected)
        again = self._program.run(COMMANDS[name], place)
        if again["code"]:
            fault = fault or f"the second run failed: {again['said']}"
        elif content(place / RESULT.get(name, "result")) != expected:
            fault = fault or "the second run wrote something else"
        left = [file.name for file in place.rglob(".*")]
        fault = fault or (f"left behind: {left}" if left else "")
        return Outcome(seed, name, number, at, n, told["code"], fault)

    def _after_kill(
        self, name: str, told: dict[str, Any], found: dict[str, Any], expected: dict[str, Any]
    ) -> str:
        """Exit code and message against what is there."""
        code, said = told["code"], told["said"]
        if code not in SAID or "Traceback" in said or "this should not" in said:
            return f"ended with {code}: {said}"
        if code == 0 and found != expected:
            return "exit 0 without the whole result"
        if code in (130, 143) and name != "select" and found:
            return f"exit {code} says that nothing was written, and something was"
        if code == 130 and sum(not line.startswith("note: ") for line in said.splitlines()) != 1:
            return f"not one line: {said}"
        return ""

    def crash(self, seed: int) -> Outcome:
        """Kill the replacement of a result by another at a moment that the seed names; no mixture is left."""
        from dissensus.workflow.runs import load_run

        chance = random.Random(seed)
        place = self._fresh("crashed")
        old, whole, n = self._replacement()
        shutil.copytree(self._folder / "replaced" / "old", place / "result")
        # The first half of the operations reads, fits and writes beside the old result.
        at = chance.randint(n // 2, n)
        told = self._program.run(OTHER, place, at, signal.SIGKILL)
        load_run(place / "result")
        found, fault = content(place / "result"), ""
        if found not in (old, whole):
            fault = "a mixture"
        return Outcome(seed, "replace", signal.SIGKILL, at, n, told["code"], fault)

    def _replacement(self) -> tuple[dict[str, Any], dict[str, Any], int]:
        """A result, the one that is to replace it, and how many file operations that takes."""
        if self._replaced is None:
            place = self._fresh("replaced")
            self._program.run(COMMANDS["fit"], place)
            shutil.copytree(place / "result", place / "old")
            told = self._program.run(OTHER, place, at=-1)
            self._replaced = content(place / "old"), content(place / "result"), told["n"]
        return self._replaced


def study(kills: range, crashes: range) -> list[Outcome]:
    """All outcomes of the seeds."""
    with tempfile.TemporaryDirectory() as folder, victims() as program:
        made = Study(program, Path(folder))
        return [*map(made.kill, kills), *map(made.crash, crashes)]


def main() -> None:
    kills, crashes = range(100), range(50)
    if sys.argv[1:]:
        kills, crashes = (range(*map(int, words.split("-"))) for words in sys.argv[1:])
    outcomes = study(kills, crashes)
    for one in outcomes:
        print(one)
    ended = Counter((one.command, one.code) for one in outcomes)
    print(f"seeds {kills} (kills) and {crashes} (replacements); ended: {dict(ended)}")
    print(f"without fault: {sum(not one.fault for one in outcomes)} of {len(outcomes)}")
    sys.exit(any(one.fault for one in outcomes))


if __name__ == "__main__":
    main()
