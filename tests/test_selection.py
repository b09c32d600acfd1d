"""select: the whole search, killed and resumed, on any number of processes."""

from __future__ import annotations

import json
import math
import os
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
from dissensus.errors import DataError, DissensusError, ParameterError
from dissensus.evaluate.compare import applies
from dissensus.evaluate.search import FILE
from dissensus.evaluate.select import Selection
from dissensus.models import fits
from sizes import usually

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

SIZES = {"n_item_clusters": [1, 2, 3], "n_annotator_clusters": [1, 2]}


@pytest.fixture(scope="module")
def crowd() -> ds.Annotations:
    """Three kinds of items and two of annotators, who disagree."""
    return ds.simulate(60, 15, 3, n_item_clusters=3, n_annotator_clusters=2, labels_per_item=6).annotations


def table(selection: Selection) -> str:
    """Everything a search found, times apart, to the last bit."""
    cells = [{k: v for k, v in row.items() if k != "seconds"} for row in selection.rows()]
    others = {name: (cell.scores, cell.seeds) for name, cell in selection.references.items()}
    return repr((cells, others))


def search(annotations: ds.Annotations, grid: Any = SIZES, **settings: Any) -> Selection:
    """A small search in this process."""
    given = {"repeats": 3, "finalists": 2, "n_jobs": 1, "progress": False} | settings
    return ds.select(annotations, ds.PGM(seed=3, max_iter=20), grid, **given)


@pytest.fixture(scope="module")
def finished(crowd: ds.Annotations, tmp_path_factory: pytest.TempPathFactory) -> tuple[Selection, Path]:
    """A search that is over, and its directory; whoever writes there works on a copy."""
    directory = tmp_path_factory.mktemp("finished")
    return search(crowd, directory=directory), directory


# ---- what is found ------------------------------------------------------------------------------------


def test_every_score_can_be_had_by_hand(crowd: ds.Annotations) -> None:
    found = search(crowd, seed=10)
    assert len(found.cells) == 6
    for cell in found.cells:
        for repeat, (score, seed) in enumerate(zip(cell.scores, cell.seeds, strict=True)):
            kept, hidden = crowd.split_labels(0.2, 10 + repeat)
            model = ds.PGM(**cell.settings, max_iter=20, seed=seed).fit(kept)
            assert model.score(hidden) == score


def test_the_best_on_the_first_split_are_tried_on_the_others(
    crowd: ds.Annotations, finished: tuple[Selection, Path]
) -> None:
    found, _ = finished
    assert [cell.repeats for cell in found.cells] == [3, 3, 1, 1, 1, 1]
    first = sorted((cell.scores[0] for cell in found.cells), reverse=True)
    assert {cell.scores[0] for cell in found.cells[:2]} == set(first[:2])
    assert found.winner.score == max(cell.score for cell in found.cells[:2])
    assert all(row["behind"] >= 0 for row in found.rows())
    assert {cell.repeats for cell in search(crowd, finalists=None).cells} == {3}


def test_the_winner_is_fitted_to_all_labels(crowd: ds.Annotations, finished: tuple[Selection, Path]) -> None:
    found, _ = finished
    again = ds.PGM(**found.params, seed=3, max_iter=20).fit(crowd)
    assert np.array_equal(found.model.label_distributions_, again.label_distributions_)
    assert search(crowd, refit=False).model is None


def test_references_are_judged_on_the_same_splits(
    crowd: ds.Annotations, finished: tuple[Selection, Path]
) -> None:
    found, _ = finished
    assert set(found.references) == {"FMM", "counts"}
    for name, build in (("FMM", ds.FMM), ("counts", ds.EmpiricalDistribution)):
        cell = found.references[name]
        assert cell.repeats == 3
        kept, hidden = crowd.split_labels(0.2, 1)
        extra = {"seed": cell.seeds[1]} if name == "FMM" else {}
        assert build(**cell.settings, **extra).fit(kept).score(hidden) == cell.scores[1]
        difference = np.subtract(found.winner.scores, cell.scores)
        assert found.gains[name].mean == pytest.approx(difference.mean(), rel=1e-12)


def test_references_of_ones_own(crowd: ds.Annotations) -> None:
    given = {"Dawid–Skene": [ds.DawidSkene(smoothing=s) for s in (1.0, 10.0)]}
    found = search(crowd, references=given)
    assert set(found.references) == {"Dawid–Skene"}
    assert "DawidSkene" in found.references["Dawid–Skene"].settings["model"]
    assert search(crowd, references={}).references == {}
    twice = {"DS": [ds.DawidSkene(), ds.DawidSkene()]}
    with pytest.raises(ParameterError, match="twice"):
        search(crowd, references=twice)


def test_labels_without_clusters_choose_none() -> None:
    plain = ds.simulate(150, 30, 4, n_item_clusters=1, n_annotator_clusters=1, labels_per_item=6).annotations
    for inference in ("bp", "vb"):
        grid = {"n_item_clusters": [1, 2, 4], "n_annotator_clusters": [1, 2, 4]}
        found = ds.select(plain, ds.PGM(inference=inference), grid, n_jobs=1, finalists=4, references={})
        assert 1 in found.params.values()


def test_planted_clusters_are_worth_having() -> None:
    planted = ds.simulate(
        150, 30, 4, n_item_clusters=4, n_annotator_clusters=3, alpha=0.3, labels_per_item=10
    )
    found = ds.select(planted.annotations, ds.PGM(), {**SIZES, "n_item_clusters": [1, 2, 4, 8]}, n_jobs=1)
    assert found.params["n_item_clusters"] >= 4
    assert found.params["n_annotator_clusters"] == 2
    assert found.gains["FMM"].mean > 2 * found.gains["FMM"].error > 0
    assert found.gains["counts"].mean > 2 * found.gains["counts"].error > 0


def test_sizes_that_do_not_fit_the_labels_are_not_tried() -> None:
    # 12 items, 4 annotators, 3 classes and 48 labels: K ≤ 12, L ≤ 4, and 2 K L ≤ 48
    labels = ds.simulate(12, 4, 3, labels_per_item=4, seed=0).annotations
    grid = {"n_item_clusters": [2, 8, 20], "n_annotator_clusters": [1, 3, 5]}
    found = ds.select(labels, ds.PGM(max_iter=3), grid, repeats=1, references={}, n_jobs=1)
    tried = {
        (cell.settings["n_item_clusters"], cell.settings["n_annotator_clusters"]) for cell in found.cells
    }
    assert tried == {(2, 1), (2, 3), (8, 1), (8, 3)}
    assert found.n_too_large == 5
    assert found.to_dict()["n_too_large"] == 5


@pytest.mark.parametrize(
    ("K", "L", "fitting"), [(12, 2, True), (13, 1, False), (12, 3, False), (1, 5, False), (6, 4, True)]
)
def test_what_fits_is_said_in_one_place(K: int, L: int, fitting: bool) -> None:
    labels = ds.simulate(12, 4, 3, labels_per_item=4, seed=0).annotations
    settings = {"n_item_clusters": K, "n_annotator_clusters": L}
    assert fits(settings, labels) is fitting
    assert applies(ds.PGM(**settings), labels) is fitting
    assert applies(ds.HPGM(**settings), labels)  # its sizes are upper bounds


def test_a_grid_of_which_nothing_fits_is_tried_as_it_is() -> None:
    labels = ds.simulate(12, 4, 3, labels_per_item=4, seed=0).annotations
    found = ds.select(
        labels, ds.FMM(max_iter=3), {"n_item_clusters": [30]}, repeats=1, references={}, n_jobs=1
    )
    assert [cell.settings for cell in found.cells] == [{"n_item_clusters": 30}]
    assert found.n_too_large == 0


def test_of_equals_the_smaller_wins(crowd: ds.Annotations) -> None:
    found = ds.select(
        crowd, ds.FMM(), {"n_item_clusters": [4, 2, 3]}, criterion=lambda *_: 1.0, n_jobs=1, refit=False
    )
    assert [cell.settings["n_item_clusters"] for cell in found.cells] == [2, 3, 4]


def test_a_score_that_is_no_number_comes_last(crowd: ds.Annotations) -> None:
    def odd(estimator: Any, annotations: Any, seed: int) -> float:
        return {1: math.nan, 2: -math.inf, 3: -5.0}[estimator.n_item_clusters]

    found = ds.select(crowd, ds.FMM(), {"n_item_clusters": [1, 2, 3]}, criterion=odd, n_jobs=1, refit=False)
    assert [cell.settings["n_item_clusters"] for cell in found.cells] == [3, 2, 1]


def test_cells_are_judged_by_dev_items(crowd: ds.Annotations) -> None:
    found = search(crowd, criterion="dev")
    assert all(math.isfinite(cell.score) and cell.score < 0 for cell in found.cells)
    assert "counts" in found.references


def test_dev_items_of_ones_own(crowd: ds.Annotations) -> None:
    found = search(crowd[:40], criterion="dev", dev=crowd[40:])
    assert found.criterion["dev"] is not None
    assert found.model.label_distributions_.shape[0] == 40


def test_an_estimator_of_another_library(crowd: ds.Annotations) -> None:
    """Whatever has get_params, set_params, fit and score can be searched, nested settings too."""
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

    found = ds.select(crowd, Wrapped(ds.FMM()), {"inner__n_item_clusters": [1, 2]}, n_jobs=1)
    kept, hidden = crowd.split_labels(0.2, 0)
    cell = next(cell for cell in found.cells if cell.settings["inner__n_item_clusters"] == 2)
    assert ds.FMM(2, seed=cell.seeds[0]).fit(kept).score(hidden) == cell.scores[0]


def test_the_result_as_plain_values(finished: tuple[Selection, Path]) -> None:
    found, _ = finished
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["winner"] == found.params
    assert len(plain["cells"]) == len(found.to_frame()) == 6
    assert sum(plain["stability"]["wins"].values()) == 3
    assert "winner: n_item_clusters=" in repr(found)


def test_progress_rises_to_one_and_tells_the_time_left(crowd: ds.Annotations) -> None:
    told: list[tuple[str, float]] = []
    search(crowd, progress=lambda what, share: told.append((what, share)))
    shares = [share for _, share in told]
    assert shares[-1] == 1
    assert all(0 < share <= 1 for share in shares)
    assert all(what.endswith("s left") for what, _ in told[:-1])


# ---- what is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"repeats": 0}, "'repeats'"),
        ({"finalists": 0}, "'finalists'"),
        ({"criterion": "best"}, "'criterion'"),
        ({"criterion": "held-out", "test_size": 0.0}, "'test_size'"),
        ({"n_jobs": 0}, "'n_jobs'"),
        ({"grid": {"n_clusters": [1]}}, "n_clusters"),
        ({"grid": {"n_item_clusters": [0, 1]}}, "'n_item_clusters'"),
    ],
)
def test_bad_settings_are_refused_before_any_work(crowd: ds.Annotations, settings: Any, words: str) -> None:
    def never(*_: Any) -> float:
        raise AssertionError

    with pytest.raises(ParameterError, match=words):
        search(crowd, **({"criterion": never, "grid": {"n_item_clusters": [2]}} | settings))


def test_an_empty_grid_tries_the_estimator_as_it_is(crowd: ds.Annotations) -> None:
    assert search(crowd, {}).params == {}


def test_a_class_is_no_estimator(crowd: ds.Annotations) -> None:
    with pytest.raises(ParameterError, match="estimator"):
        ds.select(crowd, ds.PGM, SIZES)


# ---- processes ----------------------------------------------------------------------------------------


def test_results_do_not_depend_on_what_runs_them(
    crowd: ds.Annotations, finished: tuple[Selection, Path]
) -> None:
    here = table(finished[0])
    assert table(search(crowd, n_jobs=2)) == here
    with ThreadPoolExecutor(2) as threads:
        assert table(search(crowd, executor=threads)) == here
    assert table(search(crowd, seed=1)) != here


def test_a_script_without_a_main_guard_and_with_functions_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import dissensus as ds\n"
        "weight = 2.0\n"
        "def judge(estimator, annotations, seed):\n"
        "    return weight * estimator.fit(annotations).score(annotations)\n"
        "crowd = ds.simulate(30, 8, 3).annotations\n"
        "found = ds.select(crowd, ds.FMM(), {'n_item_clusters': [1, 2]}, criterion=judge, n_jobs=2)\n"
        "print(len(found.cells))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


def test_an_error_in_a_trial_is_the_callers(crowd: ds.Annotations) -> None:
    def broken(estimator: Any, annotations: Any, seed: int) -> float:
        raise DataError("nothing to judge by; give dev items")

    for n_jobs in (1, 2):
        with pytest.raises(DataError, match="nothing to judge by"):
            search(crowd, criterion=broken, n_jobs=n_jobs)


@pytest.mark.filterwarnings("ignore")
def test_a_worker_that_dies_is_one_clear_line(crowd: ds.Annotations) -> None:
    def deadly(estimator: Any, annotations: Any, seed: int) -> float:
        os._exit(1)

    with pytest.raises(DissensusError, match="a worker process died"):
        search(crowd, criterion=deadly, n_jobs=2)


# ---- killed and resumed -------------------------------------------------------------------------------


def test_a_finished_search_is_read_back_without_a_fit(
    crowd: ds.Annotations, finished: tuple[Selection, Path]
) -> None:
    first, directory = finished
    told: list[str] = []
    again = search(crowd, directory=directory, progress=lambda what, _: told.append(what))
    assert table(again) == table(first)
    assert [what.split()[0] for what in told] == ["fitting"]


def test_a_search_goes_on_from_any_line(
    crowd: ds.Annotations, finished: tuple[Selection, Path], tmp_path: Path
) -> None:
    whole, directory = finished
    lines = (directory / FILE).read_bytes().splitlines(keepends=True)
    for kept in (1, 2, len(lines) // 2, len(lines) - 1):
        torn = lines[kept][: len(lines[kept]) // 2]
        (tmp_path / FILE).write_bytes(b"".join(lines[:kept]) + torn)
        assert table(search(crowd, directory=tmp_path)) == table(whole)
        assert sorted((tmp_path / FILE).read_bytes().splitlines())[0]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"seed": 1}, r"another search \(seed was"),
        ({"repeats": 4}, r"another search \(repeats was"),
        ({"test_size": 0.3}, r"another search \(criterion test_size was 0.2, is now 0.3\)"),
        ({"grid": {"n_item_clusters": [1]}}, r"another search \(grid \(how many\) was 6, is now 1\)"),
        (
            {"grid": {**SIZES, "n_annotator_clusters": [1, 3]}},
            r"another search \(grid 2 n_annotator_clusters was 2, is now 3\)",
        ),
    ],
)
def test_another_search_is_refused(
    crowd: ds.Annotations, finished: tuple[Selection, Path], changed: Any, words: str
) -> None:
    with pytest.raises(DataError, match=words) as caught:
        search(crowd, directory=finished[1], **changed)
    assert "\n" not in str(caught.value)


def test_other_data_and_another_estimator_are_refused(
    crowd: ds.Annotations, finished: tuple[Selection, Path]
) -> None:
    directory = finished[1]
    with pytest.raises(DataError, match=r"another search \(of other labels\)"):
        search(crowd[:59], directory=directory)
    with pytest.raises(DataError, match=r"another search \(estimator settings seed was 3, is now 4\)"):
        ds.select(crowd, ds.PGM(seed=4, max_iter=20), SIZES, repeats=3, finalists=2, directory=directory)


def test_an_unknown_criterion_leaves_nothing_behind(crowd: ds.Annotations, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="Got 'bic' instead"):
        ds.select(crowd, ds.PGM(), {"max_iter": [5, 6]}, criterion="bic", directory=tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_precision_is_another_search(
    crowd: ds.Annotations, finished: tuple[Selection, Path], tmp_path: Path
) -> None:
    header = json.loads((finished[1] / FILE).read_text().splitlines()[0])
    assert "precision" not in header  # as it was before there was a choice
    with (
        ds.resources(precision="single"),
        pytest.raises(DataError, match=r"another search \(precision was not set, is now single\)"),
    ):
        search(crowd, directory=finished[1])
    with ds.resources(precision="single"):
        first = search(crowd, {"n_item_clusters": [2]}, directory=tmp_path)
        assert table(search(crowd, {"n_item_clusters": [2]}, directory=tmp_path)) == table(first)


SEARCH = """
import os, sys, time
from pathlib import Path
import dissensus as ds
from dissensus.evaluate.criteria import HeldOutLabels

def slow(estimator, annotations, seed):
    Path(sys.argv[2], str(os.getpid())).touch()
    time.sleep(0.03)
    return HeldOutLabels()(estimator, annotations, seed)

crowd = ds.simulate(60, 15, 3, n_item_clusters=3, n_annotator_clusters=2, labels_per_item=6).annotations
grid = {"n_item_clusters": range(1, 6), "n_annotator_clusters": range(1, 6)}
settings = dict(criterion=slow, repeats=3, finalists=3, n_jobs=2, directory=sys.argv[1])
found = ds.select(crowd, ds.PGM(max_iter=10), grid, **settings)
print(found.to_frame().drop(columns="seconds").to_csv())
"""


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def finished_lines(directory: Path) -> int:
    file = directory / FILE
    return file.read_bytes().count(b"\n") if file.exists() else 0


def alive(process: int) -> bool:
    """Running; a zombie has ended and only waits to be collected."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_killed_with_kill_9_it_ends_with_the_identical_table(tmp_path: Path) -> None:
    script, workers, place = tmp_path / "search.py", tmp_path / "workers", tmp_path / "search"
    script.write_text(SEARCH)
    workers.mkdir()
    command = [sys.executable, str(script), str(place), str(workers)]
    for lines in usually((15,), verify=(3, 15, 28)):
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert wait_for(lambda wanted=lines: finished_lines(place) >= wanted)
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert wait_for(lambda: not any(alive(int(file.name)) for file in workers.iterdir()), 20), "orphans"
    assert finished_lines(place) < 1 + 25 + 6  # it was never whole
    resumed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    command[2] = str(tmp_path / "in one go")
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == resumed


@pytest.mark.filterwarnings("ignore")
def test_on_the_executor_of_a_dask_client(crowd: ds.Annotations, finished: tuple[Selection, Path]) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.Client(processes=False, threads_per_worker=2, dashboard_address=":0") as client:
        assert table(search(crowd, executor=client.get_executor())) == table(finished[0])
