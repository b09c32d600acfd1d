"""Options that several commands share, each declared once, and how their values are read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dissensus.cli.app import StoppedError, argument, option
from dissensus.cli.terminal import say
from dissensus.errors import ParameterError
from dissensus.progress import shown

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

# ---- what is read -------------------------------------------------------------------------------------

LabelFile = Annotated[Path, argument("FILE", "CSV, TSV, JSONL, Parquet, an export, or a store.")]
LabelsOrRun = Annotated[Path, argument("FILE|RUN", "Labels, or the directory of a finished run.")]
ItemColumn = Annotated[str | None, option("NAME", "Column of the item ids.")]
AnnotatorColumn = Annotated[list[str], option("NAME", "Column of annotators (repeat it if wide).")]
LabelColumn = Annotated[list[str], option("NAME", "Column of labels (repeat it if one per class).")]
Kind = Literal["nominal", "ordinal", "numeric", "multi", "pairwise"]
LabelTypes = Annotated[Kind | None, option("TYPE", "nominal, ordinal, numeric, multi or pairwise.")]
Classes = Annotated[list[str], option("A,B,…", "All classes; an ordered scale as low<mid<high.")]
ItemTable = Annotated[Path | None, option("FILE", "Table of items: id, text and other columns.", "--items")]
AnnotatorTable = Annotated[Path | None, option("FILE", "Table of annotators: id and more.", "--annotators")]
Features = Annotated[Path | None, option("FILE", "Item features: .npy, .npz or .parquet.", "--features")]


class Columns:
    """How the labels of a file are read: the five options that every command has."""

    def __init__(
        self,
        item_column: str | None,
        annotator_column: Sequence[str],
        label_column: Sequence[str],
        label_type: str | None,
        classes: Sequence[str],
    ) -> None:
        self.item, self.label_type = item_column, label_type
        self.annotator, self.label = one_or_several(annotator_column), one_or_several(label_column)
        one = classes[0] if len(classes) == 1 else ""
        self.classes = one if "<" in one else in_list(classes) or None

    def given(self) -> dict[str, Any]:
        """The settings of ``read_annotations`` that were given; a run keeps them."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def read(self, file: Path, *, like: Mapping[str, Any] | None = None, **more: Any) -> Annotations:
        """Read the labels of a file; settings left out are those of ``like``, which a run was read with."""
        from dissensus.importers.read import read_annotations

        with shown() as progress:
            progress(f"reading {file.name}", 0.0)
            return read_annotations(file, **(dict(like or {}) | self.given() | more))


def one_or_several(values: Sequence[str]) -> str | list[str] | None:
    """None, the one value, or the list of them."""
    return (values[0] if len(values) == 1 else list(values)) if values else None


def in_list(values: Sequence[str]) -> list[str]:
    """Values of an option that was repeated, or given once with commas between."""
    return [part.strip() for value in values for part in (value.split(",") if len(values) == 1 else [value])]


def with_features(labels: Annotations, features: Path | None) -> Annotations:
    """Attach the item features in a file."""
    if features is None:
        return labels
    from dissensus.labels.features import read_features
    from dissensus.labels.features import with_features as attached

    return attached(labels, read_features(features, labels))


# ---- the model ----------------------------------------------------------------------------------------

CLUSTERS = ("n_item_clusters", "n_annotator_clusters")
ALL_CORES = -1


def model_names(incomplete: str) -> list[str]:
    """Complete the name of a model in the shell."""
    from dissensus.models import MODELS

    return [name for name in ("auto", *MODELS) if name.startswith(incomplete)]


Seed = Annotated[int, option("N", "Seed: the same seed gives the same result.", "--seed")]
Jobs = Annotated[int, option("N", "Threads or processes (all).", "--jobs", "-j")]
Model = Annotated[str, option("NAME", "Name of a model.", "--model", "-m", autocompletion=model_names)]
K, L = ("--item-clusters", "-k"), ("--annotator-clusters", "-l")
ItemClusters = Annotated[int | None, option("K", "Number of item clusters.", *K)]
AnnotatorClusters = Annotated[int | None, option("L", "Number of annotator clusters.", *L)]
ItemSizes = Annotated[str | None, option("6,12", "Numbers of item clusters to try, also as 3:20.", *K)]
AnnotatorSizes = Annotated[str | None, option("4,8", "Numbers of annotator clusters to try.", *L)]
SetOption = Annotated[list[str], option("NAME=VALUE", "A setting of the model; repeatable.", "--set", "-s")]
Cluster = Annotated[str | None, option("ADDRESS", "A Dask scheduler, or local.", "--cluster")]
Scratch = Annotated[Path | None, option("DIR", "Directory for what does not fit in memory.", "--scratch")]


def parse_setting(text: str) -> tuple[str, Any]:
    """``name=value``, the value read as JSON would (3, 0.5, true, null), or else as text."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip()):
        raise ParameterError(f"{text}: write it as name=value, as in n_item_clusters=12")
    return name.strip(), parse_value(value)


def parse_value(text: str) -> Any:
    """A value as JSON would read it, ``.3`` and ``2,2,1.5`` as numbers, or else the text."""
    text = text.strip()
    try:
        return json.loads(text)
    except ValueError:
        pass
    if re.fullmatch(r"-?\d*\.?\d+(,-?\d*\.?\d+)*", text):
        values = [float(part) for part in text.split(",")]
        return values if len(values) > 1 else values[0]
    return {"none": None, "true": True, "false": False}.get(text.lower(), text)


def parse_values(text: str) -> list[Any]:
    """Values to try: single ones with commas between, and ``3:20`` for every whole number from 3 to 20."""
    values: list[Any] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"\s*(\d+):(\d+)\s*", part)
        values += range(int(bounds[1]), int(bounds[2]) + 1) if bounds else [parse_value(part)]
    if not values or any(value == "" or (isinstance(value, str) and ":" in value) for value in values):
        raise ParameterError(f"{text}: write values to try as 3:20 or 1,2,4")
    return values


@contextmanager
def resumable(is_kept: Callable[[], bool], kept: str) -> Iterator[None]:
    """Let Ctrl-C inside the block say what of a long job is kept, if anything is."""
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; {kept if is_kept() else 'nothing was written'}") from None


# ---- what is written ----------------------------------------------------------------------------------

OutputDirectory = Annotated[Path | None, option("DIR", "Directory to write.", "--output", "-o")]
OutputTable = Annotated[Path | None, option("FILE", "File (.csv, .jsonl, .parquet).", "--output", "-o")]
Json = Annotated[bool, option(None, "Print the result as JSON.", "--json")]
Force = Annotated[bool, option(None, "Write into a directory that is not ours.", "--force")]
SafeCsv = Annotated[bool, option(None, "Quote what a spreadsheet would compute.", "--safe-csv")]
NoReport = Annotated[bool, option(None, "Write no page.", "--no-report")]
Title = Annotated[str | None, option("TEXT", "Title of the page.", "--title")]
Anonymise = Annotated[bool, option(None, "Write numbers in place of the annotators' ids.", "--anonymise")]


def command_line(context: typer.Context) -> str:
    """The command that is running, as it could be typed again."""
    return shlex.join(["dissensus", *(context.obj or [])])


def stem(file: Path) -> str:
    """The file's name without its suffix: ``votes`` of ``votes.csv.gz``."""
    return Path(file.resolve().name.removesuffix(".gz")).stem


def write_columns(columns: Mapping[str, Any], output: Path, safe_csv: bool = False) -> None:
    """Write columns as a table."""
    from dissensus.labels.display import make_frame
    from dissensus.tables.results import for_spreadsheets
    from dissensus.tables.write import write_table

    with for_spreadsheets(safe_csv):
        write_table(make_frame(dict(columns), "pyarrow"), output)


def say_written(directory: Path, files: Sequence[str]) -> None:
    """Say which files are where."""
    say(f"Wrote {directory}/: {', '.join(files)}")
