"""Page sections without a script, for answers that are not classes (numbers, comparisons, sets).

A section has a title, sentences, an optional SVG chart of intervals, and a table. Everything from the data is
escaped.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.evaluate.compare import Gap, HeldOut, score_rows
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import describe
from dissensus.models.bradley_terry import BradleyTerry
from dissensus.models.ratings import NumericRatings
from dissensus.models.sets import LabelSets
from dissensus.numerics import Array
from dissensus.report.annotators import page_order

NOISY_RATIO = 2.0  # of the median noise
MIN_RELIABILITY, MAX_LEANING = 0.3, 1.0  # reliability, and log-odds in favour of one side
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
        """Return the section as HTML; numbers are right-aligned and have four digits."""
        first = self.rows[0] if self.rows else self.columns
        sides = ["" if isinstance(cell, str) else ' class="number"' for cell in first]

        def text(cell: Any) -> str:
            return f"{cell:,}" if isinstance(cell, int) else cell if isinstance(cell, str) else f"{cell:.4g}"

        def line(cells: Sequence[Any], tag: str) -> str:
            cells_html = zip(sides, map(html.escape, map(text, cells)), strict=True)
            return f"<tr>{''.join(f'<{tag}{side}>{text}</{tag}>' for side, text in cells_html)}</tr>"

        title = html.escape(self.title)
        parts = [f"<h2>{title}</h2>"] * bool(title) + [f"<p>{html.escape(text)}</p>" for text in self.says]
        parts += [self.chart] * bool(self.chart)
        if self.columns:
            head, body = line(self.columns, "th"), [line(row, "td") for row in self.rows[:TABLE_ROWS]]
            table = "\n".join(["<table><thead>", head, "</thead><tbody>", *body, "</tbody></table>"])
            parts.append(f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">{table}</div>')
        if len(self.rows) > TABLE_ROWS:
            parts.append(f"<p>… and {len(self.rows) - TABLE_ROWS:,} more rows in the files of this run.</p>")
        return "\n".join(["<section>", *parts, "</section>"])


def interval_chart(names: Sequence[str], middle: Array, low: Array, high: Array, label: str) -> str:
    """Return an SVG with a dot and an interval for each name; evenly spaced names if there are many."""
    n = len(names)
    chosen = np.unique(np.linspace(0, n - 1, min(n, CHART_ROWS)).round().astype(np.int64))
    first, last = float(np.min(low[chosen])), float(np.max(high[chosen]))
    width = CHART_WIDTH - NAME_WIDTH - 20
    elements = []
    for row, i in enumerate(chosen, start=1):
        ends = [NAME_WIDTH + width * (end[i] - first) / (last - first or 1.0) for end in (low, middle, high)]
        y = ROW_HEIGHT * row
        name = names[i] if len(names[i]) <= NAME_LETTERS else names[i][: NAME_LETTERS - 1] + "…"
        elements.append(
            f'<text x="0" y="{y + 4}">{html.escape(name)}</text>'
            f'<line class="reach" x1="{ends[0]:.1f}" x2="{ends[2]:.1f}" y1="{y}" y2="{y}"/>'
            f'<circle cx="{ends[1]:.1f}" cy="{y}" r="4"/>'
        )
    bottom = ROW_HEIGHT * (len(chosen) + 2)
    elements.append(f'<text x="{NAME_WIDTH}" y="{bottom}">{first:.4g}</text>')
    elements.append(f'<text x="{CHART_WIDTH - 20}" y="{bottom}" text-anchor="end">{last:.4g}</text>')
    box = f'class="plot intervals" viewBox="0 0 {CHART_WIDTH} {bottom + 8}" role="img"'
    return f'<svg {box} aria-label="{html.escape(label)}">{"".join(elements)}</svg>'


def static_sections(
    model: NumericRatings | BradleyTerry | LabelSets,
    annotations: Annotations,
    held_out: Sequence[HeldOut | Mapping[str, Any]],
    anonymise: bool,
) -> list[Section]:
    """Return the sections of a model of numbers, comparisons or sets."""
    if isinstance(model, LabelSets):
        return set_sections(model, annotations)
    if isinstance(model, NumericRatings):
        sections = rating_sections(model, annotations, anonymise)
        title, score = "Held-out ratings", "log density"
    else:
        sections = ranking_sections(model, annotations, anonymise)
        title, score = "Held-out answers", "log-probability"
    hidden = score_rows(held_out)
    if not hidden:
        return sections
    rows = []
    for row in hidden:
        name = str(row["model"])
        if isinstance(model, NumericRatings):
            full = row["settings"].get("bias", True)
            name = "with bias, scale and outliers" if full else "shrunken means only"
        behind = "" if row.get("behind") is None else str(Gap(row["behind"], row["behind_error"]))
        rows.append([name, float(row["score"]), behind, float(row["score_items"])])
    text = f"Mean {score} of {hidden[0]['n_hidden']:,} {title.lower()}; higher is better."
    columns = ["model", "given item and annotator", "gap", "given the item only"]
    return [*sections, Section(title, [text], "", columns, rows)]


# ---- numbers ------------------------------------------------------------------------------------------


def rating_sections(model: NumericRatings, annotations: Annotations, anonymise: bool) -> list[Section]:
    """Return the estimate of each item, and bias, scale and noise of each annotator."""
    described, tail = describe(annotations), model.numbers_[6]
    numbers = {"icc": float("nan")} | (described.numbers or {})
    names = {"mean": "mean", "sd": "standard deviation", "min": "from", "max": "to"}
    spread = ", ".join(f"{name} {numbers[key]:.4g}" for key, name in names.items() if key in numbers)
    overview = [
        f"{described.n_labels:,} ratings by {annotations.n_annotators:,} annotators on {described.n_items:,} "
        f"items: {spread}. Krippendorff's α (interval) is {described.alpha:.2f}: "
        f"{described.reading}. Intra-class correlation {numbers['icc']:.2f}.",
        f"The noise has heavy tails ({tail:.2g} degrees of freedom): outlying ratings have little weight."
        if model.robust and tail < 10
        else "There is no sign of outliers.",
    ]
    order = np.argsort(-model.estimates_, kind="stable")
    items = [str(model.items_[m]) for m in order]
    mean, half = model.estimates_[order], 1.96 * model.errors_[order]
    ends = mean, mean - half, mean + half
    text = "Mean rating of each item in the population, with a 95 % interval."
    chart = interval_chart(items, *ends, "Items and their intervals")
    rows = list(zip(items, *(end.tolist() for end in ends), model.n_labels_[order].tolist(), strict=True))
    estimates = Section("Items", [text], chart, ["item", "estimate", "low", "high", "ratings"], rows)
    return [Section("", overview), estimates, _raters(model.annotator_frame(), annotations, anonymise)]


def _raters(parameters: Mapping[str, Any], annotations: Annotations, anonymise: bool) -> Section:
    """Return bias, scale and noise of the annotators, with remarks that their intervals support."""
    usual = float(np.median(parameters["noise"]))
    order = np.argsort(-parameters["bias"], kind="stable")
    page_names = page_order(annotations, anonymise)[1]
    names, rows = [page_names[n] for n in order], []
    for name, n in zip(names, order, strict=True):
        low_scale, high_scale = parameters["scale_low"][n], parameters["scale_high"][n]
        remarks = {
            "reversed scale": high_scale < 0,
            "ratings hardly depend on the item": low_scale < 0 <= high_scale,
            "high ratings": parameters["bias_low"][n] > usual,
            "low ratings": parameters["bias_high"][n] < -usual,
            "noisy": parameters["noise_low"][n] > NOISY_RATIO * usual,
        }
        numbers = [float(parameters[key][n]) for key in ("bias", "scale", "noise")]
        remark = ", ".join(remark for remark, holds in remarks.items() if holds)
        rows.append([name, *numbers, int(annotations.annotator_load[n]), remark])
    text = "Bias: mean difference from the others' ratings. Scale: change of the ratings per unit of the "
    text += "item's value (1: like the others; negative: reversed). "
    text += "Noise: standard deviation of the residuals."
    middle, low, high = (parameters[key][order] for key in ("bias", "bias_low", "bias_high"))
    chart = interval_chart(names, middle, low, high, "Annotators' bias")
    heads = ["annotator", "bias", "scale", "noise", "ratings", "remark"]
    return Section("Annotators", [text], chart, heads, rows)


# ---- comparisons --------------------------------------------------------------------------------------


def ranking_sections(model: BradleyTerry, annotations: Annotations, anonymise: bool) -> list[Section]:
    """Return scores, ranks and the reliability of the annotators."""
    ranking = model.ranking()
    things = [str(name) for name in ranking["item"].to_pylist()]
    ties = annotations.class_counts[[str(c) == "tie" for c in annotations.classes]].sum()
    overview = (
        f"{annotations.n_labels:,} answers by {annotations.n_annotators:,} annotators about {len(things):,} "
        f"things, {ties / annotations.n_labels:.0%} of them ties. A score is the log-odds of being preferred "
        "to a thing of score 0. Intervals and ranges of ranks have a level of 95 %."
    )
    columns = [ranking[key].tolist() for key in ("score", "low", "high", "rank_low", "rank_high", "n_labels")]
    middle, low, high = (ranking[key] for key in ("score", "low", "high"))
    chart = interval_chart(things, middle, low, high, "Scores and their intervals")
    heads = ["thing", "score", "low", "high", "best rank", "worst rank", "answers"]
    scores = Section("Scores", [], chart, heads, list(zip(things, *columns, strict=True)))
    annotators = model.annotator_frame()
    order = np.argsort(annotators["reliability"], kind="stable")
    names, rows = page_order(annotations, anonymise)[1], []
    for n in order:
        reliability, leaning, ties = (float(annotators[key][n]) for key in ("reliability", "leaning", "ties"))
        remarks = ["answers hardly follow the scores"] if reliability < MIN_RELIABILITY else []
        if abs(leaning) > MAX_LEANING:
            remarks.append(f"prefers the {'left' if leaning > 0 else 'right'} side")
        remark = "reversed answers" if reliability < 0 else ", ".join(remarks)
        rows.append([names[n], reliability, leaning, ties, int(annotations.annotator_load[n]), remark])
    text = "Reliability: how closely answers follow the scores (1: as usual, 0: not at all, below 0: "
    text += "reversed). Leaning: log-odds in favour of the left side. Ties: tendency to answer with a tie."
    heads = ["annotator", "reliability", "leaning", "ties", "answers", "remark"]
    people = Section("Annotators, the least reliable first", [text], "", heads, rows)
    return [Section("", [overview]), scores, people]


# ---- sets ---------------------------------------------------------------------------------------------


def set_sections(model: LabelSets, annotations: Annotations) -> list[Section]:
    """Return the share of the population whose answer contains each class."""
    described, labels = describe(annotations), model.predict()
    joint = float(model.pool_[0])
    overview = (
        f"{described.n_labels:,} answers on {described.n_items:,} items, each a subset of "
        f"{len(model.members_)} classes; {described.n_classes:,} different sets occur. Krippendorff's α "
        f"(MASI) is {described.alpha:.2f}: {described.reading}. Complete sets have a weight of "
        f"{joint:.2f} relative to single classes: "
        f"{'classes depend on each other' if joint > 0.5 else 'classes are nearly independent'}."
    )
    order = np.argsort(-model.means_, kind="stable")
    shares = [[model.members_[p], float(model.means_[p])] for p in order]
    columns = model.items_, labels, model.class_shares_.tolist(), model.n_labels_.tolist()
    items = [[str(name), str(label), *of, n] for name, label, of, n in zip(*columns, strict=True)]
    classes = Section("Classes", columns=["class", "share of answers with it"], rows=shares)
    heads = ["item", "label", *model.members_, "answers"]
    return [Section("", [overview]), classes, Section("Items", columns=heads, rows=items)]
