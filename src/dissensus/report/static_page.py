"""Answers that are no classes (numbers, comparisons, sets): sections of the page that need no script.

A section has a title, sentences, perhaps a chart of intervals drawn as SVG, and a table. Everything from the
data is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.annotators.pseudonyms import pseudonymous
from dissensus.evaluate.compare import Gap, HeldOut, score_rows
from dissensus.labels.agreement import reading
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import describe
from dissensus.models.bradley_terry import BradleyTerry
from dissensus.models.ratings import NumericRatings
from dissensus.models.sets import LabelSets
from dissensus.numerics import Array

NOISY = 2.0  # times the usual noise
UNRELIABLE, LEANS = 0.3, 1.0  # reliability, and log-odds in favour of one side
CHART_ROWS, TABLE_ROWS = 40, 1_000
CHART_WIDTH, ROW_HEIGHT, NAME_WIDTH, NAME_LETTERS = 800, 18, 220, 30  # units of the SVG; letters


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    title: str
    says: Sequence[str] = ()
    chart: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()

    def html(self) -> str:
        """Write the section; numbers stand to the right and have four digits."""
        first = self.rows[0] if self.rows else self.columns
        sides = ["" if isinstance(cell, str) else ' class="number"' for cell in first]

        def line(cells: Sequence[Any], tag: str) -> str:
            texts = [
                f"{cell:,}" if isinstance(cell, int) else cell if isinstance(cell, str) else f"{cell:.4g}"
                for cell in cells
            ]
            written = zip(sides, map(html.escape, texts), strict=True)
            return f"<tr>{''.join(f'<{tag}{side}>{text}</{tag}>' for side, text in written)}</tr>"

        title = html.escape(self.title)
        parts = [f"<h2>{title}</h2>"] * bool(title) + [f"<p>{html.escape(text)}</p>" for text in self.says]
        parts += [self.chart] * bool(self.chart)
        if self.columns:
            head, body = line(self.columns, "th"), [line(row, "td") for row in self.rows[:TABLE_ROWS]]
            table = "\n".join(["<table><thead>", head, "</thead><tbody>", *body, "</tbody></table>"])
            parts.append(f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">{table}</div>')
        if len(self.rows) > TABLE_ROWS:
            parts.append(f"<p>… and {len(self.rows) - TABLE_ROWS:,} more in the files beside this page.</p>")
        return "\n".join(["<section>", *parts, "</section>"])


def interval_chart(names: Sequence[str], middle: Array, low: Array, high: Array, label: str) -> str:
    """Draw a dot and a line for each name; of many, some that are evenly spaced in the order given."""
    n = len(names)
    chosen = np.unique(np.linspace(0, n - 1, min(n, CHART_ROWS)).round().astype(np.int64))
    first, last = float(np.min(low[chosen])), float(np.max(high[chosen]))
    width = CHART_WIDTH - NAME_WIDTH - 20
    drawn = []
    for row, i in enumerate(chosen, start=1):
        ends = [NAME_WIDTH + width * (end[i] - first) / (last - first or 1.0) for end in (low, middle, high)]
        y = ROW_HEIGHT * row
        name = names[i] if len(names[i]) <= NAME_LETTERS else names[i][: NAME_LETTERS - 1] + "…"
        drawn.append(
            f'<text x="0" y="{y + 4}">{html.escape(name)}</text>'
            f'<line class="reach" x1="{ends[0]:.1f}" x2="{ends[2]:.1f}" y1="{y}" y2="{y}"/>'
            f'<circle cx="{ends[1]:.1f}" cy="{y}" r="4"/>'
        )
    bottom = ROW_HEIGHT * (len(chosen) + 2)
    drawn.append(f'<text x="{NAME_WIDTH}" y="{bottom}">{first:.4g}</text>')
    drawn.append(f'<text x="{CHART_WIDTH - 20}" y="{bottom}" text-anchor="end">{last:.4g}</text>')
    box = f'class="plot intervals" viewBox="0 0 {CHART_WIDTH} {bottom + 8}" role="img"'
    return f'<svg {box} aria-label="{html.escape(label)}">{"".join(drawn)}</svg>'


def static_sections(
    model: NumericRatings | BradleyTerry | LabelSets,
    annotations: Annotations,
    held_out: Sequence[HeldOut | Mapping[str, Any]] | None,
    anonymise: bool,
) -> list[Section]:
    """Say what a model of numbers, comparisons or sets knows."""
    if isinstance(model, LabelSets):
        return set_sections(model, annotations)
    if isinstance(model, NumericRatings):
        sections = rating_sections(model, annotations, anonymise)
        title, score = "Hidden ratings", "log density"
    else:
        sections = ranking_sections(model, annotations, anonymise)
        title, score = "Hidden answers", "log-probability"
    hidden = score_rows(held_out or ())
    if not hidden:
        return sections
    rows = []
    for row in hidden:
        name = str(row["model"])
        if isinstance(model, NumericRatings):
            whole = row["settings"].get("bias", True)
            name = "with bias, scale and outliers" if whole else "means alone, shrunken"
        behind = "" if row.get("behind") is None else str(Gap(row["behind"], row["behind_error"]))
        rows.append([name, float(row["score"]), float(row["score_items"]), behind])
    said = f"Mean {score} of {hidden[0]['n_hidden']:,} {title.lower()}; higher is better."
    columns = ["model", "given item and annotator", "given item", "behind the best"]
    return [*sections, Section(title, [said], "", columns, rows)]


def annotator_names(annotations: Annotations, order: Any, anonymise: bool) -> list[str]:
    """Give the annotators' ids in the page's order, or numbers in their place."""
    if anonymise and not pseudonymous(annotations):
        return [f"annotator {place + 1}" for place in range(len(order))]
    return [str(annotations.annotators[n]) for n in order]


# ---- numbers ------------------------------------------------------------------------------------------


def rating_sections(model: NumericRatings, annotations: Annotations, anonymise: bool) -> list[Section]:
    """Say what each item is worth, and how each annotator rates."""
    found, tail = describe(annotations), model.numbers_[6]
    numbers = {"icc": float("nan")} | (found.numbers or {})
    names = {"mean": "mean", "sd": "standard deviation", "min": "from", "max": "to"}
    spread = ", ".join(f"{name} {numbers[key]:.4g}" for key, name in names.items() if key in numbers)
    overview = [
        f"{found.n_labels:,} ratings by {annotations.n_annotators:,} annotators on {found.n_items:,} "
        f"items: {spread}. Krippendorff's α (interval) is {found.alpha:.2f}: "
        f"{reading(found.alpha)}. Intra-class correlation {numbers['icc']:.2f}.",
        f"Noise has heavy tails ({tail:.2g} degrees of freedom): single wild ratings hardly count."
        if model.robust and tail < 10
        else "There is no sign of wild ratings.",
    ]
    order = np.argsort(-model.estimates_, kind="stable")
    items = [str(model.items_[m]) for m in order]
    middle, reach = model.estimates_[order], 1.96 * model.errors_[order]
    ends = middle, middle - reach, middle + reach
    said = "What the population would rate each item on average, and an interval that has it with 95 %."
    chart = interval_chart(items, *ends, "Items and their intervals")
    rows = list(zip(items, *(end.tolist() for end in ends), model.n_labels_[order].tolist(), strict=True))
    worth = Section("Items", [said], chart, ["item", "estimate", "low", "high", "ratings"], rows)
    return [Section("", overview), worth, _raters(model.annotator_frame(), annotations, anonymise)]


def _raters(found: Mapping[str, Any], annotations: Annotations, anonymise: bool) -> Section:
    """Bias, scale and noise, and a remark where the intervals leave no doubt."""
    usual = float(np.median(found["noise"]))
    order = np.argsort(-found["bias"], kind="stable")
    names = annotator_names(annotations, order, anonymise)
    rows = []
    for name, n in zip(names, order, strict=True):
        remarks = {
            "rates the other way round": found["scale_high"][n] < 0,
            "ratings hardly depend on the item": found["scale_low"][n] < 0 <= found["scale_high"][n],
            "rates high": found["bias_low"][n] > usual,
            "rates low": found["bias_high"][n] < -usual,
            "noisy": found["noise_low"][n] > NOISY * usual,
        }
        numbers = [float(found[key][n]) for key in ("bias", "scale", "noise")]
        remark = ", ".join(remark for remark, holds in remarks.items() if holds)
        rows.append([name, *numbers, int(annotations.annotator_load[n]), remark])
    said = (
        "Bias: how much higher than others somebody rates. Scale: how far their ratings move when the item's "
        "value moves by one (1: as others; below 0: the other way round). Noise: the standard deviation of "
        "what is left."
    )
    middle, low, high = (found[key][order] for key in ("bias", "bias_low", "bias_high"))
    chart = interval_chart(names, middle, low, high, "Annotators' bias")
    heads = ["annotator", "bias", "scale", "noise", "ratings", "remark"]
    return Section("Annotators", [said], chart, heads, rows)


# ---- comparisons --------------------------------------------------------------------------------------


def ranking_sections(model: BradleyTerry, annotations: Annotations, anonymise: bool) -> list[Section]:
    """Give scores and ranks, and say how reliable annotators are."""
    found = model.ranking()
    things = [str(name) for name in found["item"].to_pylist()]
    ties = annotations.class_counts[[str(c) == "tie" for c in annotations.classes]].sum()
    overview = (
        f"{annotations.n_labels:,} answers by {annotations.n_annotators:,} annotators about {len(things):,} "
        f"things, {ties / annotations.n_labels:.0%} of them ties. A score is the log-odds of being preferred "
        "to a thing of score 0; intervals hold it with 95 %, and so do the ranks beside it."
    )
    columns = [found[key].tolist() for key in ("score", "low", "high", "rank_low", "rank_high", "n_labels")]
    chart = interval_chart(things, found["score"], found["low"], found["high"], "Scores and their intervals")
    heads = ["thing", "score", "low", "high", "best rank", "worst rank", "answers"]
    scores = Section("Scores", [], chart, heads, list(zip(things, *columns, strict=True)))
    told = model.annotator_frame()
    order = np.argsort(told["reliability"], kind="stable")
    rows = []
    for name, n in zip(annotator_names(annotations, order, anonymise), order, strict=True):
        reliability, leaning, ties = (float(told[key][n]) for key in ("reliability", "leaning", "ties"))
        remarks = ["answers hardly follow the scores"] if reliability < UNRELIABLE else []
        if abs(leaning) > LEANS:
            remarks.append(f"leans to the {'left' if leaning > 0 else 'right'}")
        remark = "answers against the others" if reliability < 0 else ", ".join(remarks)
        rows.append([name, reliability, leaning, ties, int(annotations.annotator_load[n]), remark])
    said = (
        "Reliability: how closely answers follow the scores (1: as usual, 0: not at all, below 0: the other "
        "way round). Leaning: log-odds in favour of the left side. Ties: readiness to call one."
    )
    heads = ["annotator", "reliability", "leaning", "ties", "answers", "remark"]
    people = Section("Annotators, the least reliable first", [said], "", heads, rows)
    return [Section("", [overview]), scores, people]


# ---- sets ---------------------------------------------------------------------------------------------


def set_sections(model: LabelSets, annotations: Annotations) -> list[Section]:
    """Say how much of the population puts each class into its answer."""
    found, labels = describe(annotations), model.predict()
    together = float(model.pool_[0])
    overview = (
        f"{found.n_labels:,} answers on {found.n_items:,} items, each a set of some of {len(model.members_)} "
        f"classes; {found.n_classes:,} different sets occur. Krippendorff's α (MASI) is {found.alpha:.2f}: "
        f"{reading(found.alpha)}. Whole sets have a weight of {together:.2f} beside classes apart: "
        f"{'classes depend on each other' if together > 0.5 else 'classes are nearly independent'}."
    )
    shares = [[name, float(share)] for name, share in zip(model.members_, model.means_, strict=True)]
    items = [
        [str(name), str(labels[m]), *map(float, model.class_shares_[m]), int(model.n_labels_[m])]
        for m, name in enumerate(model.items_)
    ]
    heads = ["class", "share of answers that have it"]
    return [
        Section("", [overview]),
        Section("Classes", columns=heads, rows=sorted(shares, key=lambda row: -float(row[1]))),
        Section("Items", columns=["item", "label", *model.members_, "answers"], rows=items),
    ]
