"""Where the data are, and how they are split.

A data folder holds one folder a dataset (``annotations.csv`` and, where there are any, ``items.csv`` with the
texts and ``gold.csv``), or the authors' own JSON files (``jobQ1_BOTH_train.json``, ``…_dev.json``,
``…_test.json``, anywhere below). A dataset without a split of its own is split by item with a seed, half to
train, a quarter to dev and to test, as the paper's are.
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

PARTS = ("train", "dev", "test")
SHARES = {"train": 0.5, "dev": 0.25, "test": 0.25}
SPLIT_SEED = 0
LABELS_TO_RECOVER = 14  # of an item: eight that may be shown, six that are kept back
ITEMS_TO_RECOVER = 50

_JSON_PART = re.compile(r"(?P<stem>.+)_(?P<part>train|dev|test)")
_JOB = re.compile(r"jobs?_?q(\d)", re.IGNORECASE)

DatasetFiles = Path | dict[str, Path]  # a dataset's folder or file, or a file for each part


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labels of items, in three parts."""

    name: str
    annotations: Annotations
    parts: dict[str, Annotations]
    seeded: bool  # whether the split is ours
    fingerprint: str  # of the labels and of their split
    features_fingerprint: str = ""  # of the same with the sentence embeddings; empty where there are none
    as_printed: Dataset | None = None  # the same items with the embeddings of the paper's encoder

    @property
    def has_text(self) -> bool:
        """Whether a learner can be trained on it."""
        return "text" in _columns(self.annotations)

    @property
    def has_gold(self) -> bool:
        """Whether reference labels are known."""
        return self.annotations.gold is not None and bool((self.annotations.gold >= 0).any())

    @property
    def has_many_labels(self) -> bool:
        """Whether enough items have enough labels to keep some back."""
        from dissensus.labels.rows import pairs_per_item

        enough = pairs_per_item(self.annotations) >= LABELS_TO_RECOVER
        return int(enough.sum()) >= ITEMS_TO_RECOVER

    def texts(self, part: str) -> list[str]:
        """The text of each item of a part."""
        return [str(text) for text in self.parts[part].item_column("text")]

    def features(self, part: str) -> Any:
        """(items, features): the sentence embeddings of a part's items."""
        from dissensus.labels.features import features_of

        return features_of(self.parts[part])

    @cached_property
    def gold(self) -> dict[str, Array]:
        """Part → (items, classes): the shares of the labels that its items got."""
        return {name: shares(part) for name, part in self.parts.items()}


def shares(part: Annotations) -> Array:
    """(items, classes): the empirical distributions."""
    return row_shares(part.counts)


# ---- finding ------------------------------------------------------------------------------------------


def find_sets(folder: Path) -> dict[str, DatasetFiles]:
    """Every dataset below a data folder, by name."""
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such data folder; give one with --data")
    tables: dict[str, DatasetFiles] = {
        place.name: place
        for place in sorted([folder, *folder.iterdir()])
        if any((place / f"annotations.csv{ending}").is_file() for ending in ("", ".gz"))
    }
    found = tables or _json_sets(folder)
    if not found:
        raise DataError(
            f"{folder}: holds neither folders with annotations.csv nor the authors' JSON files; "
            "give another place with --data"
        )
    return found


def _json_sets(folder: Path) -> dict[str, DatasetFiles]:
    """The authors' files: three a dataset, or one with all of its labels."""
    split: dict[str, dict[str, Path]] = defaultdict(dict)
    whole: dict[str, DatasetFiles] = {}
    for file in sorted(folder.rglob("*.json")):
        named = _JSON_PART.fullmatch(file.stem)
        if named:
            split[_set_name(named["stem"])][named["part"]] = file
        else:
            # Sorted, jobQ1_BOTH comes before jobQ1_BOTH_annotations: the file of single labels wins.
            whole[_set_name(file.stem.removesuffix("_annotations"))] = file
    return whole | {name: files for name, files in split.items() if set(files) == set(PARTS)}


def _set_name(stem: str) -> str:
    job = _JOB.search(stem)
    return f"jq{job[1]}" if job else stem


def check_sets(names: Sequence[str], known: dict[str, DatasetFiles], folder: Path) -> None:
    """Refuse a dataset that is not there, with the nearest name that is."""
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known).rstrip() or f"it has {', '.join(known)}"
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
    """A dataset with its parts, and with sentence embeddings where ``embedded`` and there is text.

    Of more than ``max_items`` items a seeded sample is taken; ``embedding`` is the sentence encoder.
    """
    annotations = _read(files)
    if annotations.anonymous:
        raise DataError(f"{files}: does not say who gave each label; the evaluation is about annotators")
    labelled = np.flatnonzero(annotations.counts.sum(axis=1) > 0)
    if max_items is not None and len(labelled) > max_items:
        drawn = np.random.default_rng(SPLIT_SEED).permutation(len(labelled))[:max_items]
        labelled = np.sort(labelled[drawn])
    annotations = annotations.take_items(labelled)
    known_by = annotations.fingerprint()
    if embedded and "text" in _columns(annotations):
        from dissensus.labels.features import embed_items

        annotations = embed_items(annotations, model=embedding)
    with_features = annotations.fingerprint() if embedded and "text" in _columns(annotations) else ""
    parts, seeded = _parts(annotations)
    return Dataset(name, annotations, parts, seeded, known_by, with_features)


def _columns(annotations: Annotations) -> list[str]:
    """Of the table of items."""
    return [] if annotations.item_table is None else list(annotations.item_table.column_names)


def _parts(annotations: Annotations) -> tuple[dict[str, Annotations], bool]:
    if "split" in _columns(annotations):
        own = annotations.split_items()
        if set(PARTS) <= set(own):
            return {name: own[name] for name in PARTS}, False
    return annotations.split_items(SHARES, seed=SPLIT_SEED), True


def _read(files: DatasetFiles) -> Annotations:
    if isinstance(files, dict):
        return _joined({part: read_annotations(file) for part, file in files.items()})
    return read_dataset(files) if files.is_dir() else read_annotations(files)


def read_dataset(folder: Path) -> Annotations:
    """A dataset folder: its annotations, with items and gold where it has them."""
    labels = _first(folder, "annotations") or folder / "annotations.csv"  # not there: said as of any file
    return read_annotations(labels, items=_first(folder, "items"), gold=_first(folder, "gold"))


def _first(folder: Path, stem: str) -> Path | None:
    found = [folder / f"{stem}{ending}" for ending in (".csv", ".csv.gz")]
    return next((path for path in found if path.exists()), None)


def _joined(parts: dict[str, Annotations]) -> Annotations:
    """One table of labels out of the authors' three, with a column that says which an item is from."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = defaultdict(list)
    table: dict[str, list[Any]] = defaultdict(list)
    for name, part in parts.items():
        columns["item"] += part.items[part.item].tolist()
        columns["annotator"] += part.annotators[part.annotator].tolist()
        columns["label"] += part.classes[part.label].tolist()
        table["item"] += part.items.tolist()
        table["split"] += [name] * part.n_items
        if "text" in _columns(part):
            table["text"] += part.item_column("text").tolist()
    return Annotations.from_arrays(
        columns["item"], columns["annotator"], columns["label"], items=pa.table(dict(table))
    )
