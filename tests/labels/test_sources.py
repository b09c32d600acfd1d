"""Every public function of labels accepts Annotations, any kind of data frame, or a path."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dissensus as ds
from dissensus.errors import DataError, DissensusWarning
from dissensus.evaluate.gold import gold_accuracy
from dissensus.evaluate.truth import choose_truth

CROWD = ds.simulate(24, 8, 3, labels_per_item=5, seed=1).annotations
FRAME = CROWD.to_frame()
MODEL = ds.FMM(2, seed=0).fit(CROWD)
POSTERIOR = ds.HPGM(n_chains=1, n_sweeps=20, seed=0).fit(CROWD)
TRUTH = ds.DawidSkene().fit(CROWD)
GOLD = dict.fromkeys(CROWD.items[:8].tolist(), "c1")
FEATURES = pd.DataFrame(np.random.default_rng(0).normal(size=(24, 2)), index=CROWD.items).sample(frac=1)
SIDES = pd.DataFrame({"annotator": CROWD.annotators, "side": [*"lr"] * 4})
KINDS = ["pandas", "polars", "arrow", "str", "path"]


def source(kind: str, folder: Path) -> Any:
    """Return the labels in the given form."""
    path = folder / "votes.csv"
    FRAME.to_csv(path, index=False)
    arrow = pa.Table.from_pandas(FRAME, preserve_index=False)
    frames = {"pandas": FRAME, "polars": pl.from_pandas(FRAME), "arrow": arrow}
    return (frames | {"str": str(path), "path": path})[kind]


def values(frame: Any) -> list[list[str]]:
    """Return the cells of a frame of any kind, numbers with nine digits."""
    columns = frame.to_dict(as_series=False) if hasattr(frame, "to_series") else None
    if columns is None:
        columns = frame.to_pydict() if hasattr(frame, "to_pydict") else frame.to_dict("list")
    text = lambda cell: f"{cell:.9g}" if isinstance(cell, float) else str(cell)  # noqa: E731
    return [[name, *map(text, cells)] for name, cells in columns.items() if name != "seconds"]


def page(labels: Any, folder: Path) -> int:
    path = folder / "page.html"
    ds.write_report(labels, MODEL, path, held_out=[], progress=False)
    return path.read_text(encoding="utf-8").count("i24")  # notes on how labels were read differ


def written(labels: Any, folder: Path) -> str:
    ds.write_labels(ds.FMM(2, seed=0).fit(labels), folder / "labels.csv")
    return (folder / "labels.csv").read_text()


QUICK: dict[str, Any] = {"n_jobs": 1, "progress": False}
CALLS: dict[str, Callable[[Any, Path], Any]] = {
    "fit": lambda labels, _: values(ds.fit(labels, fast=True, **QUICK).to_frame()),
    "fit truth": lambda labels, _: values(ds.fit(labels, estimate="truth", gold=GOLD, **QUICK).to_frame()),
    "compare": lambda labels, _: [
        (row["model"], row["given_item"], row["difference"])
        for row in ds.compare(labels, candidates=[("fmm", {}), ("empirical", {})], **QUICK).rows()
    ],
    "choose_truth": lambda labels, _: choose_truth(labels, **QUICK).reason,
    "select": lambda labels, _: values(
        ds.select(labels, ds.FMM(), {"n_item_clusters": [1, 2]}, repeats=1, references={}, **QUICK).to_frame()
    ),
    "recover": lambda labels, _: values(
        ds.recover(
            labels, ["empirical"], (1, 2), pool=2, min_reserved=2, n_draws=1, n_boot=5, **QUICK
        ).to_frame()
    ),
    "describe": lambda labels, _: ds.describe(labels).as_text().partition("note:")[0],
    "annotator_attributes": lambda labels, _: values(ds.annotator_attributes(labels, SIDES).to_frame()),
    "annotator_verdicts": lambda labels, _: values(ds.annotator_verdicts(labels, POSTERIOR).to_frame()),
    "gold_accuracy": lambda labels, _: gold_accuracy(labels, ds.DawidSkene(), gold=GOLD, folds=2),
    "judge_report": lambda labels, _: values(ds.judge_report(labels, ["a1"]).to_frame()),
    "plan_labels": lambda labels, _: values(ds.plan_labels(labels, POSTERIOR, budget=5).to_frame()),
    "label_queue": lambda labels, _: values(ds.label_queue(labels, MODEL).to_frame()),
    "write_report": page,
    "write_labels": written,
    "agreement": lambda labels, _: ds.agreement(labels, against=labels).rows(),
    "with_features": lambda labels, _: (
        ds.text.with_features(labels, FEATURES).item_table["features"].to_pylist()
    ),
    "fit features": lambda labels, _: values(ds.DirichletRegression().fit(labels, FEATURES).to_frame()),
    "fit prior": lambda labels, _: values(
        ds.PGM(2, 2).fit(labels, prior=MODEL.probas_.sample(frac=1)).to_frame()
    ),
    "GuidedClassifier": lambda labels, _: (
        ds.GuidedClassifier(ds.FMM(2, seed=0)).fit(FEATURES, labels).predict(FEATURES).tolist()
    ),
    "score": lambda labels, _: ds.score(MODEL, labels).values["score_items"].value,
    "score frame": lambda labels, _: ds.score(MODEL.to_frame(), labels, n_boot=0).values["score_items"].value,
    "model.fit": lambda labels, _: values(ds.FMM(2, seed=0).fit(labels).to_frame()),
    "model.fit gold": lambda labels, _: ds.DawidSkene().fit(labels, gold=GOLD).posterior_.tolist(),
    "model.fit_predict": lambda labels, _: len(ds.MajorityVote().fit_predict(labels)),
    "model.fit_predict_proba": lambda labels, _: len(ds.DawidSkene().fit_predict_proba(labels, gold=GOLD)),
    "model.score": lambda labels, _: MODEL.score(labels),
    "model.score_items": lambda labels, _: MODEL.score_items(labels),
    "model.predict_proba": lambda labels, _: MODEL.predict_proba(labels).tolist(),
    "model.apply": lambda labels, _: MODEL.apply(labels).label_distributions_.tolist(),
}


@pytest.mark.filterwarnings("ignore::dissensus.errors.DissensusWarning")
@pytest.mark.parametrize("name", CALLS)
def test_every_function_accepts_every_form(name: str, tmp_path: Path) -> None:
    expected = CALLS[name](CROWD, tmp_path)
    for kind in KINDS:
        result = CALLS[name](source(kind, tmp_path), tmp_path)
        assert result == (pytest.approx(expected) if isinstance(expected, float) else expected), kind


@pytest.mark.parametrize("data", [[1, 2], {"a": 1}, None, np.ones((2, 2)), pd.Series([1])])
def test_other_types_are_rejected(data: Any) -> None:
    message = r"labels must be a data frame, a path or Annotations, not .*; pass a frame"
    for function in (ds.describe, ds.FMM(2).fit, ds.compare, lambda labels: ds.label_queue(labels, MODEL)):
        with pytest.raises(DataError, match=message):
            function(data)
    with pytest.raises(DataError, match="not FMM; pass the labels first"):
        ds.label_queue(MODEL, CROWD)


def test_unknown_ids_are_warned_about() -> None:
    line = r"'no such', 'nor this' and predicts an average item"
    with pytest.warns(DissensusWarning, match=line):
        distributions = MODEL.predict_proba(["i01", "no such", "nor this"])
    np.testing.assert_array_equal(distributions[1], MODEL.prior_distribution_)
    with pytest.warns(DissensusWarning, match="'0', '1', '2' and 97 more and predicts an average item"):
        MODEL.predict_proba([str(n) for n in range(100)])
    with pytest.warns(DissensusWarning, match="not fitted on annotator 'new annotator'"):
        MODEL.predict_proba(CROWD.items, ["new annotator"] * 24)


def test_rows_of_features_and_priors_need_item_ids() -> None:
    with pytest.raises(DataError, match=r"features has one row per item, but the order of items"):
        ds.text.with_features(FRAME, FEATURES.to_numpy())
    with pytest.raises(DataError, match=r"features has one row per item, but the order of items"):
        ds.DirichletRegression().fit(FRAME, features=FEATURES.to_numpy())
    with pytest.raises(DataError, match=r"prior has one row per item, but the order of items"):
        ds.DawidSkene().fit(FRAME, prior=np.ones((24, 3)))
