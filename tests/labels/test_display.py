"""HTML tables of results in notebooks, with escaped text."""

import re
from typing import Any

import pandas as pd
import pytest

import dissensus as ds

HOSTILE = "<script>alert('x')</script>"
PLANTED = ds.simulate(24, 8, 3, labels_per_item=5, seed=1).annotations
FRAME = PLANTED.to_frame().replace({"i01": HOSTILE, "a1": f"a1{HOSTILE}", "c1": f"c1{HOSTILE}"})
CROWD = ds.read_annotations(FRAME)
POSTERIOR = ds.HPGM(n_chains=1, n_sweeps=20).fit(CROWD)
QUICK: dict[str, Any] = {"n_jobs": 1, "progress": False}
PAIRS = pd.DataFrame({"left": [HOSTILE, "b"], "right": ["b", HOSTILE], "annotator": [*"xy"], "label": "left"})
NUMBERS = pd.DataFrame({"item": [HOSTILE, HOSTILE, "b"], "annotator": [*"xyx"], "label": [1.5, 2.25, 7.0]})
RESULTS = {
    "annotations": CROWD,
    "model": POSTERIOR,
    "ranking": ds.BradleyTerry().fit(PAIRS),
    "numbers": ds.NumericRatings().fit(NUMBERS),
    "description": ds.describe(CROWD),
    "refinement": ds.fit(CROWD, "fmm", {"n_item_clusters": 2}, **QUICK),
    "verdicts": ds.annotator_verdicts(CROWD, POSTERIOR),
    "attributes": ds.annotator_attributes(CROWD, {"annotator": CROWD.annotators, "side": [*"lr"] * 4}),
    "plan": ds.plan_labels(CROWD, POSTERIOR, budget=5),
    "queue": ds.label_queue(CROWD, POSTERIOR),
    "judges": ds.judge_report(CROWD, ["a2"]),
    "selection": ds.select(CROWD, ds.FMM(), {"n_item_clusters": [1, 2]}, repeats=1, references={}, **QUICK),
    "recovery": ds.recover(CROWD, ["empirical"], (1,), pool=2, min_reserved=2, n_draws=1, n_boot=5, **QUICK),
}


@pytest.mark.parametrize("name", RESULTS)
def test_html_has_the_first_rows_escaped(name: str) -> None:
    result: Any = RESULTS[name]
    page, frame = result._repr_html_(), result.to_frame()
    assert "<script" not in page
    rows = re.findall(r"<tr>(.*?)</tr>", page.partition("<tbody>")[2])
    assert min(len(frame), 10) <= len(rows) <= 30
    assert re.findall(r"<th>(.*?)</th>", page)[0] == str(frame.columns[0])
    assert (len(frame) > 10 and name != "description") == (rows[-1].count("<td>…</td>") == len(frame.columns))


def test_ids_are_escaped() -> None:
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in CROWD._repr_html_()


def test_unfitted_model() -> None:
    assert ds.FMM(3)._repr_html_() == (
        "<table><caption>FMM(n_item_clusters=3), not fitted</caption><tbody></tbody></table>"
    )


def test_labels_round_trip_through_a_frame() -> None:
    assert ds.read_annotations(CROWD.to_frame()).fingerprint() == CROWD.fingerprint()
    counts = ds.Annotations.from_counts([[2, 1], [0, 3]])
    assert list(counts.to_frame().columns) == ["item", "label"]
