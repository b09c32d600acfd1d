"""Item features: from texts, from a file, or attached to annotations.

Features are attached as a column ``features`` of the item table (a fixed-size list of float32), so that they
follow every split and selection of items.
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
from dissensus.labels import as_annotations, provided
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Vocabulary, quoted

Features = NDArray[np.float32]

FEATURES_COLUMN, TEXT_COLUMN = "features", "text"  # columns of an item table
# Usual names of the text of an item, most certain first; the others only in a table of items.
TEXT_NAMES = ("text", "sentence", "content", "message", "comment", "tweet", "document", "body", "title")
_OTHER_TEXT_NAMES = ("question", "dialogue", "dialog", "conversation", "messages")
MAX_DENSE_BYTES = 4_000_000_000  # of a sparse matrix converted to an array


def with_features(labels: Any, features: Any) -> Annotations:
    """Attach features to the items of labels, in their item table.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    features
        (items, features), in the order of ``labels.items``; a pandas frame indexed by item is reordered, and
        is required if the labels are a frame or a path.
    """
    annotations = as_annotations(labels)
    ordered = rows_by_item(features, annotations.item_vocabulary, "features")
    if ordered is None and annotations is not labels:
        raise unknown_order("features")
    rows = check_features(features if ordered is None else ordered, annotations.n_items)
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    table = annotations.item_table
    if table is None:
        table = pa.table({"item": annotations.item_vocabulary.arrow})
    others = [name for name in table.column_names if name != FEATURES_COLUMN]
    return replace(annotations, item_table=table.select(others).append_column(FEATURES_COLUMN, column))


def embed_items(labels: Any, text_column: str = TEXT_COLUMN, **settings: Any) -> Annotations:
    """Attach embeddings of the items' texts as features; ``settings`` are those of :func:`embed`.

    Parameters
    ----------
    labels
        Labels with an item table, or a data frame or path that :func:`dissensus.read_annotations` reads.
    text_column
        Column of the item table with the texts.
    """
    annotations = as_annotations(labels)
    texts = annotations.item_column(text_column)
    missing = [str(item) for item, text in zip(annotations.items, texts, strict=True) if text is None]
    if missing:
        problem = f"item {missing[0]!r} has no value in the text column {text_column!r}"
        remedy = f"add the text to the table of items ({setting('items')}), or drop the item"
        raise DataError(f"{problem} ({len(missing)} in all); {remedy}")
    return with_features(annotations, provided("embed")([str(text) for text in texts], **settings))


def has_features(annotations: Annotations) -> bool:
    """Check whether the items have features or texts."""
    table = annotations.item_table
    return table is not None and not {FEATURES_COLUMN, TEXT_COLUMN}.isdisjoint(table.column_names)


def n_features(annotations: Annotations, features: Any = None) -> int:
    """Return the number of features given, or attached to the annotations.

    0 if there are none yet, or if they are invalid (:func:`check_features`).
    """
    if features is not None:
        shape: tuple[int, ...] = getattr(features, "shape", ())  # lists are small
        return int(shape[1]) if len(shape) == 2 else 0
    table = annotations.item_table
    if table is None or FEATURES_COLUMN not in table.column_names or not len(table):
        return 0
    first = table[FEATURES_COLUMN][0].as_py()
    return len(first) if isinstance(first, list) else 0


def features_of(annotations: Annotations, model: str | None = None, *, features: Any = None) -> Features:
    """Return (items, features) given, attached to the annotations, or embedded from their texts."""
    if features is not None:
        return check_features(features, annotations.n_items)
    table = annotations.item_table
    if table is not None and FEATURES_COLUMN in table.column_names:
        column = table.column(FEATURES_COLUMN).combine_chunks()
        return check_features(_rows_of_lists(column, FEATURES_COLUMN), annotations.n_items)
    if has_features(annotations):
        return features_of(embed_items(annotations, TEXT_COLUMN, model=model))
    problem = f"the items have neither features nor a column {TEXT_COLUMN!r}"
    remedy = "or an item table with a text column, or attach them with dissensus.text.with_features"
    raise DataError(f"{problem}; pass {setting('features')}, {remedy}")


def rows_by_item(X: Any, items: Vocabulary, name: str) -> Any:
    """Return the rows of a pandas Series or frame indexed by item, in the order of ``items``.

    None if they are not indexed by item: there is no index, or it is a row number.
    """
    index = X.index if hasattr(X, "iloc") else None
    if index is None or index.nlevels != 1 or index.inferred_type not in ("string", "integer", "mixed"):
        return None
    rows = Vocabulary(index.astype(str), "item").codes([str(item) for item in items])
    absent = np.flatnonzero(rows < 0)
    if len(absent) == len(rows) and index.inferred_type == "integer":
        return None
    if len(absent):
        raise DataError(
            f"{name}: its index has no row for item {quoted(items[absent[0]])} ({len(absent)} missing); "
            "index it by item id, or drop the index if rows are in the order of y.items; before "
            "cross-validation, which selects rows by position, use X = X.loc[y.items]"
        )
    if not index.is_unique:
        raise DataError(f"{name}: its index names an item twice; keep one row per item")
    return X.iloc[rows]


def unknown_order(name: str) -> DataError:
    """Return the error for rows without item ids, with labels from a file or frame."""
    return DataError(
        f"{name} has one row per item, but the order of items in a file or frame of labels is not defined; "
        "index the rows by item id (a pandas frame), or read the labels with read_annotations and put the "
        "rows in the order of its items"
    )


def read_features(path: str | Path, items: Any = None) -> Features:
    """Read features from a ``.npy``, ``.npz`` or ``.parquet`` file, one row per item.

    Parquet files have a first column of ids, then one list column or one column per feature; ``.npz`` files
    have arrays ``item`` (or ``items``) and ``features``. The rows of a ``.npy`` file have no ids, and must be
    in order already.

    Parameters
    ----------
    path
        Path of the file.
    items
        Ids, or Annotations, whose order the rows are put in.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{file}: no such feature file; pass a .npy, .npz or .parquet file")
    ids, rows = _read_parquet(file) if file.suffix == ".parquet" else _read_numpy(file)
    if items is None:
        return check_features(rows, None, str(file))
    vocabulary = items.item_vocabulary if isinstance(items, Annotations) else Vocabulary(items, "item")
    if ids is not None:
        index = Vocabulary(ids, "item").codes(vocabulary)
        absent = np.flatnonzero(index < 0)
        if len(absent):
            name = vocabulary[int(absent[0])]
            raise DataError(f"{file}: has no row for item {name!r} ({len(absent)} missing); add it")
        rows = np.asarray(rows)[index]
    return check_features(rows, len(vocabulary), str(file))


def as_features(X: Any, model: str | None = None) -> Features:
    """Return an (items, features) array of numbers, or of embedded texts."""
    if isinstance(X, str):
        raise DataError(f"X is a single text, {X!r}; put it in a list")
    X = texts_of_column(X)
    if holds_texts(X):
        return check_features(provided("embed")(list(X), model=model), None)
    return check_features(X, None, "X")


def text_column(annotations: Annotations) -> str | None:
    """Return the name of the item table's column of texts: the first that has a usual name."""
    table = annotations.item_table
    names = {} if table is None else {name.strip().casefold(): name for name in table.column_names[1:]}
    return next((names[name] for name in (*TEXT_NAMES, *_OTHER_TEXT_NAMES) if name in names), None)


def texts_of(annotations: Annotations, column: str | None = None) -> list[str] | None:
    """Return the items' texts in a column, by default the one with a usual name; None if there is none."""
    table, column = annotations.item_table, column or text_column(annotations)
    if table is None or column is None or column not in table.column_names[1:]:
        return None
    return ["" if text is None else str(text) for text in annotations.item_column(column)]


def texts_of_column(X: Any) -> Any:
    """Return the texts of a one-column frame or array; anything else unchanged."""
    if len(getattr(X, "shape", ())) != 2 or X.shape[1] != 1 or not holds_texts(X):
        return X
    return X.iloc[:, 0] if hasattr(X, "iloc") else np.asarray(X)[:, 0]


def holds_texts(X: Any) -> bool:
    """Check whether X holds strings rather than numbers."""
    if hasattr(X, "tocsr"):
        return False
    first = X[:1] if isinstance(X, Sequence) else np.asarray(X).ravel()[:1]
    return len(first) > 0 and isinstance(first[0], str)


def check_features(features: Any, n_items: int | None, where: str = "features") -> Features:
    """Return features as an (items, features) float32 array; raise an error that names the first bad row.

    ``n_items`` None allows any number of rows.
    """
    if hasattr(features, "tocsr"):  # a sparse matrix
        size = 4 * int(np.prod(features.shape))
        if size > MAX_DENSE_BYTES:
            problem = f"a sparse matrix of shape {features.shape} would take {size / 1e9:.0f} GB as an array"
            raise DataError(f"{where}: {problem}; keep fewer features, or reduce them (TruncatedSVD)")
        features = features.astype(np.float32).toarray()
    try:
        rows = np.ascontiguousarray(features, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{where}: not an array of numbers; pass an (items, features) array") from None
    if rows.ndim != 2 or not rows.shape[1] or n_items not in (None, len(rows)):
        n = "items" if n_items is None else f"{n_items} items"
        raise DataError(f"{where}: shape {rows.shape} is not ({n}, features); pass one row per item")
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise DataError(f"{where}: row {int(np.flatnonzero(~finite)[0])} has NaN or infinity; correct it")
    return rows


def _read_numpy(file: Path) -> tuple[Any, Any]:
    try:
        with file.open("rb") as opened:  # numpy does not close a damaged archive itself
            content = np.load(opened, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                return None, content
            arrays = {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error):
        remedy = "write it with numpy.save, or as Parquet with a first column of item ids"
        raise DataError(f"{file}: not a valid NumPy file of plain numbers; {remedy}") from None
    if FEATURES_COLUMN in arrays or len(arrays) == 1:
        ids = arrays.get("item", arrays.get("items"))
        if ids is None:
            warn(f"{file}: has no item ids, so rows are taken in the order of the items; add an array 'item'")
        return ids, arrays.get(FEATURES_COLUMN, next(iter(arrays.values())))
    raise DataError(f"{file}: holds {', '.join(arrays)}; name its arrays 'item' and 'features'")


def _read_parquet(file: Path) -> tuple[Any, Any]:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise DataError(f"{file}: not a valid Parquet file ({error}); write it again") from None
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
    """Convert an Arrow list column to an (items, features) array."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise DataError(f"{where}: is a column of type {kind}; use one list of numbers per item")
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{where}: row {row} has no features; fill it in or drop the item")
    lengths = column.value_lengths().to_numpy()
    width = int(lengths[0]) if len(lengths) else 0
    if (lengths != width).any():
        row = int(np.flatnonzero(lengths != width)[0])
        problem = f"row {row} has {lengths[row]} features and row 0 has {width}"
        raise DataError(f"{where}: {problem}; use the same number")
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), width)
