"""select: complete searches, killed and resumed, on any number of processes."""

import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate.search import JOURNAL_FILE
from dissensus.evaluate.select import Selection
from tests.helpers.sizes import usually

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

SIZES = {"n_item_clusters": [1, 2, 3], "n_annotator_clusters": [1, 2]}


@pytest.fixture(scope="module")
def crowd() -> ds.Annotations:
    """Simulate three item clusters and two annotator clusters."""
    return ds.simulate(60, 15, 3, n_item_clusters=3, n_annotator_clusters=2, labels_per_item=6).annotations


def table(selection: Selection) -> str:
    """Return everything in a result except times."""
    cells = [{k: v for k, v in row.items() if k != "seconds"} for row in selection.rows()]
    others = {name: (cell.scores, cell.seeds) for name, cell in selection.references.items()}
    return repr((cells, others))


def search(annotations: ds.Annotations, grid: Any = SIZES, **settings: Any) -> Selection:
    """Run a small search in this process."""
    options = {"repeats": 3, "finalists": 2, "n_jobs": 1, "progress": False} | settings
    return ds.select(annotations, ds.PGM(seed=3, max_iter=20), grid, **options)


@pytest.fixture(scope="module")
def finished(crowd: ds.Annotations, tmp_path_factory: pytest.TempPathFactory) -> tuple[Selection, Path]:
    """Run a search and return its result and directory, which tests must not change."""
    directory = tmp_path_factory.mktemp("finished")
    return search(crowd, directory=directory), directory


# ---- results ------------------------------------------------------------------------------------------


def test_scores_by_hand(crowd: ds.Annotations) -> None:
    result = search(crowd, seed=10)
    assert len(result.cells) == 6
    for cell in result.cells:
        for repeat, (score, seed) in enumerate(zip(cell.scores, cell.seeds, strict=True)):
            train, hidden = crowd.split_labels(0.2, 10 + repeat)
            model = ds.PGM(**cell.settings, max_iter=20, seed=seed).fit(train)
            assert model.score(hidden) == score


def test_finalists_are_tried_on_all_splits(crowd: ds.Annotations, finished: tuple[Selection, Path]) -> None:
    result, _ = finished
    assert [cell.repeats for cell in result.cells] == [3, 3, 1, 1, 1, 1]
    first = sorted((cell.scores[0] for cell in result.cells), reverse=True)
    assert {cell.scores[0] for cell in result.cells[:2]} == set(first[:2])
    assert result.winner.score == max(cell.score for cell in result.cells[:2])
    assert all(row["behind"] >= 0 for row in result.rows())
    assert {cell.repeats for cell in search(crowd, finalists=None).cells} == {3}


def test_winner_is_fitted_to_all_labels(crowd: ds.Annotations, finished: tuple[Selection, Path]) -> None:
    result, _ = finished
    again = ds.PGM(**result.params, seed=3, max_iter=20).fit(crowd)
    assert np.array_equal(result.model.label_distributions_, again.label_distributions_)
    assert search(crowd, refit=False).model is None


def test_references_are_scored_on_the_same_splits(
    crowd: ds.Annotations, finished: tuple[Selection, Path]
) -> None:
    result, _ = finished
    assert set(result.references) == {"FMM", "counts"}
    for name, build in (("FMM", ds.FMM), ("counts", ds.EmpiricalDistribution)):
        cell = result.references[name]
        assert cell.repeats == 3
        train, hidden = crowd.split_labels(0.2, 1)
        extra = {"seed": cell.seeds[1]} if name == "FMM" else {}
        assert build(**cell.settings, **extra).fit(train).score(hidden) == cell.scores[1]
        difference = np.subtract(result.winner.scores, cell.scores)
        assert result.gains[name].mean == pytest.approx(difference.mean(), rel=1e-12)


def test_planted_clusters_are_found() -> None:
    planted = ds.simulate(
        150, 30, 4, n_item_clusters=4, n_annotator_clusters=3, alpha=0.3, labels_per_item=10
    )
    result = ds.select(planted.annotations, ds.PGM(), {**SIZES, "n_item_clusters": [1, 2, 4, 8]}, n_jobs=1)
    assert result.params["n_item_clusters"] >= 4
    assert result.params["n_annotator_clusters"] == 2
    assert result.gains["FMM"].mean > 2 * result.gains["FMM"].error > 0
    assert result.gains["counts"].mean > 2 * result.gains["counts"].error > 0


def test_cells_too_large_for_the_labels_are_skipped() -> None:
    # 12 items, 4 annotators, 3 classes and 48 labels: K ≤ 12, L ≤ 4, and 2 K L ≤ 48
    labels = ds.simulate(12, 4, 3, labels_per_item=4, seed=0).annotations
    grid = {"n_item_clusters": [2, 8, 20], "n_annotator_clusters": [1, 3, 5]}
    result = ds.select(labels, ds.PGM(max_iter=3), grid, repeats=1, references={}, n_jobs=1)
    assert {tuple(cell.settings.values()) for cell in result.cells} == {(2, 1), (2, 3), (8, 1), (8, 3)}
    assert result.n_too_large == result.to_dict()["n_too_large"] == 5


def test_ranking_of_cells(crowd: ds.Annotations) -> None:
    def score(estimator: Any, annotations: Any, seed: int) -> float:
        return {1: math.nan, 2: -math.inf, 3: -5.0, 4: -5.0}[estimator.n_item_clusters]

    grid = {"n_item_clusters": [1, 2, 4, 3]}
    result = ds.select(crowd, ds.FMM(), grid, criterion=score, n_jobs=1, refit=False)
    # the smaller cell wins ties, NaN comes last
    assert [cell.settings["n_item_clusters"] for cell in result.cells] == [3, 4, 2, 1]
    assert search(crowd, {}).params == {}
    with pytest.raises(ParameterError, match="estimator"):
        ds.select(crowd, ds.PGM, SIZES)


def test_dev_criterion(crowd: ds.Annotations) -> None:
    result = search(crowd, criterion="dev")
    separate = search(crowd[:40], criterion="dev", dev=crowd[40:])
    assert separate.model.label_distributions_.shape[0] == 40
    assert all(math.isfinite(cell.score) and cell.score < 0 for cell in result.cells)
    assert "counts" in result.references


def test_estimator_of_another_library(crowd: ds.Annotations) -> None:
    """Search any object with get_params, set_params, fit and score, and nested settings."""
    from sklearn.base import BaseEstimator

    class Wrapped(BaseEstimator):  # type: ignore[misc]
        def __init__(self, inner: Any = None, random_state: int = 0) -> None:
            self.inner = inner
            self.random_state = random_state

        def fit(self, annotations: Any) -> Any:
            self.inner.set_params(seed=self.random_state).fit(annotations)
            return self

        def score(self, hidden: Any) -> float:
            return float(self.inner.score(hidden))

    result = ds.select(crowd, Wrapped(ds.FMM()), {"inner__n_item_clusters": [1, 2]}, n_jobs=1)
    train, hidden = crowd.split_labels(0.2, 0)
    cell = next(cell for cell in result.cells if cell.settings["inner__n_item_clusters"] == 2)
    assert ds.FMM(2, seed=cell.seeds[0]).fit(train).score(hidden) == cell.scores[0]


# ---- errors -------------------------------------------------------------------------------------------


def test_invalid_settings_are_rejected_before_any_fit(crowd: ds.Annotations) -> None:
    def never(*_: Any) -> float:
        raise AssertionError

    for settings, message in (
        ({"repeats": 0}, "'repeats'"),
        ({"finalists": 0}, "'finalists'"),
        ({"criterion": "best"}, "'criterion'"),
        ({"criterion": "held-out", "test_size": 0.0}, "'test_size'"),
        ({"grid": {"n_clusters": [1]}}, "n_clusters"),
        ({"grid": {"n_item_clusters": [0, 1]}}, "'n_item_clusters'"),
        ({"references": {"DS": [ds.DawidSkene(), ds.DawidSkene()]}}, "contains the same model twice"),
    ):
        with pytest.raises(ParameterError, match=message):
            search(crowd, **({"criterion": never, "grid": {"n_item_clusters": [2]}} | settings))


# ---- processes ----------------------------------------------------------------------------------------


def test_result_does_not_depend_on_the_executor(
    crowd: ds.Annotations, finished: tuple[Selection, Path]
) -> None:
    here = table(finished[0])
    assert table(search(crowd, n_jobs=2)) == here
    with ThreadPoolExecutor(2) as threads:
        assert table(search(crowd, executor=threads)) == here
    assert table(search(crowd, seed=1)) != here


def test_script_without_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import dissensus as ds\n"
        "weight = 2.0\n"
        "def judge(estimator, annotations, seed):\n"
        "    return weight * estimator.fit(annotations).score(annotations)\n"
        "crowd = ds.simulate(30, 8, 3).annotations\n"
        "result = ds.select(crowd, ds.FMM(), {'n_item_clusters': [1, 2]}, criterion=judge, n_jobs=2)\n"
        "print(len(result.cells))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


def test_error_in_a_trial_reaches_the_caller(crowd: ds.Annotations) -> None:
    def broken(estimator: Any, annotations: Any, seed: int) -> float:
        raise DataError("nothing to judge by; give dev items")

    for n_jobs in (1, 2):
        with pytest.raises(DataError, match="nothing to judge by"):
            search(crowd, criterion=broken, n_jobs=n_jobs)


# ---- killed and resumed -------------------------------------------------------------------------------


def test_finished_search_is_read_without_fitting(
    crowd: ds.Annotations, finished: tuple[Selection, Path]
) -> None:
    first, directory = finished
    messages: list[str] = []
    again = search(crowd, directory=directory, progress=lambda what, _: messages.append(what))
    assert table(again) == table(first)
    assert [what.split()[0] for what in messages] == ["fitting"]


def test_search_resumes_from_any_line(
    crowd: ds.Annotations, finished: tuple[Selection, Path], tmp_path: Path
) -> None:
    lines = (finished[1] / JOURNAL_FILE).read_bytes().splitlines(keepends=True)
    for n_complete in (1, len(lines) // 2, len(lines) - 1):
        torn = lines[n_complete][: len(lines[n_complete]) // 2]
        (tmp_path / JOURNAL_FILE).write_bytes(b"".join(lines[:n_complete]) + torn)
        assert table(search(crowd, directory=tmp_path)) == table(finished[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 1}, r"another search \(seed was"),
        ({"labels": slice(59)}, r"another search \(other labels\)"),
        ({"test_size": 0.3}, r"another search \(criterion test_size was 0.2, is now 0.3\)"),
    ],
)
def test_other_search_is_rejected(
    crowd: ds.Annotations, finished: tuple[Selection, Path], changed: Any, message: str
) -> None:
    labels = crowd[changed.pop("labels", slice(None))]
    with pytest.raises(DataError, match=message):
        search(labels, directory=finished[1], **changed)


SEARCH = """
import os, sys, time
from pathlib import Path
import dissensus as ds
from dissensus.evaluate.search import HeldOutLabels

def slow(estimator, annotations, seed):
    Path(sys.argv[2], str(os.getpid())).touch()
    time.sleep(0.03)
    return HeldOutLabels()(estimator, annotations, seed)

crowd = ds.simulate(60, 15, 3, n_item_clusters=3, n_annotator_clusters=2, labels_per_item=6).annotations
grid = {"n_item_clusters": range(1, 6), "n_annotator_clusters": range(1, 6)}
settings = dict(criterion=slow, repeats=3, finalists=3, n_jobs=2, directory=sys.argv[1])
result = ds.select(crowd, ds.PGM(max_iter=10), grid, **settings)
print(result.to_frame().drop(columns="seconds").to_csv())
"""


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def finished_lines(directory: Path) -> int:
    file = directory / JOURNAL_FILE
    return file.read_bytes().count(b"\n") if file.exists() else 0


def alive(process: int) -> bool:
    """Return True if a process is running and not a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_killed_search_gives_the_same_table(tmp_path: Path) -> None:
    script, workers, directory = tmp_path / "search.py", tmp_path / "workers", tmp_path / "search"
    script.write_text(SEARCH)
    workers.mkdir()
    command = [sys.executable, str(script), str(directory), str(workers)]
    for lines in usually((15,), verify=(3, 15, 28)):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert wait_for(lambda n=lines: finished_lines(directory) >= n)
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert wait_for(lambda: not any(alive(int(file.name)) for file in workers.iterdir()), 20), "orphans"
    assert finished_lines(directory) < 1 + 25 + 6  # never complete
    resumed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    command[2] = str(tmp_path / "uninterrupted")
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == resumed
