"""Every benchmark in one table, and the history of all figures in docs/results/speed.md.

    python benchmarks/run.py                                  # those with a limit of speed: half an hour
    python benchmarks/run.py fit messages "search --inference bp"
    python benchmarks/run.py all                              # every script, as large as it comes: hours

Each script ``bench_<name>.py`` runs in a process of its own and passes its figures on (``timing.verdict``),
each a ratio within one run: to a peer, to a plain twin, to the machine's own rate. One that fails does not
stop the others. The page is computed from ``docs/results/speed.jsonl``, to which every run adds a line.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from timing import ROWS, markdown

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "results"
Run = dict[str, Any]

#: What is run unless others are named: sizes such that all of it takes about 25 minutes of a quiet machine.
STANDARD = (
    "fit",
    "search --inference bp",
    "converge --seeds 1",
    "dask --rounds 2",
    "dawid_skene --labels 10000000",
    "ldlnm --search",
    "messages",
)


def measured(words: str) -> list[dict[str, Any]]:
    """The figures of one benchmark, given by its name and arguments; a failure is a row as well."""
    name, *arguments = shlex.split(words)
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows"
        rows.touch()
        command = [sys.executable, str(HERE / f"bench_{name}.py"), *arguments]
        done = subprocess.run(command, env=os.environ | {ROWS: str(rows)}, check=False)
        found = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    if done.returncode and all(row["kept"] for row in found):
        found.append(
            {"what": "the script failed", "value": done.returncode, "limit": "at most 0", "kept": False}
        )
    return [{"benchmark": words, **row} for row in found]


def this_run(names: list[str]) -> Run:
    """All figures of a run, and where and when it was made."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, check=False, capture_output=True, text=True
    )
    began, load, rows = time.strftime("%Y-%m-%d %H:%M"), os.getloadavg()[0], []
    for name in names:
        start = time.perf_counter()
        rows += measured(name)
        print(f"{name}: {(time.perf_counter() - start) / 60:.1f} minutes", flush=True)
    return {"date": began, "commit": commit.stdout.strip(), "load": round(load, 1), "rows": rows}


def cells(row: dict[str, Any]) -> list[str]:
    """What a table says of a figure."""
    return [f"{row['value']:.2f}", row["limit"], "kept" if row["kept"] else "**missed**"]


def page(history: list[Run]) -> str:
    """The last figure of every measurement, and all of them."""
    last = {(row["benchmark"], row["what"]): (run, row) for run in history for row in run["rows"]}
    latest = [[*key, *cells(row), run["date"], run["commit"]] for key, (run, row) in sorted(last.items())]
    every = [
        [*key, run["date"], run["commit"], str(run["load"]), *cells(row)]
        for key in sorted(last)
        for run in history
        for row in run["rows"]
        if (row["benchmark"], row["what"]) == key
    ]
    return "\n".join(
        [
            "# Speed",
            "",
            "Written by `make benchmarks` (`python benchmarks/run.py`): every figure is computed by that",
            "command.",
            "",
            "Each figure is a ratio within one run: to another package, to a plain form of the same work,",
            "or, in seconds of a standard core, to what the same core takes at that time for standard work.",
            "",
            "## The last figure of each",
            "",
            markdown(["benchmark", "what", "figure", "limit", "", "run", "commit"], latest),
            "",
            "## All runs",
            "",
            "The load is the number of processes that wanted a core when the run began; the machine has two.",
            "",
            markdown(["benchmark", "what", "run", "commit", "load", "figure", "limit", ""], every),
            "",
        ]
    )


def main() -> int:
    """Run, print the table, add to the history; 1 where a limit was missed."""
    every = sorted(script.stem.removeprefix("bench_") for script in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "names", nargs="*", default=STANDARD, help="benchmarks, each with its arguments in quotes; or all"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of speed.md and speed.jsonl")
    given = parser.parse_args()
    run = this_run(every if given.names == ["all"] else list(given.names))
    file = given.results / "speed.jsonl"
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(run, ensure_ascii=False) + "\n")
    history = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    (given.results / "speed.md").write_text(page(history), encoding="utf-8")
    head = ["benchmark", "what", "figure", "limit", ""]
    print(markdown(head, [[row["benchmark"], row["what"], *cells(row)] for row in run["rows"]]))
    return int(not all(row["kept"] for row in run["rows"]))


if __name__ == "__main__":
    sys.exit(main())
