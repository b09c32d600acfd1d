"""Do two checkouts fit every model to the same bits?

    python -m experiments.same_bits OLD NEW [--data ../shared/data] [--datasets jq1 hs_brexit]

Each checkout fits every model (fixed seed, default settings) to the labels of each dataset with its own
source tree. Compared are every fitted array, ``labels.csv`` as the command line writes it, and the trace of
the objective. Formats of files and names of settings may differ between the two.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = {
    "majority": ["majority"],
    "empirical": ["empirical"],
    "fmm": ["fmm", "-s", "n_restarts=2"],
    "dawid-skene": ["dawid-skene"],
    "one-coin": ["one-coin"],
    "cbcc": ["cbcc", "-s", "n_restarts=2"],
    "pgm-bp": ["pgm"],
    "pgm-pairwise": ["pgm", "-s", "m_step=pairwise", "-s", "bp_rounds=3"],
    "pgm-vb": ["pgm", "-s", "inference=vb", "-s", "n_restarts=2"],
    "pgm-annealing": ["pgm", "-s", "inference=annealing", "-s", "max_iter=150"],
    "ibcc": ["ibcc"],
    "ebcc": ["ebcc"],
    "log-linear": ["log-linear"],
    "mace": ["mace"],
    "hpgm": ["hpgm", "-s", "n_sweeps=20", "-s", "n_chains=2"],
    "latent": ["latent", "-s", "n_sweeps=20"],
}

# Run inside a checkout: prints a digest of labels.csv and of every array of the saved model.
LOOK = """
import hashlib, json, sys
import numpy as np
import dissensus as ds
model = ds.load(sys.argv[1])
names = ("label_distributions_", "prior_distribution_", "n_labels_", "trace_", *type(model)._arrays)
arrays = {name.replace("strength", "smoothing"): np.asarray(getattr(model, name)) for name in names}
print(json.dumps({
    name: hashlib.sha256(f"{a.dtype}{a.shape}".encode() + np.ascontiguousarray(a).tobytes()).hexdigest()
    for name, a in arrays.items()
}))
"""


def fitted(checkout: Path, labels: Path, words: list[str], hidden: str) -> dict[str, str]:
    """Digests of what one checkout makes of one model."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        command = [
            "fit",
            str(labels),
            "-m",
            *words,
            hidden,
            "0",
            "--no-report",
            "--seed",
            "0",
            "-o",
            str(out),
        ]
        python = [sys.executable, "-m", "dissensus"]
        subprocess.run([*python, *command], env=environment, check=True, capture_output=True)
        look = [sys.executable, "-c", LOOK, str(out / "model.safetensors")]
        found: dict[str, str] = json.loads(
            subprocess.run(look, env=environment, check=True, capture_output=True).stdout
        )
        return found | {"labels.csv": hashlib.sha256((out / "labels.csv").read_bytes()).hexdigest()}


def hiding(checkout: Path) -> str:
    """The option that says how much is hidden to compare models by, which has had two names."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "COLUMNS": "200"}
    command = [sys.executable, "-m", "dissensus", "fit", "--help"]
    text = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return "--test-size" if "--test-size" in text else "--held-out"


def main() -> None:
    """Compare, print a row for every model and dataset, and fail where one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DISSENSUS_DATA", "../shared/data")))
    parser.add_argument("--datasets", nargs="+", default=["jq1", "hs_brexit"])
    given = parser.parse_args()
    hidden = {side: hiding(side) for side in (given.old, given.new)}
    different = 0
    for dataset in given.datasets:
        for name, words in MODELS.items():
            labels = (given.data / dataset / "annotations.csv").absolute()
            old, new = (fitted(side, labels, words, hidden[side]) for side in (given.old, given.new))
            unlike = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
            different += bool(unlike)
            print(f"{dataset:12} {name:16} {'same' if not unlike else 'DIFFERENT: ' + ', '.join(unlike)}")
    if different:
        raise SystemExit(f"{different} fits differ")


if __name__ == "__main__":
    main()
