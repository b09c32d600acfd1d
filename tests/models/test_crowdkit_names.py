"""Compatibility with crowd-kit: names, layouts and its documented examples."""

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
from numpy.testing import assert_allclose, assert_array_equal

import dissensus as ds
from dissensus.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def birds() -> tuple[pd.DataFrame, pd.Series]:
    return ds.datasets.load_dataset("birds")


def test_majority_vote_equals_crowd_kit(birds: tuple[pd.DataFrame, pd.Series]) -> None:
    frame, _ = birds
    theirs = crowdkit.MajorityVote().fit(frame)
    ours = ds.MajorityVote().fit(frame)
    untied = ours.probas_.max(axis=1) == 1
    assert untied.sum() > 80
    pd.testing.assert_series_equal(ours.labels_[untied], theirs.labels_[untied], check_names=False)
    assert ours.labels_.index.name == theirs.labels_.index.name == "task"
    assert ours.probas_.columns.name == "label"


def test_skills_by_hand() -> None:
    frame = pd.DataFrame({"task": [1, 1, 1, 2, 2, 2], "worker": list("abcabc"), "label": list("xxyyyy")})
    model = ds.DawidSkene().fit(frame)
    assert (model.skills_.name, model.skills_.index.name) == ("skill", "worker")
    by_hand = [model.psi_ @ [model.errors_.loc[(name, c), c] for c in "xy"] for name in "abc"]
    assert_allclose(model.skills_, by_hand)


def test_gold_is_the_second_argument(birds: tuple[pd.DataFrame, pd.Series]) -> None:
    frame, gold = birds
    ours = ds.DawidSkene().fit_predict(frame, gold[:60])
    assert (ours[gold.index[:60]] == gold[:60]).all()
    assert (ds.DawidSkene().fit_predict(frame)[gold.index[:60]] != gold[:60]).any()
    shares = ds.DawidSkene().fit_predict_proba(frame, gold[:60])
    assert (shares.loc[gold.index[:60]].max(axis=1) == 1).all()
    with pytest.raises(DataError, match="HPGM does not estimate a true class"):
        ds.HPGM().fit_predict(frame, gold)


def test_unused_gold_classes_are_reported() -> None:
    frame = pd.DataFrame(
        {"task": [1, 1, 2, 2], "worker": list("abab"), "label": ["cat", "cat", "dog", "cat"]}
    )
    with pytest.raises(
        DataError, match=r"gold has 'kat' \(1 item\), a class that no annotator used; if it means"
    ):
        ds.DawidSkene().fit_predict(frame, {1: "kat"})
    with pytest.warns(
        UserWarning, match=r"no annotator used: 'bird' \(1 item\); annotators used 'cat', 'dog'"
    ):
        ds.DawidSkene().fit_predict(frame, {1: "bird"})


def test_alpha_equals_crowd_kit(birds: tuple[pd.DataFrame, pd.Series]) -> None:
    frame, _ = birds
    alpha = ds.agreement(frame, "alpha")["alpha"].value
    assert alpha == pytest.approx(alpha_krippendorff(frame), abs=1e-12)


def test_comparisons_are_read_like_crowd_kit() -> None:
    pairs, _ = ds.datasets.load_dataset("posters")
    theirs = crowdkit.BradleyTerry(n_iter=100).fit_predict(pairs)
    ours = ds.BradleyTerry().fit_predict(pairs)
    assert ours.is_monotonic_decreasing
    assert set(ours.index) == set(theirs.index)
    assert ours.corr(np.log(theirs[ours.index])) > 0.97


def test_results_keep_column_names_after_saving(tmp_path: Any) -> None:
    frame = pd.DataFrame({"task": [7, 7, 8], "worker": ["a", "b", "a"], "label": [1, 1, 0]})
    model = ds.DawidSkene().fit(frame)
    model.save(tmp_path / "model.safetensors")
    again = ds.load(tmp_path / "model.safetensors")
    for name in ("labels_", "probas_", "skills_", "errors_"):
        ours, theirs = getattr(model, name), getattr(again, name)
        assert type(ours) is type(theirs)
        assert ours.index.names == theirs.index.names
        assert_array_equal(ours, theirs)
    assert list(ds.EmpiricalDistribution().fit(pl.from_pandas(frame)).probas_.columns) == ["task", "0", "1"]


# ---- crowd-kit's own examples, with the imports changed ----------------------------------------------------

OUR_NAMES = {
    "OneCoinDawidSkene": "DawidSkene",
    "NoisyBradleyTerry": "BradleyTerry",
    "GoldMajorityVote": "DawidSkene",
    "BinaryRelevance": "LabelSets",
}
# examples that do not run, and the error
DIFFERS = {
    "DawidSkene 3": "has no setting 'initial_error_strategy'",
    "MajorityVote 2": "annotator weights cannot be passed",
    "NoisyBradleyTerry 1": "are of type list",
    "BinaryRelevance 1": "Got DawidSkene",
}
NOT_HERE = {  # other types of labels, and methods without a counterpart
    *("MACE", "Wawa", "ZeroBasedSkill", "KOS", "MMSR", "GLAD"),
    *("RASA", "HRRASA", "ROVER", "TextRASA", "TextHRRASA"),
    *("SegmentationEM", "SegmentationRASA", "SegmentationMajorityVote"),
}


def their_examples() -> dict[str, str]:
    """Return the code of crowd-kit's README and docstrings, by name and number."""
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
    """Change the imports, and the dataset that would be downloaded."""

    def ours(found: re.Match[str]) -> str:
        names = [f"{OUR_NAMES.get(name, name)} as {name}" for name in found[1].split(", ")]
        return "from dissensus import " + ", ".join(names)

    code = re.sub(r"^from crowdkit\.aggregation import (.+)$", ours, code, flags=re.M)
    return code.replace("from crowdkit.datasets", "from dissensus.datasets").replace("relevance-2", "birds")


@pytest.mark.slow
def test_examples_of_crowd_kit_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert len(ran) == 7
