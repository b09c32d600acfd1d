"""The parts of a search: grids, criteria, results and the journal."""

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate import search
from dissensus.evaluate.select import CellScores, Selection, gain
from dissensus.evaluate.tasks import stream_seed, trial_copy
from dissensus.labels.rows import pair_items, pairs_per_item, random_ranks


@pytest.fixture(scope="module")
def crowd() -> ds.Annotations:
    """Simulate a small data set."""
    return ds.simulate(40, 12, 3, n_item_clusters=3, n_annotator_clusters=2, labels_per_item=5).annotations


@pytest.fixture(scope="module")
def repeated() -> ds.Annotations:
    """Return labels in which annotator a labels item i twice."""
    return ds.Annotations.from_arrays(list("iiijj"), list("aabac"), list("xyxxy"))


# ---- pairs in a random order --------------------------------------------------------------------------


def test_random_ranks_within_items(crowd: ds.Annotations, repeated: ds.Annotations) -> None:
    assert pair_items(repeated).tolist() == [0, 0, 1, 1]
    assert pairs_per_item(repeated).tolist() == [2, 2]
    ranks = random_ranks(crowd, np.random.default_rng(0))
    for item in range(crowd.n_items):
        assert sorted(ranks[pair_items(crowd) == item]) == list(range(5))


# ---- grids --------------------------------------------------------------------------------------------


def test_cells_of_a_grid() -> None:
    cells = search.cells_of({"a": range(2), "b": ["x", "y"], "c": 5})
    assert cells == [{"a": a, "b": b, "c": 5} for a in (0, 1) for b in ("x", "y")]
    assert search.cells_of([{"a": [1, 2]}, {"a": 2}, {"b": None}]) == [{"a": 1}, {"a": 2}, {"b": None}]
    assert [type(value) for value in search.cells_of({"a": np.arange(2)})[1].values()] == [int]
    for empty in ([], {"a": []}):
        with pytest.raises(ParameterError, match="grid"):
            search.cells_of(empty)


# ---- criteria -----------------------------------------------------------------------------------------


def test_halves_consist_of_whole_pairs(crowd: ds.Annotations, repeated: ds.Annotations) -> None:
    for seed in range(20):
        applied, hidden = search.split_halves(repeated, seed)
        assert pairs_per_item(applied).tolist() == pairs_per_item(hidden).tolist() == [1, 1]
        assert not set(zip(applied.item, applied.annotator, strict=True)) & set(
            zip(hidden.item, hidden.annotator, strict=True)
        )
        assert applied.n_labels + hidden.n_labels == 5
    applied, hidden = search.split_halves(crowd, 0)  # five pairs per item
    assert (set(pairs_per_item(applied)), set(pairs_per_item(hidden))) == ({3}, {2})


def test_dev_items_by_hand(crowd: ds.Annotations) -> None:
    train, dev = crowd[:30], crowd[30:]
    applied, hidden = search.split_halves(dev, 4)
    by_hand = ds.FMM(2).fit(train).apply(applied).score(hidden)
    assert search.DevItems(dev)(ds.FMM(2), train, 4) == by_hand


def test_criteria_by_name(crowd: ds.Annotations) -> None:
    assert search.criterion_of("held-out", None, 0.1) == search.HeldOutLabels(0.1)
    assert search.criterion_of("dev", crowd, 0.2) == search.DevItems(crowd, 0.2)
    with pytest.raises(ParameterError, match="a function, 'held-out' or 'dev'"):
        search.criterion_of("aic", None, 0.2)
    with pytest.raises(ParameterError, match="test_size"):
        search.criterion_of("held-out", None, 1.0)
    train, hidden = crowd.split_labels(0.3, 7)
    assert search.HeldOutLabels(0.3)(ds.FMM(3), crowd, 7) == ds.FMM(3).fit(train).score(hidden)
    with pytest.raises(DataError, match="too few to hide"):
        search.HeldOutLabels(0.001)(ds.FMM(1), crowd, 0)


def test_trials_share_a_split(crowd: ds.Annotations) -> None:
    class Spy(ds.FMM):
        def fit(self, annotations: Any) -> Any:
            seen.append(annotations)
            return super().fit(annotations)

    seen: list[ds.Annotations] = []
    data = search.SearchData(crowd, search.HeldOutLabels())
    result = [data.scores([Spy(2)], seed)[0] for seed in (0, 0, 1)]
    assert result == [search.HeldOutLabels()(ds.FMM(2), crowd, seed) for seed in (0, 0, 1)]
    assert seen[0] is seen[1]
    assert seen[1] is not seen[2]


# ---- results ------------------------------------------------------------------------------------------


def cell(name: int, *scores: float) -> CellScores:
    return CellScores({"k": name}, scores, tuple(range(len(scores))), 1.0)


def test_gain_by_hand() -> None:
    result = gain(cell(1, 0.5, 0.7, 0.9), cell(2, 0.4, 0.7, 0.7))
    # differences 0.1, 0, 0.2: mean 0.1, standard deviation 0.1
    assert result.mean == pytest.approx(0.1, rel=1e-12)
    assert result.error == pytest.approx(0.1 / math.sqrt(3), rel=1e-12)
    assert gain(cell(1, 0.5, 0.7), cell(2, 0.4)).repeats == 1
    assert math.isnan(gain(cell(1, 0.5), cell(2, 0.4)).error)


def test_stability_by_hand() -> None:
    cells = [cell(1, 3.0, 3.0, 1.0), cell(2, 2.0, 2.0, 2.0), cell(3, 1.0, 1.0, 0.0), cell(4, 0.5)]
    result = Selection(None, {}, tuple(cells), {}, None, 0, 0.0).stability
    assert result.wins == {"k=1": 2, "k=2": 1}
    pairs = itertools.combinations(np.array([row.scores for row in cells[:3]]).T, 2)
    expected = np.mean([spearmanr(a, b).statistic for a, b in pairs])
    assert result.rank_correlation == pytest.approx(expected, rel=1e-12)
    # k=2 is behind by 1, 1, −1: 0.33 ± 0.67; k=3 by 2, 2, 1
    assert [str(tied) for tied in result.tied] == ["k=1", "k=2"]
    single = Selection(None, {}, (cell(1, 2.0), cell(2, 1.0)), {}, None, 0, 0.0).stability
    assert math.isnan(single.rank_correlation)
    assert len(single.tied) == 1


# ---- journal ------------------------------------------------------------------------------------------


def lines_of(directory: Path) -> list[str]:
    return (directory / search.JOURNAL_FILE).read_text().splitlines()


def test_journal_drops_an_incomplete_line(tmp_path: Path) -> None:
    with search.open_journal(tmp_path, {"seed": 1}) as journal:
        journal.write({"a": -math.inf})
        journal.write({"b": "später"})
    content = (tmp_path / search.JOURNAL_FILE).read_bytes()
    for length in range(content.rfind(b"\n", 0, -1) + 1, len(content)):
        (tmp_path / search.JOURNAL_FILE).write_bytes(content[:length])
        with search.open_journal(tmp_path, {"seed": 1}) as journal:
            assert journal.lines == [{"a": -math.inf}]
            journal.write({"c": 3})
        assert [json.loads(line) for line in lines_of(tmp_path)[1:]] == [{"a": -math.inf}, {"c": 3}]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({"grid": [{}]}, {"grid": [{"k": None}]}, "grid 1 k was not set, is now null"),
        ({"a": [1]}, {"a": {"b": 1}}, 'a was [1], is now {"b": 1}'),
        ({"a": [1, 2]}, {"a": [1, 3]}, "a 2 was 2, is now 3"),
        ({"grid": [1, 2]}, {"grid": [1]}, "grid (length) was 2, is now 1"),
        ({"references": [["FMM", 1]]}, {"references": [["FMM", 2]]}, "other reference models"),
        ({"criterion": {"dev": "x"}}, {"criterion": {"dev": "y"}}, "other dev items"),
        ({"data": "x"}, {"data": "y"}, "other labels"),
    ],
)
def test_difference_between_searches(tmp_path: Path, before: Any, after: Any, message: str) -> None:
    with search.open_journal(tmp_path, before):
        pass
    line = re.escape(f"another search ({message})")
    with pytest.raises(DataError, match=line), search.open_journal(tmp_path, after):
        pass


def test_locked_and_invalid_journals(tmp_path: Path) -> None:
    in_use = pytest.raises(DataError, match="another search is writing")
    with search.open_journal(tmp_path, {}), in_use, search.open_journal(tmp_path, {}):
        pass
    header = '{"format": "dissensus search 1"}\n'
    for content in ("", "item,label\n", '{"format": "other"}\n', header + '{"a: 1}\n'):
        (tmp_path / search.JOURNAL_FILE).write_text(content)
        with pytest.raises(DataError, match=search.JOURNAL_FILE), search.open_journal(tmp_path, {}):
            pass


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with search.open_journal(tmp_path, {}) as journal:
        journal.write({"a": 1})
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(DataError, match=r"no space left on device.*free some space"):
            journal.write({"a": 2})
    assert json.loads(lines_of(tmp_path)[1]) == {"a": 1}


def test_trial_copies() -> None:
    model = ds.PGM(3, 2, n_jobs=-1, seed=5)
    trial = trial_copy(model, 99, ["n_item_clusters"])
    assert (trial.seed, trial.n_jobs, model.seed, model.n_jobs) == (99, 1, 5, -1)
    assert trial_copy(model, 99, ["seed"]).seed == 5


def test_stream_seeds() -> None:
    assert stream_seed(0, {"k": 1, "l": 2}, 3) == stream_seed(0, {"l": 2, "k": 1}, 3)
    others = {stream_seed(0, {"k": 1}, 3), stream_seed(1, {"k": 1}, 3), stream_seed(0, {"k": 1}, 4)}
    assert len(others) == 3
    assert all(0 <= seed < 2**32 for seed in others)
