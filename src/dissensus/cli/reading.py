"""How a file of labels is read: the same options for every command that takes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dissensus.cli.terminal import note

if TYPE_CHECKING:
    from dissensus.data.annotations import Annotations

PANEL = "Reading the file"

LabelFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="Labels: CSV, TSV, JSONL or Parquet (also gzipped), a tool's export, or a store."
    ),
]


def _option(flag: str, metavar: str, help: str) -> typer.models.OptionInfo:
    info: typer.models.OptionInfo = typer.Option(flag, metavar=metavar, help=help, rich_help_panel=PANEL)
    return info


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Where the labels stand in a file, and what stands beside them."""

    item_column: Annotated[
        str | None, _option("--item-column", "NAME", "Column of item ids (found by itself: item, task, …).")
    ] = None
    annotator_column: Annotated[
        str | None, _option("--annotator-column", "NAME", "Column of annotator ids (annotator, worker, …).")
    ] = None
    label_column: Annotated[
        str | None, _option("--label-column", "NAME", "Column of labels (label, answer, …).")
    ] = None
    items: Annotated[
        Path | None, _option("--items", "FILE", "Table of items: id and columns such as text or split.")
    ] = None
    annotators: Annotated[
        Path | None, _option("--annotators", "FILE", "Table of annotators: id and what is known of them.")
    ] = None
    gold: Annotated[Path | None, _option("--gold", "FILE", "Table of reference labels: item, label.")] = None
    labels: Annotated[
        list[str],
        _option("--labels", "A,B,…", "The label set in its order (or repeat the option, a label each)."),
    ] = field(default_factory=list)
    duplicates: Annotated[
        Literal["keep", "first", "last", "error"],
        _option("--duplicates", "keep|first|last|error", "When an annotator labels an item more than once."),
    ] = "keep"
    format: Annotated[
        str | None, _option("--format", "NAME", "The format, where its content does not tell.")
    ] = None
    question: Annotated[
        str | None, _option("--question", "NAME", "Which question of an export that has several.")
    ] = None
    several: Annotated[
        Literal["keep", "error"],
        _option("--several", "keep|error", "Of an export: several answers of one annotator to one item."),
    ] = "keep"
    keep_rejected: Annotated[
        bool, typer.Option("--keep-rejected", help="Count rejected assignments too.", rich_help_panel=PANEL)
    ] = False
    layout: Annotated[
        Literal["long", "wide", "counts"] | None,
        _option("--layout", "long|wide|counts", "One row a label, a column an annotator, or class counts."),
    ] = None

    def read(self, file: Path, *, aloud: bool = True) -> Annotations:
        """The labels of a file; what the reader found worth a word is said, if ``aloud``."""
        from dissensus.io import read_annotations

        annotations = read_annotations(
            file,
            item=self.item_column,
            annotator=self.annotator_column,
            label=self.label_column,
            items=self.items,
            annotators=self.annotators,
            gold=self.gold,
            classes=self.class_order,
            duplicates=self.duplicates,
            layout=self.layout,
            format=self.format,
            question=self.question,
            several=self.several,
            keep_rejected=self.keep_rejected,
        )
        for remark in annotations.notes if aloud else ():
            note(remark)
        return annotations

    @property
    def class_order(self) -> list[str] | None:
        """The declared classes: one list with commas, or one option each."""
        return class_order(self.labels)


def class_order(labels: Sequence[str]) -> list[str] | None:
    """The label set out of ``--labels``."""
    if len(labels) == 1:
        return [name.strip() for name in labels[0].split(",")]
    return list(labels) or None
