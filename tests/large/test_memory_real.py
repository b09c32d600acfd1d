"""Memory of fits: traced, and measured in a process, compared with the estimate."""

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.numerics import ones
from dissensus.params import PROCESS_BYTES
from tests.helpers.cluster import cut_small
from tests.helpers.sizes import usually

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

ITEMS = usually(5_000, verify=12_000)
TAIL: dict[str, Any] = {"labels_per_item": 5, "load": "long-tail"}
CROWDS = {
    "few annotators": ds.simulate(ITEMS, 60, 4, **TAIL, seed=1).annotations,
    "many annotators": ds.simulate(ITEMS, 3 * ITEMS // 4, 4, **TAIL, seed=2).annotations,
}
TINY = ds.simulate(40, 20, 4, labels_per_item=5, seed=3).annotations
MODELS: dict[str, Callable[[], Any]] = {
    "majority": lambda: ds.MajorityVote(),
    "empirical": lambda: ds.EmpiricalDistribution(),
    "fmm": lambda: ds.FMM(12, max_iter=3, n_jobs=1),
    "dawid-skene": lambda: ds.DawidSkene(max_iter=3, n_jobs=1),
    "cbcc": lambda: ds.CBCC(3, max_iter=3, n_jobs=1),
    "ibcc": lambda: ds.IBCC(max_iter=3, n_jobs=1),
    "ebcc": lambda: ds.EBCC(2, max_iter=3, n_jobs=1),
    "log-linear": lambda: ds.LogLinear(max_iter=3, n_jobs=1),
    "pgm": lambda: ds.PGM(4, 8, max_iter=3, n_jobs=1),
    "pgm-restarts": lambda: ds.PGM(4, 8, max_iter=3, n_restarts=4, n_jobs=1),
    "pgm-rounds": lambda: ds.PGM(4, 8, max_iter=3, bp_rounds=4, bp_tol=0.0, n_jobs=1),
    "pgm-pairwise": lambda: ds.PGM(4, 8, m_step="pairwise", max_iter=3, n_jobs=1),
    "pgm-vb": lambda: ds.PGM(8, 4, inference="vb", max_iter=3, n_jobs=1),
    "pgm-annealing": lambda: ds.PGM(4, 4, inference="annealing", max_iter=5, n_restarts=2, n_jobs=1),
}
SLACK = 400_000  # memory of Python itself


def peak_memory(fit: Callable[[], object]) -> int:
    """Return the peak of allocated bytes."""
    tracemalloc.start()
    try:
        fit()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def peak_within(memory: int, scratch: Path, fit: Callable[[], object]) -> int:
    with ds.resources(memory=memory, scratch=scratch):
        return peak_memory(fit)


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use many blocks, with their shared arrays allocated."""
    cut_small(monkeypatch.setattr, 2048)
    for power in range(18):
        ones(1 << power)


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize(
    "name", usually([name for name in MODELS if name != "pgm-restarts"], verify=[*MODELS])
)
def test_fit_respects_the_limit(name: str, crowd: str, tmp_path: Path) -> None:
    annotations = CROWDS[crowd]
    MODELS[name]().fit(TINY)  # imports are not counted
    needed = MODELS[name]().memory_needed(annotations)
    # no budget; some layouts; layouts and some messages
    for budget in (0, 20 * annotations.n_labels, 100 * annotations.n_labels):
        used = peak_within(needed + budget, tmp_path, lambda: MODELS[name]().fit(annotations))
        assert used <= needed + budget - PROCESS_BYTES + SLACK
        if not budget:  # the estimate is not far too large
            assert needed - PROCESS_BYTES <= 4 * (used + SLACK)


@pytest.mark.parametrize("attached", [True, False], ids=["attached", "argument"])
@pytest.mark.parametrize("name", ["dirichlet", "hpgm"])
def test_features_are_counted(name: str, attached: bool, tmp_path: Path) -> None:
    annotations = CROWDS["few annotators"]
    features = np.random.default_rng(0).normal(size=(annotations.n_items, 120)).astype(np.float32)
    model: Any = ds.DirichletRegression(l2=0.1, folds=3)
    model.fit(TINY, features=np.eye(TINY.n_items))  # imports are not counted
    if name == "hpgm":
        model = ds.HPGM(4, 4, use_features=True, n_chains=1, n_sweeps=10, n_jobs=1)
    arguments = {} if attached else {"features": features}
    memory = model.memory_needed(annotations, features=features)
    labels = ds.text.with_features(annotations, features) if attached else annotations
    assert memory == model.memory_needed(labels, **arguments)
    used = peak_within(memory, tmp_path, lambda: model.fit(labels, **arguments))
    assert used <= memory - PROCESS_BYTES + SLACK
    assert memory - PROCESS_BYTES <= 4 * used


SAMPLED: dict[str, Callable[[], Any]] = {
    "hpgm": lambda: ds.HPGM(8, 4, n_chains=2, n_sweeps=40, max_sampled=2_000, n_jobs=1),
    "latent": lambda: ds.LatentPositions(n_chains=2, n_sweeps=10, n_jobs=2),
}


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("name", SAMPLED)
def test_stored_draws_are_counted(name: str, crowd: str, tmp_path: Path) -> None:
    """Check draws of unsampled items (HPGM) and two parallel chains (latent model)."""
    annotations, model = CROWDS[crowd], SAMPLED[name]()
    memory = model.memory_needed(annotations, n_threads=8)
    chunks = 8_000_000 * model.n_jobs if name == "latent" else 0  # buffers of constant size
    used = peak_within(memory, tmp_path, lambda: model.fit(annotations))
    assert used <= memory - PROCESS_BYTES + SLACK + chunks


@pytest.mark.parametrize("crowd", CROWDS)
def test_apply_respects_the_limit(crowd: str, tmp_path: Path) -> None:
    annotations = CROWDS[crowd]
    other = annotations.take_items(np.arange(annotations.n_items // 20))
    names = [f"other {item}" for item in other.items[other.item]]
    renamed = ds.Annotations.from_arrays(names, other.annotators[other.annotator], other.classes[other.label])
    for fitted in (
        ds.PGM(16, 2, max_iter=3, n_jobs=1).fit(renamed),
        ds.DawidSkene(max_iter=3, n_jobs=1).fit(renamed),
    ):
        memory = fitted.memory_needed(annotations)
        with ds.resources(memory=memory, scratch=tmp_path):
            fitted.apply(TINY)  # imports are not counted
        used = peak_within(memory, tmp_path, lambda fitted=fitted: fitted.apply(annotations))
        assert used <= memory - PROCESS_BYTES + SLACK


# ---- process ------------------------------------------------------------------------------------------

# Fits a model with and without a limit; prints the peaks of anonymous memory.
PROGRAM = """
import json, sys, threading
from pathlib import Path
import dissensus as ds

def peak_of(fit):
    peak, over = [0], threading.Event()
    def watch():
        while not over.wait(0.002):
            lines = Path("/proc/self/status").read_text().splitlines()
            used = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
            peak[0] = max(peak[0], used)
    thread = threading.Thread(target=watch)
    thread.start()
    fit()
    over.set()
    thread.join()
    return peak[0]

labels = ds.simulate(80_000, 1_000, 4, labels_per_item=5, seed=4).annotations
model = ds.PGM(8, 8, max_iter=2, tol=0.0) if sys.argv[1] == "pgm" else ds.DawidSkene(max_iter=3, tol=0.0)
needed = model.memory_needed(labels)
with ds.resources(memory=needed, scratch=sys.argv[2]):
    limited = peak_of(lambda: model.fit(labels))
free = peak_of(lambda: model.fit(labels))
print(json.dumps([needed, limited, free, labels.n_labels]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", ["pgm", "dawid-skene"])
def test_process_respects_the_limit(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, name, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    needed, limited, free, n_labels = json.loads(done.stdout)
    assert limited <= needed
    if name == "pgm":  # messages are not in memory
        assert free - limited > 8 * 8 * n_labels
