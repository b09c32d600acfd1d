"""The page of numeric ratings: what each item is worth, and how each annotator rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dissensus.annotators.pseudonyms import pseudonymous
from dissensus.evaluate.compare import Gap, HeldOut
from dissensus.labels.agreement import reading
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import describe
from dissensus.models.ratings import NumericRatings
from dissensus.report.plain import heading, interval_chart, page, paragraph, table

NOISY = 2.0  # times the usual noise


def ratings_page(
    model: NumericRatings,
    annotations: Annotations,
    title: str,
    held_out: Sequence[HeldOut | Mapping[str, Any]] | None,
    command: str,
    anonymise: bool,
) -> str:
    """The whole page as text."""
    blocks = [*_overview(model, annotations), *_items(model), *_annotators(model, annotations, anonymise)]
    return page(title, [*blocks, *_hidden(held_out)], command)


def _overview(model: NumericRatings, annotations: Annotations) -> list[str]:
    found = describe(annotations)
    numbers = found.numbers or {}
    spread = ", ".join(f"{name} {numbers[key]:.4g}" for name, key in _SPREAD if key in numbers)
    tail = model.numbers_[6]
    robust = (
        f"Noise has heavy tails ({tail:.2g} degrees of freedom): single wild ratings hardly count."
        if model.robust and tail < 10
        else "There is no sign of wild ratings."
    )
    return [
        paragraph(
            f"{found.n_labels:,} ratings by {annotations.n_annotators:,} annotators on {found.n_items:,} "
            f"items: {spread}. Krippendorff's α (interval) is {found.alpha:.2f}: "
            f"{reading(found.alpha)}. "
            f"Intra-class correlation {numbers.get('icc', float('nan')):.2f}."
        ),
        paragraph(robust),
    ]


_SPREAD = (("mean", "mean"), ("standard deviation", "sd"), ("from", "min"), ("to", "max"))


def _items(model: NumericRatings) -> list[str]:
    """Items from the highest to the lowest, with 95 % intervals."""
    order = np.argsort(-model.estimates_, kind="stable")
    names = [str(model.items_[m]) for m in order]
    middle, reach = model.estimates_[order], 1.96 * model.errors_[order]
    rows = [
        [name, float(value), float(value - r), float(value + r), int(n)]
        for name, value, r, n in zip(names, middle, reach, model.n_labels_[order], strict=True)
    ]
    chart = interval_chart(names, middle, middle - reach, middle + reach, "Items and their intervals")
    said = "What the population would rate each item on average, and an interval that has it with 95 %."
    return [
        heading("Items"),
        paragraph(said),
        chart,
        table(["item", "estimate", "low", "high", "ratings"], rows),
    ]


def _annotators(model: NumericRatings, annotations: Annotations, anonymise: bool) -> list[str]:
    told = model.annotator_frame()
    names = [str(name) for name in annotations.annotators]
    order = np.argsort(-told["bias"], kind="stable")
    if anonymise and not pseudonymous(annotations):
        names = [f"annotator {place + 1}" for place in np.argsort(order)]
    remarks = remarks_on(told)
    load = annotations.annotator_load
    rows = [
        [
            names[n],
            *(float(told[key][n]) for key in ("bias", "scale", "noise")),
            int(load[n]),
            remarks[n],
        ]
        for n in order
    ]
    shown = [names[n] for n in order]
    ends = told["bias"][order], told["bias_low"][order], told["bias_high"][order]
    said = (
        "Bias: how much higher than others somebody rates. Scale: how far their ratings move when the item's "
        "value moves by one (1: as others; below 0: the other way round). Noise: the standard deviation of "
        "what is left."
    )
    return [
        heading("Annotators"),
        paragraph(said),
        interval_chart(shown, *ends, "Annotators' bias"),
        table(["annotator", "bias", "scale", "noise", "ratings", "remark"], rows),
    ]


def remarks_on(told: Mapping[str, Any]) -> list[str]:
    """A word on annotators who rate unlike the others, where the intervals leave no doubt."""
    usual = float(np.median(told["noise"]))
    found = []
    for n in range(len(told["bias"])):
        words = []
        if told["scale_high"][n] < 0:
            words.append("rates the other way round")
        elif told["scale_low"][n] < 0:
            words.append("ratings hardly depend on the item")
        if told["bias_low"][n] > usual:
            words.append("rates high")
        if told["bias_high"][n] < -usual:
            words.append("rates low")
        if told["noise_low"][n] > NOISY * usual:
            words.append("noisy")
        found.append(", ".join(words))
    return found


def _hidden(held_out: Sequence[HeldOut | Mapping[str, Any]] | None) -> list[str]:
    rows = [row.as_row() if isinstance(row, HeldOut) else dict(row) for row in held_out or ()]
    if not rows:
        return []
    cells = [
        [
            "with bias, scale and outliers" if row["settings"].get("bias", True) else "means alone, shrunken",
            float(row["score"]),
            float(row["score_items"]),
            "" if row.get("behind") is None else str(Gap(row["behind"], row["behind_error"])),
        ]
        for row in rows
    ]
    said = f"Mean log density of {rows[0]['n_hidden']:,} hidden ratings; higher is better."
    return [
        heading("Hidden ratings"),
        paragraph(said),
        table(["model", "given item and annotator", "given item", "behind the best"], cells),
    ]
