"""Judges beside humans, where the annotator table says who is which."""

from __future__ import annotations

from typing import Any

from dissensus.annotators import sentences
from dissensus.annotators.judge_detection import KIND, has_judges
from dissensus.judges.report import JudgeReport, judge_report
from dissensus.labels.annotations import Annotations

WRONG_SHOWN = 12  # items


def judge_content(annotations: Annotations, anonymise: bool) -> dict[str, Any] | None:
    """The test, the panel and what judges are most surely wrong about; None where no judge is named."""
    if annotations.anonymous or not has_judges(annotations):
        return None
    found = judge_report(annotations, KIND, n_items=WRONG_SHOWN)
    if not found.n_humans:
        return None
    names = [f"judge {i}" for i in range(1, len(found.judges) + 1)] if anonymise else found.judges
    return {
        "names": names,
        "says": sentences.judges_words(names, found.rows(), found.epsilon),
        "terms": sentences.test_words(found.epsilon, found.answers.values is None),
        "rows": [{name: row[name] for name in SHOWN} for row in found.rows()],
        "panel": None if found.panel is None else _panel(found, names),
        "wrong": _wrong(found, names),
    }


SHOWN = (
    "n_labels", "winning_rate", "advantage", "passed", "n_humans", "n_humans_left_out", "labels_needed",
    "pooled_difference", "pooled_low", "pooled_high", "pooled_passed", "disagreement", "human_disagreement",
)  # fmt: skip


def _panel(found: JudgeReport, names: list[str]) -> dict[str, Any]:
    panel = found.panel
    assert panel is not None
    return {
        "says": panel.in_words(names),
        "correlation": panel.correlation.round(3),
    }


def _wrong(found: JudgeReport, names: list[str]) -> list[dict[str, Any]]:
    """Items and answers that fewest humans would give, each with the judges who give it."""
    by_name = dict(zip(found.judges, names, strict=True))
    place = {item: code for code, item in enumerate(found.answers.annotations.items.tolist())}
    entries: dict[tuple[Any, str], dict[str, Any]] = {}
    for row in sorted(found.wrong_items(), key=lambda row: row["share_as_judge"]):
        same = ("answer", "human_answer", "share_as_judge", "n_human_labels")
        fresh = {"judges": [], "item": place[row["item"]], **{name: row[name] for name in same}}
        entry = entries.setdefault((row["item"], row["answer"]), fresh)
        entry["judges"].append(by_name[row["judge"]])
    return list(entries.values())[:WRONG_SHOWN]
