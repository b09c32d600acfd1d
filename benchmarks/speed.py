"""Run the benchmarks with a limit and write docs/results/speed.md.

    python -m benchmarks.speed                                  # about 25 minutes on an idle machine
    python -m benchmarks.speed fit messages "search --inference bp"
    python -m benchmarks.speed all                              # all parts at full size: hours

Each part runs in its own process and reports its figures (``runner.check_limit``). A failing part does not
stop the others. The latest figure of every benchmark is stored in docs/results/speed.jsonl, from which the
page is written.
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

from experiments.runner import FIGURES_FILE, line, table, write_page

RESULTS = Path("docs/results")
PACKAGE = "benchmarks"
# Default sizes are chosen so that all parts take about 25 minutes.
DEFAULT_PARTS = (
    "fit",
    "search --inference bp",
    "converge --seeds 1",
    "dask --rounds 2",
    "dawid_skene --labels 10000000",
    "ldlnm --search",
    "messages",
    "sweep",
)
ALL_PARTS = (
    *("agreement", "apply", "converge", "dask", "dawid_skene", "embed", "fit", "ldlnm --search", "messages"),
    *("read", "search", "store", "sweep", "threads", "truth"),
)
Figure = dict[str, Any]

PAGE = """# Speed

Written by `make benchmarks` (`python -m benchmarks.speed`): the latest figure of each benchmark and its
limit. Every figure is a ratio within one run: to another package, to a plain version of the same work or, for
seconds of a standard core, to a fixed amount of work timed on the same core at the same time.

{table}
"""


def run_part(words: str) -> list[Figure]:
    """Run one part, given by its name and options, and return its figures; a failure is a figure too."""
    name, *options = shlex.split(words)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures"
        file.touch()
        command = [sys.executable, "-m", f"{PACKAGE}.{name}", *options]
        done = subprocess.run(command, env=os.environ | {FIGURES_FILE: str(file)}, check=False)
        figures = [json.loads(row) for row in file.read_text(encoding="utf-8").splitlines()]
    if done.returncode and all(figure["kept"] for figure in figures):
        status = {"what": "exit status", "value": done.returncode, "limit": "at most 0", "kept": False}
        figures.append(status)
    return [{"benchmark": name, **figure} for figure in figures]


def figure_lines(figures: list[Figure]) -> list[str]:
    """Return a table line for each figure."""
    return [
        line(
            *(figure["benchmark"], figure["what"], f"{figure['value']:.2f}", figure["limit"]),
            *("met" if figure["kept"] else "**missed**", figure["date"], figure["commit"]),
        )
        for figure in figures
    ]


def main() -> int:
    """Run the parts and write the page; 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", default=DEFAULT_PARTS, help="parts, options in quotes; or all")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of speed.md and speed.jsonl")
    options = parser.parse_args()
    describe = ["git", "describe", "--always", "--dirty"]
    commit = subprocess.run(describe, check=False, capture_output=True, text=True).stdout.strip()
    file, new = options.results / "speed.jsonl", []
    for words in ALL_PARTS if options.parts == ["all"] else options.parts:
        start = time.perf_counter()
        stamp = {"date": time.strftime("%Y-%m-%d"), "commit": commit}
        new += [figure | stamp for figure in run_part(words)]
        print(f"{words}: {(time.perf_counter() - start) / 60:.1f} minutes", flush=True)
    stored = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    figures = {(f["benchmark"], f["what"]): f for f in [*map(json.loads, stored), *new]}
    latest = [figures[key] for key in sorted(figures)]
    file.write_text("".join(json.dumps(f, ensure_ascii=False) + "\n" for f in latest), encoding="utf-8")
    head = ("benchmark", "figure", "value", "limit", "", "run", "commit")
    write_page(options.results / "speed.md", PAGE.format(table=table(head, figure_lines(latest))))
    return int(not all(figure["kept"] for figure in new))


if __name__ == "__main__":
    sys.exit(main())
