"""The parts of a search, each by itself: grids, criteria, results, the record."""

from __future__ import annotations

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
from dissensus.evaluate.criteria import DevItems, HeldOutLabels, criterion_of, criterion_record, halves
from dissensus.evaluate.search import FILE, SearchData, cells_of, open_journal, size_of
from dissensus.evaluate.select import CellScores, Selection, gain
from dissensus.evaluate.tasks import described, settings_words, stream_seed, trial_copy
from dissensus.labels.rows import pair_items, pairs_per_item, random_places
from dissensus.params import with_settings


@pytest.fixture(scope="module")
def crowd() -> ds.Annotations:
    """A small simulated crowd."""
    return ds.simulate(40, 12, 3, n_item_clusters=3, n_annotator_clusters=2, labels_per_item=5).annotations


@pytest.fixture(scope="module")
def repeated() -> ds.Annotations:
    """Annotator a labels item i twice."""
    item, annotator, label = zip(
        *(row.split() for row in ["i a x", "i a y", "i b x", "j a x", "j c y"]), strict=True
    )
    return ds.Annotations.from_arrays(list(item), list(annotator), list(label))


# ---- pairs in a random order --------------------------------------------------------------------------


def test_pairs_are_placed_within_their_items(crowd: ds.Annotations, repeated: ds.Annotations) -> None:
    assert pair_items(repeated).tolist() == [0, 0, 1, 1]
    assert pairs_per_item(repeated).tolist() == [2, 2]
    places = random_places(crowd, np.random.default_rng(0))
    for item in range(crowd.n_items):
        assert sorted(places[pair_items(crowd) == item]) == list(range(5))


def test_every_order_of_an_items_pairs_is_as_likely(repeated: ds.Annotations) -> None:
    rng = np.random.default_rng(1)
    first = sum(int(random_places(repeated, rng)[0] == 0) for _ in range(2000))
    assert abs(first - 1000) < 4 * math.sqrt(500)  # binomial, four standard deviations


# ---- grids --------------------------------------------------------------------------------------------


def test_a_grid_is_a_product() -> None:
    cells = cells_of({"a": range(2), "b": ["x", "y"], "c": 5})
    assert cells == [{"a": a, "b": b, "c": 5} for a in (0, 1) for b in ("x", "y")]


def test_a_list_of_grids_names_each_cell_once() -> None:
    assert cells_of([{"a": [1, 2]}, {"a": 2}, {"b": None}]) == [{"a": 1}, {"a": 2}, {"b": None}]


def test_numpy_numbers_become_plain_ones() -> None:
    cells = cells_of({"a": np.arange(2), "b": np.array([0.5])})
    assert [type(value) for value in cells[1].values()] == [int, float]


@pytest.mark.parametrize("grid", [[], {"a": []}])
def test_an_empty_grid_is_refused(grid: Any) -> None:
    with pytest.raises(ParameterError, match="grid"):
        cells_of(grid)


def test_the_size_of_a_cell_is_the_product_of_its_whole_numbers() -> None:
    assert size_of({"k": 4, "l": 3, "alpha": 2.0, "flag": True, "m_step": "product"}) == 12
    assert settings_words({"k": 4, "alpha": None}) == "k=4, alpha=None"


def test_estimators_are_copied_with_settings_and_not_touched() -> None:
    model = ds.PGM(3, 2, n_jobs=-1, seed=5)
    other = with_settings(model, {"n_item_clusters": 7})
    assert (model.n_item_clusters, other.n_item_clusters) == (3, 7)
    trial = trial_copy(model, 99, ["n_item_clusters"])
    assert (trial.seed, trial.n_jobs, model.seed, model.n_jobs) == (99, 1, 5, -1)
    assert trial_copy(model, 99, ["seed"]).seed == 5


def test_threads_are_no_part_of_what_an_estimator_is() -> None:
    assert described(ds.PGM(n_jobs=2)) == described(ds.PGM(n_jobs=1))
    assert described(ds.PGM(seed=2)) != described(ds.PGM(seed=1))


def test_streams_depend_on_what_they_are_for_and_on_nothing_else() -> None:
    assert stream_seed(0, {"k": 1, "l": 2}, 3) == stream_seed(0, {"l": 2, "k": 1}, 3)
    others = {stream_seed(0, {"k": 1}, 3), stream_seed(1, {"k": 1}, 3), stream_seed(0, {"k": 1}, 4)}
    assert len(others) == 3
    assert all(0 <= seed < 2**32 for seed in others)


# ---- criteria -----------------------------------------------------------------------------------------


def test_held_out_labels_are_those_of_split_labels(crowd: ds.Annotations) -> None:
    kept, hidden = crowd.split_labels(0.3, 7)
    model = ds.FMM(3).fit(kept)
    assert HeldOutLabels(0.3)(ds.FMM(3), crowd, 7) == model.score(hidden)


def test_halves_are_made_of_whole_pairs(repeated: ds.Annotations) -> None:
    for seed in range(20):
        folded, hidden = halves(repeated, seed)
        assert pairs_per_item(folded).tolist() == pairs_per_item(hidden).tolist() == [1, 1]
        assert not set(zip(folded.item, folded.annotator, strict=True)) & set(
            zip(hidden.item, hidden.annotator, strict=True)
        )
        assert folded.n_labels + hidden.n_labels == 5


def test_the_odd_pair_is_folded_in(crowd: ds.Annotations) -> None:
    folded, hidden = halves(crowd, 0)
    assert set(pairs_per_item(folded)) == {3}
    assert set(pairs_per_item(hidden)) == {2}


def test_dev_items_are_judged_by_the_half_that_is_not_folded_in(crowd: ds.Annotations) -> None:
    train, dev = crowd[:30], crowd[30:]
    folded, hidden = halves(dev, 4)
    by_hand = ds.FMM(2).fit(train).apply(folded).score(hidden)
    assert DevItems(dev)(ds.FMM(2), train, 4) == by_hand


def test_without_dev_items_a_share_is_kept_out_of_the_fit(crowd: ds.Annotations) -> None:
    class Spy(ds.FMM):
        def fit(self, annotations: Any) -> Any:
            seen.append(annotations.n_items)
            return super().fit(annotations)

    seen: list[int] = []
    DevItems(test_size=0.25)(Spy(2), crowd, 0)
    assert seen == [30]


def test_criteria_by_name(crowd: ds.Annotations) -> None:
    assert criterion_of("held-out", test_size=0.1) == HeldOutLabels(0.1)
    assert criterion_of("dev", dev=crowd) == DevItems(crowd, 0.2)
    with pytest.raises(ParameterError, match="a function, 'held-out' or 'dev'"):
        criterion_of("aic")
    with pytest.raises(ParameterError, match="test_size"):
        criterion_of("held-out", test_size=1.0)


def test_trials_of_one_split_share_its_labels(crowd: ds.Annotations) -> None:
    class Spy(ds.FMM):
        def fit(self, annotations: Any) -> Any:
            seen.append(annotations)
            return super().fit(annotations)

    seen: list[ds.Annotations] = []
    data = SearchData(crowd, HeldOutLabels())
    found = [data.scores([Spy(2)], seed)[0] for seed in (0, 0, 1)]
    assert found == [HeldOutLabels()(ds.FMM(2), crowd, seed) for seed in (0, 0, 1)]
    assert seen[0] is seen[1]
    assert seen[1] is not seen[2]


def test_the_record_of_a_criterion_changes_with_its_data(crowd: ds.Annotations) -> None:
    assert criterion_record(DevItems(crowd)) == criterion_record(DevItems(crowd))
    assert criterion_record(DevItems(crowd)) != criterion_record(DevItems(crowd[:5]))
    assert criterion_record(max) == {"name": "max"}


def test_too_few_labels_to_hide_any(repeated: ds.Annotations) -> None:
    with pytest.raises(DataError, match="too few to hide"):
        HeldOutLabels(0.01)(ds.FMM(1), repeated, 0)


def test_a_fingerprint_changes_with_any_label_id_or_table(crowd: ds.Annotations) -> None:
    import pyarrow as pa

    shuffled = np.random.default_rng(0).permutation(crowd.n_labels)
    ids = crowd.items[crowd.item], crowd.annotators[crowd.annotator], crowd.classes[crowd.label]
    again = ds.Annotations.from_arrays(*(column[shuffled] for column in ids), classes=list(crowd.classes))
    assert again.fingerprint() == crowd.fingerprint()
    table = pa.table({"item": crowd.items, "text": [f"text {i}" for i in range(40)]})
    longer = pa.table({"item": crowd.items, "text": [f"texts {i}" for i in range(40)]})
    changed = [crowd[:39], crowd.with_tables(items=table), crowd.with_tables(items=longer)]
    assert len({one.fingerprint() for one in (crowd, *changed)}) == 4


# ---- results ------------------------------------------------------------------------------------------


def cell(name: int, *scores: float) -> CellScores:
    return CellScores({"k": name}, scores, tuple(range(len(scores))), 1.0)


def test_gain_by_hand() -> None:
    found = gain(cell(1, 0.5, 0.7, 0.9), cell(2, 0.4, 0.7, 0.7))
    # differences 0.1, 0, 0.2: mean 0.1, standard deviation 0.1
    assert found.mean == pytest.approx(0.1, rel=1e-12)
    assert found.error == pytest.approx(0.1 / math.sqrt(3), rel=1e-12)
    assert gain(cell(1, 0.5, 0.7), cell(2, 0.4)).repeats == 1
    assert math.isnan(gain(cell(1, 0.5), cell(2, 0.4)).error)


def test_stability_by_hand() -> None:
    cells = [cell(1, 3.0, 3.0, 1.0), cell(2, 2.0, 2.0, 2.0), cell(3, 1.0, 1.0, 0.0), cell(4, 0.5)]
    found = Selection(None, {}, tuple(cells), {}, None, 0, 0.0).stability
    assert found.wins == {"k=1": 2, "k=2": 1}
    pairs = itertools.combinations(np.array([one.scores for one in cells[:3]]).T, 2)
    expected = np.mean([spearmanr(a, b).statistic for a, b in pairs])
    assert found.rank_correlation == pytest.approx(expected, rel=1e-12)
    # k=2 is behind by 1, 1, −1: 0.33 ± 0.67; k=3 by 2, 2, 1
    assert [str(one) for one in found.tied] == ["k=1", "k=2"]


def test_one_split_says_nothing_of_stability() -> None:
    cells = cell(1, 2.0), cell(2, 1.0)
    found = Selection(None, {}, cells, {}, None, 0, 0.0).stability
    assert math.isnan(found.rank_correlation)
    assert len(found.tied) == 1


# ---- the record on disk -------------------------------------------------------------------------------


def lines_of(directory: Path) -> list[str]:
    return (directory / FILE).read_text().splitlines()


def test_lines_come_back(tmp_path: Path) -> None:
    with open_journal(tmp_path / "new", {"seed": 1}) as journal:
        journal.write({"a": 1.5})
        journal.write({"a": -math.inf})
    with open_journal(tmp_path / "new", {"seed": 1}) as journal:
        assert journal.lines == [{"a": 1.5}, {"a": -math.inf}]
        journal.write({"a": 2})
    assert len(lines_of(tmp_path / "new")) == 4


def test_a_line_cut_short_is_dropped_wherever_it_was_cut(tmp_path: Path) -> None:
    with open_journal(tmp_path, {}) as journal:
        journal.write({"a": 1})
        journal.write({"b": "später"})
    whole = (tmp_path / FILE).read_bytes()
    last = whole.rfind(b"\n", 0, -1) + 1
    for length in range(last, len(whole)):
        (tmp_path / FILE).write_bytes(whole[:length])
        with open_journal(tmp_path, {}) as journal:
            assert journal.lines == [{"a": 1}]
            journal.write({"c": 3})
        assert [json.loads(line) for line in lines_of(tmp_path)[1:]] == [{"a": 1}, {"c": 3}]


def test_another_search_is_refused_and_named(tmp_path: Path) -> None:
    with open_journal(tmp_path, {"seed": 1, "data": "abc"}):
        pass
    with (
        pytest.raises(DataError, match=r"another search \(of other labels\)"),
        open_journal(tmp_path, {"seed": 1, "data": "abd"}),
    ):
        pass
    with pytest.raises(DataError, match="seed was 1, is now not"), open_journal(tmp_path, {"data": "abc"}):
        pass


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"grid": [{}]}, {"grid": [{"k": None}]}, "grid 1 k was not set, is now null"),
        ({"grid": [{"k": None}]}, {"grid": [{}]}, "grid 1 k was null, is now not set"),
        ({"a": None}, {"a": {"b": 1}}, 'a was null, is now {"b": 1}'),
        ({"a": [1]}, {"a": {"b": 1}}, 'a was [1], is now {"b": 1}'),
        ({"a": [1, 2]}, {"a": [1, 3]}, "a 2 was 2, is now 3"),
        ({"grid": [1, 2]}, {"grid": [1]}, "grid (how many) was 2, is now 1"),
        ({"references": [["FMM", {}]]}, {"references": []}, "compared with other models"),
        ({"references": [["FMM", 1]]}, {"references": [["FMM", 2]]}, "compared with other models"),
        ({"criterion": {"dev": "x"}}, {"criterion": {"dev": "y"}}, "judged by other items"),
    ],
)
def test_the_difference_is_told_wherever_it_is(tmp_path: Path, before: Any, after: Any, words: str) -> None:
    with open_journal(tmp_path, before):
        pass
    with (
        pytest.raises(DataError, match=re.escape(f"another search ({words})")),
        open_journal(tmp_path, after),
    ):
        pass


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    with open_journal(tmp_path, {}) as journal:
        journal.write({"a": 1})
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text.replace('"a"', '"a') + '{"b": 1}\n')
    with pytest.raises(DataError, match="line 2: is damaged"), open_journal(tmp_path, {}):
        pass


@pytest.mark.parametrize("content", ["", "item,label\n", '{"format": "other"}\n'])
def test_a_file_that_is_no_record_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(DataError, match=FILE), open_journal(tmp_path, {}):
        pass


def test_two_searches_cannot_write_in_one_place(tmp_path: Path) -> None:
    with (
        open_journal(tmp_path, {}),
        pytest.raises(DataError, match="another search is writing"),
        open_journal(tmp_path, {}),
    ):
        pass
    with open_journal(tmp_path, {}):
        pass


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with open_journal(tmp_path, {}) as journal:
        journal.write({"a": 1})
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(DataError, match=r"no space left on device.*make room"):
            journal.write({"a": 2})
    assert json.loads(lines_of(tmp_path)[1]) == {"a": 1}
