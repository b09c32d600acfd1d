"""Names that a user of crowd-kit tries, held against crowd-kit itself where it runs."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import crowdkit.aggregation as crowdkit
import numpy as np
import pandas as pd
import polars as pl
import pytest
from crowdkit.metrics.data import alpha_krippendorff

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate.gold import gold_accuracy

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def birds() -> tuple[pd.DataFrame, pd.Series[Any]]:
    return ds.datasets.load_dataset("birds")


def test_majority_vote_gives_what_crowd_kit_gives(birds: tuple[pd.DataFrame, pd.Series[Any]]) -> None:
    frame, _ = birds
    theirs = crowdkit.MajorityVote().fit(frame)
    ours = ds.MajorityVote().fit(frame)
    untied = ours.probas_.max(axis=1) == 1
    assert untied.sum() > 80
    pd.testing.assert_series_equal(ours.labels_[untied], theirs.labels_[untied], check_names=False)
    assert ours.labels_.index.name == theirs.labels_.index.name == "task"
    assert ours.probas_.columns.name == "label"


@pytest.mark.slow
def test_unsmoothed_dawid_skene_has_crowd_kits_labels_and_errors_laid_out_alike() -> None:
    rng = np.random.default_rng(0)
    task, worker = np.repeat(np.arange(40), 5), np.tile(np.arange(5), 40)
    right = rng.random(200) < np.array([0.9, 0.85, 0.8, 0.75, 0.7])[worker]
    frame = pd.DataFrame({"task": task, "worker": worker, "label": np.where(right, task % 2, 1 - task % 2)})
    # crowd-kit stops at the first step that lowers its bound; with this tol it goes on
    theirs = crowdkit.DawidSkene(n_iter=40, tol=-1e9).fit(frame)
    ours = ds.DawidSkene(smoothing=0.0, max_iter=40, tol=0.0).fit(frame)
    assert ours.errors_.index.names == theirs.errors_.index.names == ["worker", "label"]
    reference = theirs.errors_.reindex(ours.errors_.index)[ours.errors_.columns]
    np.testing.assert_allclose(ours.errors_, reference, atol=1e-3)
    np.testing.assert_allclose(ours.probas_, theirs.probas_.loc[ours.probas_.index], atol=1e-3)
    # P(answer | true class): the answers of one worker to one class sum to one
    np.testing.assert_allclose(ours.errors_.groupby("worker").sum(), 1.0)


def test_skills_are_the_chance_of_the_right_answer() -> None:
    frame = pd.DataFrame(
        {"task": [1, 1, 1, 2, 2, 2], "worker": list("abcabc"), "label": ["x", "x", "y", "y", "y", "y"]}
    )
    model = ds.DawidSkene().fit(frame)
    assert (model.skills_.name, model.skills_.index.name) == ("skill", "worker")
    by_hand = [
        sum(model.psi_[k] * model.errors_.loc[(name, c), c] for k, c in enumerate("xy")) for name in "abc"
    ]
    np.testing.assert_allclose(model.skills_, by_hand)


def test_true_labels_are_the_second_argument(birds: tuple[pd.DataFrame, pd.Series[Any]]) -> None:
    frame, gold = birds
    ours = ds.DawidSkene().fit_predict(frame, gold[:60])
    assert (ours[gold.index[:60]] == gold[:60]).all()
    assert (ds.DawidSkene().fit_predict(frame)[gold.index[:60]] != gold[:60]).any()
    shares = ds.DawidSkene().fit_predict_proba(frame, gold[:60])
    assert (shares.loc[gold.index[:60]].max(axis=1) == 1).all()
    with pytest.raises(DataError, match="HPGM does not look for one true class"):
        ds.HPGM().fit_predict(frame, gold)


def test_true_labels_that_no_annotator_used_are_told() -> None:
    frame = pd.DataFrame(
        {"task": [1, 1, 2, 2], "worker": list("abab"), "label": ["cat", "cat", "dog", "cat"]}
    )
    with pytest.raises(
        DataError, match="gold has 'kat' \\(1 item\\), a class that no annotator used; if it means"
    ):
        ds.DawidSkene().fit_predict(frame, {1: "kat"})
    with pytest.warns(
        UserWarning, match="no annotator used: 'bird' \\(1 item\\); annotators used 'cat', 'dog'"
    ):
        ds.DawidSkene().fit_predict(frame, {1: "bird"})


def test_gold_beside_a_frame() -> None:
    frame, gold = ds.datasets.load_dataset("birds")
    known = ds.read_annotations(frame, gold=gold.rename_axis("task").reset_index())
    expected = gold_accuracy(known, ds.DawidSkene(), folds=2)
    assert gold_accuracy(frame, ds.DawidSkene(), gold=gold, folds=2) == expected
    with pytest.raises(DataError, match="no item has labels and a gold class to judge by; give gold="):
        gold_accuracy(frame, ds.DawidSkene())
    by_table = gold.rename_axis("task").reset_index()
    runs = [ds.fit(frame, "dawid-skene", estimate="truth", gold=told) for told in (gold, by_table)]
    assert runs[0].gold == runs[1].gold == gold_accuracy(known, ds.DawidSkene())


def test_alpha_of_a_frame_is_crowd_kits(birds: tuple[pd.DataFrame, pd.Series[Any]]) -> None:
    frame, _ = birds
    assert ds.metrics.krippendorff_alpha(frame) == pytest.approx(alpha_krippendorff(frame), abs=1e-12)
    assert ds.metrics.krippendorff_alpha(pl.from_pandas(frame)) == ds.metrics.krippendorff_alpha(frame)
    assert ds.metrics.fleiss_kappa(frame) == ds.metrics.fleiss_kappa(ds.read_annotations(frame))


def test_comparisons_are_read_as_crowd_kit_reads_them() -> None:
    pairs, _ = ds.datasets.load_dataset("posters")
    theirs = crowdkit.BradleyTerry(n_iter=100).fit_predict(pairs)
    ours = ds.BradleyTerry().fit_predict(pairs)
    assert ours.is_monotonic_decreasing
    assert set(ours.index) == set(theirs.index)
    assert ours.corr(np.log(theirs[ours.index])) > 0.97


def test_results_stay_keyed_by_the_users_own_columns_after_saving(tmp_path: Any) -> None:
    frame = pd.DataFrame({"task": [7, 7, 8], "worker": ["a", "b", "a"], "label": [1, 1, 0]})
    model = ds.DawidSkene().fit(frame)
    model.save(tmp_path / "model.safetensors")
    again = ds.load(tmp_path / "model.safetensors")
    for name in ("labels_", "probas_", "skills_", "errors_"):
        ours, theirs = getattr(model, name), getattr(again, name)
        assert type(ours) is type(theirs)
        assert ours.index.names == theirs.index.names
        np.testing.assert_array_equal(ours, theirs)
    assert list(ds.EmpiricalDistribution().fit(pl.from_pandas(frame)).probas_.columns) == ["task", "0", "1"]


# ---- crowd-kit's own examples, with the imports changed ----------------------------------------------------

OUR_NAMES = {
    "OneCoinDawidSkene": "OneCoin",
    "NoisyBradleyTerry": "BradleyTerry",
    "GoldMajorityVote": "DawidSkene",
    "BinaryRelevance": "LabelSets",
}
# the example, and what is said where it does not run
DIFFERS = {
    "DawidSkene 3": "has no setting 'initial_error_strategy'",
    "MajorityVote 2": "weights of annotators cannot be given",
    "NoisyBradleyTerry 1": "the labels are of type list",
    "BinaryRelevance 1": "Got DawidSkene",
}
NOT_HERE = {  # answers of other types, and methods that a majority vote or the default replaces
    *("Wawa", "ZeroBasedSkill", "KOS", "MMSR", "GLAD"),
    *("RASA", "HRRASA", "ROVER", "TextRASA", "TextHRRASA"),
    *("SegmentationEM", "SegmentationRASA", "SegmentationMajorityVote"),
}


def their_examples() -> dict[str, str]:
    """By name and number, the code of crowd-kit's README and of its classes' documentation."""
    readme = metadata("crowd-kit").get_payload()
    found = {"README 1": "\n".join(re.findall(r"^````python\n(.*?)^````", str(readme), re.M | re.S))}
    for name in crowdkit.__all__:
        text = getattr(crowdkit, name).__doc__ or ""
        parts = [one for one in re.split(r"Examples:|Weighted Majority Vote:", text) if ">>> " in one]
        for number, part in enumerate(parts, 1):
            lines = [line.strip()[4:] for line in part.splitlines() if re.match(r"\s*(>>>|\.\.\.) ", line)]
            found[f"{name} {number}"] = "\n".join(lines)
    return found


def with_our_imports(code: str) -> str:
    """Only the imports are changed, and the data set that would be downloaded."""

    def ours(found: re.Match[str]) -> str:
        names = [f"{OUR_NAMES.get(name, name)} as {name}" for name in found[1].split(", ")]
        return "from dissensus import " + ", ".join(names)

    code = re.sub(r"^from crowdkit\.aggregation import (.+)$", ours, code, flags=re.M)
    return code.replace("from crowdkit.datasets", "from dissensus.datasets").replace("relevance-2", "birds")


@pytest.mark.slow
def test_the_examples_of_crowd_kit_run_with_their_imports_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ds.datasets.load_dataset("birds")[0].to_csv("results.csv", index=False)
    said, ran = {}, []
    for name, code in their_examples().items():
        if name.split()[0] in NOT_HERE:
            continue
        names: dict[str, Any] = {}
        try:
            exec(with_our_imports(code), names)
        except ds.DissensusError as error:
            said[name] = str(error)
        else:
            ran.append(name)
            answer = names.get("result", names.get("aggregated_labels"))
            assert answer is None or answer.index.name == "task"
    assert said.keys() == DIFFERS.keys()
    assert all(words in said[name] for name, words in DIFFERS.items())
    assert len(ran) == 8


def test_n_iter_and_random_state_are_other_names_of_our_settings() -> None:
    assert ds.DawidSkene(n_iter=7).get_params() == ds.DawidSkene(7).get_params()  # type: ignore[call-arg]
    assert ds.FMM(4, random_state=3).seed == 3  # type: ignore[call-arg]
    assert next(iter(inspect.signature(ds.DawidSkene).parameters)) == "max_iter"
    with pytest.raises(ParameterError, match="was given 'max_iter' twice"):
        ds.DawidSkene(n_iter=7, max_iter=7)  # type: ignore[call-arg]
    with pytest.raises(ParameterError, match="MajorityVote has no setting 'n_iter'"):
        ds.MajorityVote(n_iter=7)  # type: ignore[call-arg]
