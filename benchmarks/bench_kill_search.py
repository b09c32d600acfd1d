"""A search killed with ``kill -9`` at ten random moments: every resumed run must end with the same table.

Each round starts a search of jq3's training split on all cores, kills it in the middle (sometimes twice), and
lets the same command finish the rest. A moment is a random number of finished trials and a random delay after
it: by the clock alone, most kills on a busy machine would come before the first trial or after the last. A
kill that comes too late to interrupt anything is drawn again and does not count. The table is compared byte
by byte with that of a run nobody disturbed, times apart; and no process may be left behind.

    python benchmarks/bench_kill_search.py [--kills 10] [--largest 8] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dissensus as ds
from dissensus.evaluate.search import FILE
from timing import data_option, read_dataset


def search(data: Path, largest: int, directory: Path) -> None:
    """The search itself, in a process of its own; prints the table."""
    train = read_dataset(data / "jq3").split_items()["train"]
    sizes = range(3, largest + 1)
    grid = {"n_item_clusters": sizes, "n_annotator_clusters": sizes}
    found = ds.select(train, ds.PGM(), grid, repeats=3, finalists=4, directory=directory, refit=False)
    references = {name: (cell.scores, cell.seeds) for name, cell in found.references.items()}
    sys.stdout.write(found.to_frame().drop(columns="seconds").to_csv() + repr(references))


def finished(directory: Path) -> int:
    """Trials on disk."""
    file = directory / FILE
    return max(file.read_bytes().count(b"\n") - 1, 0) if file.exists() else 0


def left_behind(directory: Path) -> list[int]:
    """Processes whose environment says that they belong to this search."""
    mark = str(directory).encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                found.append(int(folder.name))
        except OSError:  # it has ended, or is not ours
            continue
    return found


def kill_once(command: list[str], directory: Path, after: int, delay: float) -> int:
    """Start the search, kill it a little after so many trials, and say how many were finished by then."""
    environment = os.environ | {"SEARCH_UNDER_TEST": str(directory)}
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, start_new_session=True)
    while finished(directory) < after and running.poll() is None:
        time.sleep(0.002)
    time.sleep(delay)
    running.send_signal(signal.SIGKILL)
    running.wait()
    deadline = time.monotonic() + 20
    while left_behind(directory) and time.monotonic() < deadline:
        time.sleep(0.1)
    return finished(directory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    data_option(parser)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--largest", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.directory:
        search(given.data, given.largest, given.directory)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return compare(given, Path(folder))


def compare(given: argparse.Namespace, folder: Path) -> int:
    """Kill, resume and compare, as often as asked."""

    def command(directory: Path) -> list[str]:
        options = {"--data": given.data, "--largest": given.largest, "--directory": directory}
        return [sys.executable, __file__, *(str(word) for pair in options.items() for word in pair)]

    started = time.perf_counter()
    expected = subprocess.run(command(folder / "whole"), capture_output=True, check=True).stdout
    n_trials = finished(folder / "whole")
    pace = (time.perf_counter() - started) / n_trials
    print(f"undisturbed: {n_trials} trials, {pace:.2f} s each")
    rng, different, kills, rounds = random.Random(given.seed), 0, 0, 0
    while kills < given.kills:
        place = folder / f"killed {rounds}"
        moments = sorted(rng.sample(range(n_trials), min(rng.choice([1, 1, 2]), given.kills - kills)))
        done = [kill_once(command(place), place, moment, rng.uniform(0, pace)) for moment in moments]
        orphans = left_behind(place)
        table = subprocess.run(command(place), capture_output=True, check=True).stdout
        in_time = sum(n < n_trials for n in done)
        kills, rounds = kills + in_time, rounds + 1
        different += table != expected or bool(orphans)
        state = "identical" if table == expected else "DIFFERENT"
        late = "" if in_time == len(done) else f" ({len(done) - in_time} too late, not counted)"
        told = " and ".join(map(str, done))
        print(f"killed with {told} of {n_trials} trials done{late}: {state}, {len(orphans)} left behind")
    print(f"{kills} kills in mid-search, {different} different ({'kept' if not different else 'MISSED'})")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
