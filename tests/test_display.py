"""Results show themselves in a notebook, and what they show is text."""

from __future__ import annotations

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
SIDES = {"left": [HOSTILE, "b"], "right": ["b", HOSTILE]}
PAIRS = pd.DataFrame(SIDES | {"annotator": ["x", "y"], "label": ["left", "left"]})
NUMBERS = pd.DataFrame({"item": [HOSTILE, HOSTILE, "b"], "annotator": [*"xyx"], "label": [1.5, 2.25, 7.0]})
SHOWN = {
    "annotations": CROWD,
    "model": POSTERIOR,
    "ranking": ds.BradleyTerry().fit(
        pd.DataFrame(
            {"left": [HOSTILE, "b"], "right": ["b", HOSTILE], "annotator": ["x", "y"], "label": ["left"] * 2}
        )
    ),
    "numbers": ds.NumericRatings().fit(
        pd.DataFrame(
            {"item": [HOSTILE, HOSTILE, "b"], "annotator": ["x", "y", "x"], "label": [1.5, 2.25, 7.0]}
        )
    ),
    "description": ds.describe(CROWD),
    "refinement": ds.fit(CROWD, "fmm", {"n_item_clusters": 2}, test_size=0, **QUICK),
    "verdicts": ds.annotator_verdicts(CROWD, POSTERIOR),
    "plan": ds.plan_labels(CROWD, POSTERIOR, budget=5),
    "queue": ds.label_queue(CROWD, POSTERIOR),
    "judges": ds.judge_report(CROWD, ["a2"]),
    "selection": ds.select(CROWD, ds.FMM(), {"n_item_clusters": [1, 2]}, repeats=1, references={}, **QUICK),
    "recovery": ds.recover(CROWD, ["empirical"], (1,), pool=2, min_reserved=2, n_draws=1, n_boot=5, **QUICK),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_result_shows_its_first_rows_and_no_markup_of_others(name: str) -> None:
    result: Any = SHOWN[name]
    page, frame = result._repr_html_(), result.to_frame()
    assert "<script" not in page
    rows = re.findall(r"<tr>(.*?)</tr>", page.partition("<tbody>")[2])
    assert min(len(frame), 10) <= len(rows) <= 30
    assert re.findall(r"<th>(.*?)</th>", page)[0] == str(frame.columns[0])
    assert (len(frame) > 10 and name != "description") == (rows[-1].count("<td>…</td>") == len(frame.columns))


def test_ids_are_shown_as_they_are() -> None:
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in CROWD._repr_html_()


def test_a_model_before_its_fit_says_so() -> None:
    assert ds.FMM(3)._repr_html_() == (
        "<table><caption>FMM(n_item_clusters=3), not fitted</caption><tbody></tbody></table>"
    )


def test_labels_survive_the_way_through_a_frame() -> None:
    assert ds.read_annotations(CROWD.to_frame()).fingerprint() == CROWD.fingerprint()
    counts = ds.Annotations.from_counts([[2, 1], [0, 3]])
    assert list(counts.to_frame().columns) == ["item", "label"]
