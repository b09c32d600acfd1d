"""Finding, reading and splitting the data.

A data folder contains one folder per dataset (``annotations.csv`` and optionally ``items.csv`` with texts and
``gold.csv``) or, anywhere below, the authors' JSON files (``jobQ1_BOTH_train.json``, ``…_dev.json``,
``…_test.json``). A dataset without splits is split by item with a fixed seed: half train, a quarter dev, a
quarter test, as in the paper.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.errors import DataError, did_you_mean
from dissensus.importers.read import read_annotations
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array, row_shares
from experiments.runner import read_dataset

PARTS = ("train", "dev", "test")
PART_SHARES = {"train": 0.5, "dev": 0.25, "test": 0.25}
SPLIT_SEED = 0
LABELS_TO_RECOVER = 14  # labels per item: eight that may be shown and six reserved
ITEMS_TO_RECOVER = 50

_JSON_PART = re.compile(r"(?P<stem>.+)_(?P<part>train|dev|test)")
_JOB_NUMBER = re.compile(r"jobs?_?q(\d)", re.IGNORECASE)

DatasetFiles = Path | dict[str, Path]  # a folder or file, or one file per part


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labels of items, in three parts."""

    name: str
    annotations: Annotations
    parts: dict[str, Annotations]
    seeded: bool  # whether the split was drawn by us
    fingerprint: str  # of the labels and their split
    features_fingerprint: str = ""  # the same with sentence embeddings; empty without them
    as_printed: Dataset | None = None  # the same items with the embeddings of the paper's encoder

    @property
    def has_text(self) -> bool:
        """True if a learner can be trained on the items."""
        return "text" in _item_columns(self.annotations)

    @property
    def has_gold(self) -> bool:
        """True if there are gold labels."""
        return self.annotations.gold is not None and bool((self.annotations.gold >= 0).any())

    @property
    def has_many_labels(self) -> bool:
        """True if enough items have enough labels to reserve some."""
        from dissensus.labels.rows import pairs_per_item

        enough = pairs_per_item(self.annotations) >= LABELS_TO_RECOVER
        return int(enough.sum()) >= ITEMS_TO_RECOVER

    def texts(self, part: str) -> list[str]:
        """Return the texts of a part's items."""
        return [str(text) for text in self.parts[part].item_column("text")]

    def features(self, part: str) -> Any:
        """Return the sentence embeddings of a part's items, (items, features)."""
        from dissensus.labels.features import features_of

        return features_of(self.parts[part])

    @cached_property
    def gold(self) -> dict[str, Array]:
        """Empirical label distributions of each part, (items, classes)."""
        return {name: row_shares(part.counts) for name, part in self.parts.items()}


# ---- finding ------------------------------------------------------------------------------------------


def find_datasets(folder: Path) -> dict[str, DatasetFiles]:
    """Return the files of every dataset in a data folder, by name."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such data folder; give one with --data")
    tables: dict[str, DatasetFiles] = {
        path.name: path
        for path in sorted([folder, *folder.iterdir()])
        if any((path / f"annotations.csv{suffix}").is_file() for suffix in ("", ".gz"))
    }
    datasets = tables or _json_datasets(folder)
    if not datasets:
        raise DataError(
            f"{folder}: contains neither folders with annotations.csv nor the authors' JSON files; "
            "give another folder with --data"
        )
    return datasets


def _json_datasets(folder: Path) -> dict[str, DatasetFiles]:
    """Return the authors' files: three per dataset, or one with all labels."""
    split: dict[str, dict[str, Path]] = defaultdict(dict)
    single: dict[str, DatasetFiles] = {}
    for file in sorted(folder.rglob("*.json")):
        match = _JSON_PART.fullmatch(file.stem)
        if match:
            split[_dataset_name(match["stem"])][match["part"]] = file
        else:
            # Sorted, jobQ1_BOTH precedes jobQ1_BOTH_annotations: the file of single labels wins.
            single[_dataset_name(file.stem.removesuffix("_annotations"))] = file
    return single | {name: files for name, files in split.items() if set(files) == set(PARTS)}


def _dataset_name(stem: str) -> str:
    match = _JOB_NUMBER.search(stem)
    return f"jq{match[1]}" if match else stem


def check_names(names: Sequence[str], datasets: dict[str, DatasetFiles], folder: Path) -> None:
    """Reject a dataset that does not exist, and suggest the nearest name."""
    for name in names:
        if name not in datasets:
            hint = did_you_mean(name, datasets).rstrip() or f"it has {', '.join(datasets)}"
            raise DataError(f"{folder}: has no dataset {name!r}; {hint}")


# ---- reading ------------------------------------------------------------------------------------------


def load(
    name: str,
    files: DatasetFiles,
    *,
    max_items: int | None = None,
    embedded: bool = False,
    embedding: str | None = None,
) -> Dataset:
    """Read a dataset and its parts, with sentence embeddings if ``embedded`` and there are texts.

    A seeded sample of ``max_items`` items is taken from larger datasets; ``embedding`` is the encoder.
    """
    annotations = _read(files)
    if annotations.anonymous:
        raise DataError(f"{files}: has no annotators; the evaluation needs to know who gave each label")
    labelled = np.flatnonzero(annotations.counts.sum(axis=1) > 0)
    if max_items is not None and len(labelled) > max_items:
        drawn = np.random.default_rng(SPLIT_SEED).permutation(len(labelled))[:max_items]
        labelled = np.sort(labelled[drawn])
    annotations = annotations.take_items(labelled)
    fingerprint, features_fingerprint = annotations.fingerprint(), ""
    if embedded and "text" in _item_columns(annotations):
        from dissensus.labels.features import embed_items

        annotations = embed_items(annotations, model=embedding)
        features_fingerprint = annotations.fingerprint()
    parts = annotations.split_items() if "split" in _item_columns(annotations) else {}
    seeded = not set(PARTS) <= set(parts)
    if seeded:
        parts = annotations.split_items(PART_SHARES, seed=SPLIT_SEED)
    parts = {part: parts[part] for part in PARTS}
    return Dataset(name, annotations, parts, seeded, fingerprint, features_fingerprint)


def _item_columns(annotations: Annotations) -> list[str]:
    """Return the names of the columns of the item table."""
    return [] if annotations.item_table is None else list(annotations.item_table.column_names)


def _read(files: DatasetFiles) -> Annotations:
    if isinstance(files, dict):
        return _joined({part: read_annotations(file) for part, file in files.items()})
    return read_dataset(files) if files.is_dir() else read_annotations(files)


def _joined(parts: dict[str, Annotations]) -> Annotations:
    """Join the authors' three files into one table, with the part as a column of the items."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = defaultdict(list)
    items: dict[str, list[Any]] = defaultdict(list)
    for name, part in parts.items():
        columns["item"] += part.items[part.item].tolist()
        columns["annotator"] += part.annotators[part.annotator].tolist()
        columns["label"] += part.classes[part.label].tolist()
        items["item"] += part.items.tolist()
        items["split"] += [name] * part.n_items
        if "text" in _item_columns(part):
            items["text"] += part.item_column("text").tolist()
    return Annotations.from_arrays(*columns.values(), items=pa.table(dict(items)))
