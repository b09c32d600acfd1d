"""Item features: from text, from a file, and where annotations carry them.

Annotations carry features as one column of their item table, ``features`` (a fixed-size list of float32), so
that every split and selection of items takes them along.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, setting, warn
from dissensus.labels.annotations import Annotations
from dissensus.labels.sources import as_annotations, provided
from dissensus.labels.vocabulary import Vocabulary, quoted

Features = NDArray[np.float32]

COLUMN, TEXT = "features", "text"  # of an item table
DENSE_BYTES = 4_000_000_000  # a sparse matrix may become at most


def with_features(labels: Any, features: Any) -> Annotations:
    """Attach features to the items of labels, in their item table.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    features
        (items, features), in the order of ``labels.items``; a pandas frame whose index names the items is put
        in that order, and must name them where the labels are a frame or a path.
    """
    annotations = as_annotations(labels)
    placed = by_item(features, annotations.item_vocabulary, "features")
    if placed is None and annotations is not labels:
        raise unknown_order("features")
    rows = check_features(features if placed is None else placed, annotations.n_items)
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    table = annotations.item_table
    if table is None:
        table = pa.table({"item": annotations.item_vocabulary.arrow})
    if COLUMN in table.column_names:
        table = table.drop_columns([COLUMN])
    return replace(annotations, item_table=table.append_column(COLUMN, column))


def embed_items(labels: Any, text_column: str = TEXT, **settings: Any) -> Annotations:
    """Attach embeddings of the items' texts as features; ``settings`` are those of :func:`embed`.

    Parameters
    ----------
    labels
        Labels with an item table, or a data frame or path that :func:`dissensus.read_annotations` reads.
    text_column
        The column of the item table that holds the texts.
    """
    annotations = as_annotations(labels)
    texts = annotations.item_column(text_column)
    missing = [str(item) for item, text in zip(annotations.items, texts, strict=True) if text is None]
    if missing:
        raise DataError(
            f"item {missing[0]!r} has no value in the text column {text_column!r} ({len(missing)} in all); "
            f"add the text to the table of items ({setting('items')}), or drop the item"
        )
    return with_features(annotations, provided("embed")([str(text) for text in texts], **settings))


def carries_features(annotations: Annotations) -> bool:
    """Whether the items come with features, or with a text to make them from."""
    table = annotations.item_table
    return table is not None and not {COLUMN, TEXT}.isdisjoint(table.column_names)


def n_features(annotations: Annotations, given: Any = None) -> int:
    """Number of features of an item: those given, or those that the annotations carry.

    0 where there are none yet, and where what is there is refused later (:func:`check_features`).
    """
    if given is not None:
        shape: tuple[int, ...] = getattr(given, "shape", ())  # lists are small
        return int(shape[1]) if len(shape) == 2 else 0
    table = annotations.item_table
    if table is None or COLUMN not in table.column_names or not pa.types.is_nested(table[COLUMN].type):
        return 0
    first = table[COLUMN][0].as_py() if len(table) else None
    return 0 if first is None else len(first)


def features_of(annotations: Annotations, model: str | None = None, *, given: Any = None) -> Features:
    """(items, features): those given, those the annotations carry, or else the embeddings of their text."""
    if given is not None:
        return check_features(given, annotations.n_items)
    table = annotations.item_table
    if table is not None and COLUMN in table.column_names:
        column = table.column(COLUMN).combine_chunks()
        return check_features(_rows_of_lists(column, COLUMN), annotations.n_items)
    if carries_features(annotations):
        return features_of(embed_items(annotations, TEXT, model=model))
    raise DataError(
        f"the items have neither features nor a column {TEXT!r}; pass {setting('features')}, or an item "
        "table with a text column, or attach them with dissensus.text.with_features"
    )


def by_item(X: Any, items: Vocabulary, name: str) -> Any:
    """The rows of a pandas Series or frame in the order of the items that its index names.

    None where nothing names them: there is no index, or it is whole numbers of which none is an item, and
    only counts rows.
    """
    index = getattr(X, "index", None)
    if not hasattr(X, "iloc") or index is None or index.nlevels != 1:
        return None
    if index.inferred_type not in ("string", "integer", "mixed"):
        return None
    place = Vocabulary(index.astype(str), "item").codes([str(one) for one in items])
    if (place < 0).all() and index.inferred_type == "integer":
        return None
    if (place < 0).any():
        absent = items[int(np.flatnonzero(place < 0)[0])]
        raise DataError(
            f"{name}: its index has no row for item {quoted(absent)} ({int((place < 0).sum())} missing); "
            "index it by item id, or drop the index where rows are in the order of y.items; before "
            "cross-validation, which takes rows by their place, write X = X.loc[y.items]"
        )
    if not index.is_unique:
        raise DataError(f"{name}: its index names an item twice; keep one row per item")
    return X.iloc[place]


def unknown_order(name: str) -> DataError:
    """The error for rows whose items nothing names, beside labels whose order of items nobody knows."""
    return DataError(
        f"{name} has one row for each item, and a file or a frame of labels does not say in which order; "
        "index the rows by item id (a pandas frame), or read the labels with read_annotations and put the "
        "rows in the order of its items"
    )


def read_features(path: str | Path, items: Any = None) -> Features:
    """Features from a ``.npy``, ``.npz`` or ``.parquet`` file, one row for each item.

    With ``items`` (ids, or Annotations) the rows are put in that order. A Parquet file, and an ``.npz``
    with the arrays ``item`` (or ``items``) and ``features``, say which row is whose; a ``.npy`` must be in
    order already. Parquet: a first column of ids, then either one list column or one column for each feature.

    Parameters
    ----------
    path
        The file.
    items
        Ids, or Annotations, in whose order the rows are put.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{file}: there is no such feature file; give a .npy, .npz or .parquet file")
    wanted = items.item_vocabulary if isinstance(items, Annotations) else items
    ids, rows = _read_parquet(file) if file.suffix == ".parquet" else _read_numpy(file)
    vocabulary = None if wanted is None else Vocabulary(wanted, "item")
    if vocabulary is None or ids is None:
        return check_features(rows, None if vocabulary is None else len(vocabulary), str(file))
    place = Vocabulary(ids, "item").codes(vocabulary)
    if (place < 0).any():
        absent = vocabulary[int(np.flatnonzero(place < 0)[0])]
        raise DataError(f"{file}: has no row for item {absent!r} ({int((place < 0).sum())} missing); add it")
    return check_features(np.asarray(rows)[place], len(vocabulary), str(file))


def as_features(X: Any, model: str | None = None) -> Features:
    """An (items, features) array from numbers, or from texts by embedding them."""
    if isinstance(X, str):
        raise DataError(f"X is one text, {X!r}; put it in a list")
    X = texts_of_column(X)
    if is_text(X):
        return check_features(provided("embed")(list(X), model=model), None)
    return check_features(X, None, "X")


def texts_of_column(X: Any) -> Any:
    """The texts of a frame or an array of one column of texts; anything else as it is."""
    if len(getattr(X, "shape", ())) != 2 or X.shape[1] != 1 or not is_text(X):
        return X
    return X.iloc[:, 0] if hasattr(X, "iloc") else np.asarray(X)[:, 0]


def is_text(X: Any) -> bool:
    """Whether X holds strings rather than numbers."""
    if hasattr(X, "tocsr"):
        return False
    first = X[:1] if isinstance(X, Sequence) else np.asarray(X).ravel()[:1]
    return len(first) > 0 and isinstance(first[0], str)


def check_features(features: Any, n_items: int | None, where: str = "features") -> Features:
    """Features as an (items, features) float32 array, or an error that names the first bad row.

    Without ``n_items`` any number of rows will do.
    """
    if hasattr(features, "tocsr"):  # a sparse matrix
        size = 4 * int(np.prod(features.shape))
        if size > DENSE_BYTES:
            raise DataError(
                f"{where}: a sparse matrix of shape {features.shape} would take {size / 1e9:.0f} GB as an "
                "array; keep fewer features, or reduce them (TruncatedSVD)"
            )
        features = features.astype(np.float32).toarray()
    try:
        rows = np.ascontiguousarray(features, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{where}: not numbers of one shape; give an (items, features) array") from None
    if rows.ndim != 2 or not rows.shape[1] or n_items not in (None, len(rows)):
        whom = "each item" if n_items is None else f"each of {n_items} items"
        raise DataError(
            f"{where}: shape {rows.shape} does not give one row to {whom}; give (items, features)"
        )
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise DataError(f"{where}: row {int(np.flatnonzero(~finite)[0])} has NaN or infinity; correct it")
    return rows


def _read_numpy(file: Path) -> tuple[Any, Any]:
    try:
        with file.open("rb") as opened:  # numpy leaves a damaged archive that it opened itself open
            content = np.load(opened, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                return None, content
            arrays = {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        raise DataError(
            f"{file}: not a whole NumPy file of plain numbers; write it with numpy.save, or as Parquet "
            "with a first column of item ids"
        ) from None
    if COLUMN in arrays or len(arrays) == 1:
        ids = arrays.get("item", arrays.get("items"))
        if ids is None:
            warn(f"{file}: names no items, so rows are taken in the order of the items; add an array 'item'")
        return ids, arrays.get(COLUMN, next(iter(arrays.values())))
    raise DataError(f"{file}: holds {', '.join(arrays)}; name its arrays 'item' and 'features'")


def _read_parquet(file: Path) -> tuple[Any, Any]:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file}: not a whole Parquet file ({error}); write it anew") from None
    if table.num_columns < 2:
        raise DataError(f"{file}: needs a column of item ids and at least one of features")
    first, *rest = table.columns
    if len(rest) == 1 and pa.types.is_nested(rest[0].type):
        return first, _rows_of_lists(rest[0].combine_chunks(), str(file))
    try:
        return first, np.column_stack([column.to_numpy().astype(np.float32) for column in rest])
    except (TypeError, ValueError):
        raise DataError(f"{file}: a feature column is not numeric; keep the id column and numbers") from None


def _rows_of_lists(column: Any, where: str) -> Any:
    """An (items, features) array out of an Arrow list column."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise DataError(f"{where}: a column of type {kind} came; give one list of numbers an item")
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{where}: row {row} has no features; fill it in or drop the item")
    lengths = column.value_lengths().to_numpy()
    width = int(lengths[0]) if len(lengths) else 0
    if (lengths != width).any():
        row = int(np.flatnonzero(lengths != width)[0])
        raise DataError(
            f"{where}: row {row} has {lengths[row]} features and row 0 has {width}; give each row the same"
        )
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), width)
