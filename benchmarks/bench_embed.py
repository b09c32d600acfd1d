"""2,000 tweets embedded once, and not again.

The first run computes every vector; the second finds all of them on disk and does not load the model. Both
start in a fresh process, as a user's would.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import data_option, verdict

LEAST_RATIO = 20.0

RUN = """
import sys, time
import dissensus as ds
labels = ds.read_annotations(sys.argv[1] + "/annotations.csv", items=sys.argv[1] + "/items.csv")
texts = labels.item_column("text").tolist()
began, busy = time.perf_counter(), time.process_time()
rows = ds.text.embed(texts, cache_dir=sys.argv[2])
print(len(rows), time.perf_counter() - began, time.process_time() - busy, "torch" in sys.modules)
"""


def run(data: Path, cache: str) -> tuple[int, float, float, bool]:
    """Texts, seconds of wall and processor time, and whether torch was loaded."""
    command = [sys.executable, "-c", RUN, str(data / "jq1"), cache]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(out[0]), float(out[1]), float(out[2]), out[3] == "True"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    data_option(parser)
    options = parser.parse_args()
    if not (options.data / "jq1").is_dir():
        print(f"{options.data} has no jq1; set DISSENSUS_DATA or --data")
        return 0
    with tempfile.TemporaryDirectory() as cache:
        n, first, first_busy, _ = run(options.data, cache)
        _, second, second_busy, loaded = run(options.data, cache)
    print(f"{n:,} texts, first run : {first:6.2f} s, {first_busy:6.2f} s of processor time")
    print(f"{n:,} texts, second run: {second:6.2f} s, {second_busy:6.2f} s of processor time")
    print("the model was loaded again" if loaded else "the model was not even loaded")
    return verdict("times faster", first / second, LEAST_RATIO, at_least=True) | int(loaded)


if __name__ == "__main__":
    sys.exit(main())
