"""Options that several commands share, and the parsing of their values."""

from __future__ import annotations

import functools
import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dissensus.cli.app import StoppedError, app, argument, option, typed
from dissensus.errors import ParameterError
from dissensus.progress import shown

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

Command = Callable[..., None]

# ---- input --------------------------------------------------------------------------------------------

LabelFile = Annotated[Path, argument("FILE", "Labels: a table, an export of a tool, or a .store.")]
LabelsOrRun = Annotated[Path, argument("FILE|RUN", "File of labels, or directory of a finished run.")]
ItemColumn = Annotated[str | None, option("NAME", "Column of item ids.")]
AnnotatorColumn = Annotated[
    list[str], option("NAME", "Column of annotator ids; in a wide table, repeat it for each annotator.")
]
LabelColumn = Annotated[
    list[str], option("NAME", "Column of labels; in a table of counts, repeat it for each class.")
]
Kind = Literal["nominal", "ordinal", "numeric", "multi", "pairwise"]
LabelTypes = Annotated[Kind | None, option("TYPE", "nominal, ordinal, numeric, multi or pairwise.")]
Classes = Annotated[list[str], option("A,B,…", "All classes; an ordered scale: 'low<mid<high'.")]
ItemTable = Annotated[Path | None, option("FILE", "Table of items: id, text, other columns.")]
AnnotatorTable = Annotated[Path | None, option("FILE", "Table of annotators: id, attributes.")]
Features = Annotated[Path | None, option("FILE", "Numeric features of the items (.npy, .npz or .parquet).")]
TextColumn = Annotated[str | None, option("NAME", "Column with the text of the items.")]


class Columns:
    """The five options that say how labels are read."""

    def __init__(
        self,
        item_column: ItemColumn = None,
        annotator_column: AnnotatorColumn = [],
        label_column: LabelColumn = [],
        label_type: LabelTypes = None,
        classes: Classes = [],
    ) -> None:
        def unpack(names: Sequence[str]) -> str | list[str] | None:
            return (names[0] if len(names) == 1 else list(names)) if names else None

        self.item, self.label_type = item_column, label_type
        self.annotator, self.label = unpack(annotator_column), unpack(label_column)
        ordered = len(classes) == 1 and "<" in classes[0]
        self.classes = classes[0] if ordered else split_list(classes) or None

    def settings(self) -> dict[str, Any]:
        """Return the settings of ``read_annotations`` that were given; a run saves them."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def read(self, file: Path, *, like: Mapping[str, Any] | None = None, **more: Any) -> Annotations:
        """Read the labels of a file; ``like`` holds the settings of an earlier reading, used as defaults."""
        from dissensus.importers.read import read_annotations

        with shown() as progress:
            progress(f"reading {file.name}", 0.0)
            return read_annotations(file, **(dict(like or {}) | self.settings() | more))


def command(*examples: str, name: str | None = None) -> Callable[[Command], Command]:
    """Make a function a command, with examples at the end of its help.

    A parameter ``columns`` is replaced by the five options of :class:`Columns`.
    """
    epilog = "\b\nExamples:\n  " + "\n  ".join(examples)
    reading = inspect.signature(Columns, eval_str=True).parameters

    def register(function: Command) -> Command:
        parameters = inspect.signature(function, eval_str=True).parameters
        options: list[inspect.Parameter] = []
        for parameter in parameters.values():
            options += reading.values() if parameter.name == "columns" else [parameter]

        @functools.wraps(function)
        def run(**values: Any) -> None:
            if "columns" in parameters:
                values["columns"] = Columns(**{option: values.pop(option) for option in reading})
            function(**values)

        vars(run)["__signature__"] = inspect.Signature(options)
        return app.command(name, epilog=epilog)(run)

    return register


def split_list(values: Sequence[str]) -> list[str]:
    """Return the values of an option that was repeated, or given once with commas between them."""
    return list(map(str.strip, values[0].split(",") if len(values) == 1 else values))


def attach_features(labels: Annotations, features: Path | None) -> Annotations:
    """Attach the item features in a file."""
    if features is None:
        return labels
    from dissensus.labels.features import read_features, with_features

    return with_features(labels, read_features(features, labels))


# ---- the model ----------------------------------------------------------------------------------------

CLUSTERS = ("n_item_clusters", "n_annotator_clusters")
ALL_CORES = -1


def model_names(incomplete: str) -> list[str]:
    """Complete the name of a model in the shell."""
    from dissensus.models import MODELS

    return [name for name in ("auto", *MODELS) if name.startswith(incomplete)]


Seed = Annotated[int, option("N", "Random seed; the same seed gives the same result.")]
Jobs = Annotated[int, option("N", "Threads or processes; -1 uses all cores.", "--jobs", "-j")]
Model = Annotated[str, option("NAME", "See 'dissensus info'.", "--model", "-m", autocompletion=model_names)]
K, L = ("--item-clusters", "-k"), ("--annotator-clusters", "-l")
ItemClusters = Annotated[int | None, option("K", "Number of item clusters.", *K)]
AnnotatorClusters = Annotated[int | None, option("L", "Number of annotator clusters.", *L)]
ItemSizes = Annotated[str | None, option("LIST", "Numbers of item clusters to try: 6,12 or 3:20.", *K)]
AnnotatorSizes = Annotated[str | None, option("LIST", "Numbers of annotator clusters to try.", *L)]
SetOption = Annotated[list[str], option("NAME=VALUE", "A setting of the model; repeatable.", "--set", "-s")]
Cluster = Annotated[str | None, option("ADDRESS", "A Dask scheduler, or 'local'.")]
Scratch = Annotated[Path | None, option("DIR", "Directory for data that exceed memory.")]


def parse_pair(text: str, form: str) -> tuple[str, str]:
    """Parse ``name=value``; an error describes the expected ``form``."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip()):
        raise ParameterError(f"{text}: write it as {form}")
    return name.strip(), value.strip()


def page_title(file: Path) -> str:
    """Return the name of a file with that of its folder: ``pilot/votes.csv``."""
    return "/".join(filter(None, (file.resolve().parent.name, file.name)))


def parse_settings(texts: list[str]) -> dict[str, Any]:
    """Parse settings of a model, each ``name=value``; see :func:`parse_value`."""
    pairs = (parse_pair(text, "name=value, as in n_item_clusters=12") for text in texts)
    return {name: parse_value(value) for name, value in pairs}


def parse_value(text: str) -> Any:
    """Parse a value as JSON; also read ``.3`` and ``2,2,1.5`` as numbers; keep anything else as text."""
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
    """Parse values to try, separated by commas; ``3:20`` is every whole number from 3 to 20."""
    values: list[Any] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"\s*(\d+):(\d+)\s*", part)
        values += range(int(bounds[1]), int(bounds[2]) + 1) if bounds else [parse_value(part)]
    if not values or any(value == "" or (isinstance(value, str) and ":" in value) for value in values):
        raise ParameterError(f"{text}: write the values to try as 3:20 or 1,2,4")
    return values


@contextmanager
def resumable(has_progress: Callable[[], bool], message: str) -> Iterator[None]:
    """On Ctrl-C inside the block, report how to resume if ``has_progress()``."""
    try:
        yield
    except KeyboardInterrupt:
        raise StoppedError(f"interrupted; {message if has_progress() else 'nothing was written'}") from None


# ---- output -------------------------------------------------------------------------------------------

OutputDirectory = Annotated[Path | None, option("DIR", "Output directory.", "--output", "-o")]
OutputTable = Annotated[Path | None, option("FILE", "Output: .csv, .jsonl or .parquet.", "--output", "-o")]
Json = Annotated[bool, option(None, "Print the result as JSON.", "--json")]
Force = Annotated[bool, option(None, "Write to DIR even if dissensus did not create it.", "--force")]
SafeCsv = Annotated[
    bool, option(None, "Put ' before cells that a spreadsheet would run as formulas.", "--safe-csv")
]
NoReport = Annotated[bool, option(None, "Do not write the HTML report.", "--no-report")]
Title = Annotated[str | None, option("TEXT", "Title of the report.")]
Anonymise = Annotated[bool, option(None, "Replace annotator ids with numbers in the output.", "--anonymise")]


def command_line() -> str:
    """Return the running command as it could be typed again, with :func:`shown_path`."""
    return shlex.join(["dissensus", *map(shown_path, typed.get())])


def shown_path(path: Path | str) -> str:
    """Return a path for the files of a run, which others may read: without folders above the current one.

    An absolute path is shortened to its last two parts if it is not below the current folder.
    """
    text = str(path)
    if text.startswith("--") and "=" in text:
        option, _, value = text.partition("=")
        return f"{option}={shown_path(value)}"
    full = Path(text)
    if not full.is_absolute():
        return text
    here = Path.cwd()
    return str(full.relative_to(here)) if full.is_relative_to(here) else "/".join(["…", *full.parts[-2:]])


def stem(file: Path) -> str:
    """Return the file's name without its suffix: ``votes`` for ``votes.csv.gz``."""
    return Path(file.resolve().name.removesuffix(".gz")).stem


def write_columns(columns: Mapping[str, Any], output: Path, safe_csv: bool = False) -> None:
    """Write columns as a table."""
    from dissensus.labels.display import make_frame
    from dissensus.tables.results import for_spreadsheets
    from dissensus.tables.write import write_table

    with for_spreadsheets(safe_csv):
        write_table(make_frame(dict(columns), "pyarrow"), output)
