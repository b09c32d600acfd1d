"""The page of answers that are sets: how much of the population puts each class into its answer."""

from __future__ import annotations

from typing import Any

from dissensus.labels.agreement import reading
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import describe
from dissensus.models.sets import LabelSets
from dissensus.report.plain import heading, page, paragraph, table


def sets_page(model: LabelSets, annotations: Annotations, title: str, command: str) -> str:
    """The whole page as text."""
    found = describe(annotations)
    together = float(model.pool_[0])
    said = (
        f"{found.n_labels:,} answers on {found.n_items:,} items, each a set of some of {len(model.members_)} "
        f"classes; {found.n_classes:,} different sets occur. Krippendorff's α (MASI) is {found.alpha:.2f}: "
        f"{reading(found.alpha)}. Whole sets have a weight of {together:.2f} beside classes apart: "
        f"{'classes depend on each other' if together > 0.5 else 'classes are nearly independent'}."
    )
    shares = [[name, float(share)] for name, share in zip(model.members_, model.means_, strict=True)]
    blocks = [
        paragraph(said),
        heading("Classes"),
        table(["class", "share of answers that have it"], sorted(shares, key=lambda row: -row[1])),
        heading("Items"),
        table(["item", "label", *model.members_, "answers"], _items(model)),
    ]
    return page(title, blocks, command)


def _items(model: LabelSets) -> list[list[Any]]:
    labels = model.predict()
    return [
        [str(name), str(labels[m]), *map(float, model.class_shares_[m]), int(model.n_labels_[m])]
        for m, name in enumerate(model.items_)
    ]
