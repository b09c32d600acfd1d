"""Embedding 2,000 tweets twice: the second run reads all vectors from the cache and loads no model.

Both runs start in a fresh process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from experiments.runner import DATA_FOLDER, check_limit

MIN_RATIO = 20.0

RUN = """
import sys, time
import dissensus as ds
labels = ds.read_annotations(sys.argv[1] + "/annotations.csv", items=sys.argv[1] + "/items.csv")
texts = labels.item_column("text").tolist()
start = time.perf_counter()
ds.text.embed(texts, cache_dir=sys.argv[2])
print(time.perf_counter() - start, "torch" in sys.modules)
"""


def run(data: Path, cache: str) -> tuple[float, bool]:
    """Return the seconds of one run, and whether torch was loaded."""
    command = [sys.executable, "-c", RUN, str(data / "jq1"), cache]
    words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(words[0]), words[1] == "True"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA_FOLDER, help="folder of the datasets")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        first, _ = run(options.data, cache)
        second, loaded = run(options.data, cache)
    print(f"first run {first:.2f} s, second run {second:.2f} s, model loaded again: {loaded}")
    return check_limit("times faster from the cache", first / second, MIN_RATIO, at_least=True) | int(loaded)


if __name__ == "__main__":
    sys.exit(main())
