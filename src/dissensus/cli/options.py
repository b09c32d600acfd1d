"""Options that several commands share, declared once: what is read, and what is written.

A bundle is a frozen dataclass whose fields are typer options. A command that has a parameter of that type
and is decorated with :func:`unbundled` offers every one of them and receives them as one value.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_type_hints

import typer

from dissensus.cli.app import in_shell_words, last_result, option
from dissensus.cli.terminal import note, say
from dissensus.progress import shown

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations


def unbundled(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its bundles spread out into single options, as typer wants to see them."""
    signature = inspect.signature(command, eval_str=True)
    bundles: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if dataclasses.is_dataclass(parameter.annotation)
    }

    @functools.wraps(command)
    def spread(**given: Any) -> None:
        for name, bundle in bundles.items():
            fields = [one.name for one in dataclasses.fields(bundle)]
            given[name] = bundle(**{one: given.pop(one) for one in fields})
        command(**given)

    keyword, options = inspect.Parameter.KEYWORD_ONLY, []
    for name, parameter in signature.parameters.items():
        if name in bundles:
            hints = get_type_hints(bundles[name], include_extras=True)
            options += [
                inspect.Parameter(one.name, keyword, default=_default(one), annotation=hints[one.name])
                for one in dataclasses.fields(bundles[name])
            ]
        else:
            options.append(parameter.replace(kind=keyword))
    vars(spread)["__signature__"] = inspect.Signature(options)
    spread.__annotations__ = {option.name: option.annotation for option in options}
    del spread.__wrapped__  # typer would look behind it
    return spread


def _default(one: dataclasses.Field[Any]) -> Any:
    if one.default_factory is not dataclasses.MISSING:
        return one.default_factory()
    return inspect.Parameter.empty if one.default is dataclasses.MISSING else one.default


def under(heading: str) -> Callable[..., Any]:
    """:func:`option` for options that help lists under one heading."""
    return functools.partial(option, rich_help_panel=heading)


# ---- what is read -------------------------------------------------------------------------------------

_reading = under("Reading the file")
_feature = under("Item features, for models that use them")
_DUPLICATES = _reading(
    "keep|first|last|error", "What to do when an annotator labels an item more than once.", "--duplicates"
)

LabelFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="Labels: CSV, TSV, JSONL or Parquet (also gzipped), a tool's export, or a store.",
    ),
]


LabelsOrRun = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|RUN",
        help="Labels, or a finished run (its directory or model file), which is not fitted again.",
    ),
]
LabelsOfRun = Annotated[
    Path | None,
    typer.Argument(metavar="[FILE]", help="The labels of RUN; a run of hpgm keeps them and needs no FILE."),
]


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Where the labels stand in files with one row for each label."""

    item_column: Annotated[
        str | None, _reading("NAME", "Column of item ids (recognised by names such as item or task).")
    ] = None
    annotator_column: Annotated[
        str | None,
        _reading("NAME", "Column of annotator ids (recognised by names such as annotator or worker)."),
    ] = None
    label_column: Annotated[
        str | None, _reading("NAME", "Column of labels (recognised by names such as label or answer).")
    ] = None
    classes: Annotated[
        list[str],
        _reading(
            "A,B,…",
            "The classes in their order (or repeat the option for each class); a scale as low<mid<high.",
        ),
    ] = field(default_factory=list)
    label_type: Annotated[
        Literal["nominal", "ordinal", "numeric", "multi", "pairwise"] | None,
        _reading(
            "TYPE", "nominal, ordinal, numeric, multi or pairwise (recognised from the labels if left out)."
        ),
    ] = None
    duplicates: Annotated[Literal["keep", "first", "last", "error"] | None, _DUPLICATES] = None
    format: Annotated[
        str | None, _reading("NAME", "Format of the file, if it cannot be recognised from the content.")
    ] = None
    missing_words: Annotated[str, _reading("NA,…", "Words that mean that there is no label.")] = ""

    def settings(self) -> dict[str, Any]:
        """The same by the library's names."""
        # The label set is one order with <, one list with commas, or one option each.
        one = self.classes[0] if len(self.classes) == 1 else ""
        listed = one.split(",") if one else self.classes
        return {
            "item": self.item_column,
            "annotator": self.annotator_column,
            "label": self.label_column,
            "classes": one if "<" in one else [name.strip() for name in listed] or None,
            "label_type": self.label_type,
            "duplicates": self.duplicates,
            "format": self.format,
            "missing_words": self.missing_words,
        }


@dataclass(frozen=True, kw_only=True)
class Reading(Columns):
    """Where the labels stand in any file, and what stands beside them."""

    duplicates: Annotated[Literal["keep", "first", "last", "error"], _DUPLICATES] = "keep"
    items: Annotated[
        Path | None, _reading("FILE", "Table of items: their ids, and columns such as text or split.")
    ] = None
    annotators: Annotated[
        Path | None, _reading("FILE", "Table of annotators: their ids, and what is known about them.")
    ] = None
    gold: Annotated[
        Path | None, _reading("FILE", "Table of known right labels, with the columns item and label.")
    ] = None
    item_text: Annotated[
        str | None, _reading("NAME", "Column with the text of the items, in an export or a wide table.")
    ] = None
    question: Annotated[
        str | None, _reading("NAME", "Which question to read from an export that has several.")
    ] = None
    keep_rejected: Annotated[bool, _reading(None, "Read rejected assignments too.", "--keep-rejected")] = (
        False
    )
    separator: Annotated[
        str | None, _reading("CHAR", "Character between the classes of an answer that is a set, as in a|b.")
    ] = None
    encoding: Annotated[str | None, _reading("NAME", "Encoding of a text file that is not UTF-8.")] = None
    layout: Annotated[
        Literal["long", "wide", "counts"] | None,
        _reading(
            "long|wide|counts",
            "One row for each label, a column for each annotator, or counts of the classes.",
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """The same by the library's names."""
        beside = ("items", "annotators", "gold", "encoding", "separator", "layout")
        same = (*beside, "question", "keep_rejected")
        own = {name: getattr(self, name) for name in same}
        return super().settings() | own | {"text_column": self.item_text}

    def given(self) -> dict[str, Any]:
        """The options that say how the file is to be read, where they are not as usual: a run keeps them."""
        own = [one for one in dataclasses.fields(self) if one.name not in ("items", "annotators", "gold")]
        return {one.name: getattr(self, one.name) for one in own if getattr(self, one.name) != _default(one)}

    def words(self) -> str:
        """The same as they are typed, each after a space."""
        typed = []
        for name, value in self.given().items():
            flag = f"--{name.replace('_', '-')}"
            values = value if isinstance(value, list) else [value]
            typed += [flag] if value is True else [word for one in values for word in (flag, str(one))]
        return "".join(f" {shlex.quote(word)}" for word in typed)

    def as_in(self, run: Path) -> Self:
        """These options, and for those that are left out what the run was read with."""
        from dissensus.workflow.runs import reading_of

        known = {one.name for one in dataclasses.fields(self)}
        kept = {name: value for name, value in reading_of(run).items() if name in known}
        return dataclasses.replace(self, **(kept | self.given()))

    def read(self, file: Path, *, aloud: bool = True) -> Annotations:
        """The labels of a file; what the reader found worth a word is said, if ``aloud``."""
        from dissensus.errors import DissensusWarning
        from dissensus.importers.read import read_annotations

        with shown() as progress:
            progress(f"reading {file.name}", 0.0)
            with warnings.catch_warnings(action="ignore", category=DissensusWarning):  # said below
                annotations = read_annotations(file, **self.settings())
        options = {f"--{one.name.replace('_', '-')}" for one in dataclasses.fields(self)}
        for remark in annotations.notes if aloud else ():
            note(in_shell_words(remark, options))
        return annotations


@dataclass(frozen=True, kw_only=True)
class ItemFeatures:
    """What is known of items beyond their labels: a text column to embed, or a file of features."""

    text_column: Annotated[
        str | None, _feature("NAME", "Column of --items with texts, which become features.")
    ] = None
    text_model: Annotated[
        str | None,
        _feature(
            "NAME", "A sentence-transformers model or its path (if left out, one that needs no network)."
        ),
    ] = None
    features: Annotated[
        Path | None, _feature("FILE", "Features as .npy, .npz or .parquet, with one row for each item.")
    ] = None

    def attached(self, annotations: Annotations) -> Annotations:
        """The annotations with the features asked for."""
        if self.features is None and self.text_column is None:
            return annotations
        from dissensus.labels.features import embed_items, read_features, with_features

        if self.features is None:
            return embed_items(annotations, self.text_column or "", model=self.text_model)
        known = with_features(annotations, read_features(self.features, annotations))
        if self.features.suffix == ".npy":
            first = ", ".join(map(str, annotations.items[:3]))
            note(
                f"{self.features}: its rows are taken in the order of the items, which are sorted "
                f"({first}, …); a .npz or .parquet file says whose row is whose"
            )
        return known


# ---- what is written ----------------------------------------------------------------------------------

_page = under("The page")

Json = Annotated[bool, option(None, "Print the result as JSON, for machines.", "--json")]
Force = Annotated[bool, option(None, "Write into a directory that dissensus did not make.", "--force")]
SafeCsv = Annotated[
    bool,
    option(
        None,
        "Put a quote before texts in CSV files that a spreadsheet would take for formulas.",
        "--safe-csv",
    ),
]
Title = Annotated[str | None, _page("TEXT", "Title of the page.", "--title")]
Anonymise = Annotated[
    bool, _page(None, "Write numbers instead of the annotators' ids, everywhere.", "--anonymise")
]


@dataclass(frozen=True, kw_only=True)
class Output:
    """An output directory and what may be replaced there."""

    output: Annotated[
        Path | None,
        option("DIR", "Directory to write (if left out, it is named after the file).", "--output", "-o"),
    ] = None
    force: Force = False

    def directory(self, default: str) -> Path:
        """The place to write, checked before any work is done."""
        from dissensus.tables.results import check_output

        place = self.output or Path(default)
        check_output(place, self.force)
        return place


@dataclass(frozen=True, kw_only=True)
class TablesOutput(Output):
    """The same for a result with tables of somebody's ids."""

    safe_csv: SafeCsv = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The command's last result is written inside, with CSV files as asked for."""
        from dissensus.tables.results import for_spreadsheets

        with for_spreadsheets(self.safe_csv), last_result():
            yield


@dataclass(frozen=True, kw_only=True)
class Page:
    """Whether a page is written, and how."""

    report: Annotated[bool, _page(None, "Write report.html.", "--report/--no-report")] = True
    title: Title = None
    anonymise: Anonymise = False

    def hidden(self, annotations: Annotations) -> Annotations:
        """The annotations, with numbers for annotators if they should stay unknown."""
        if not self.anonymise:
            return annotations
        from dissensus.annotators.pseudonyms import pseudonymised

        return pseudonymised(annotations)

    def settings(self, name: str, text_column: str | None) -> dict[str, Any] | None:
        """Settings of ``write_report``; None where no page is wanted."""
        if not self.report:
            return None
        return {"title": self.title or name, "anonymise": self.anonymise, "texts": text_column}


def command_line(context: typer.Context) -> str:
    """The command that is running, as it could be typed again."""
    return shlex.join(["dissensus", *(context.obj or [])])


def stem(file: Path, question: str | None = None) -> str:
    """The file's name without its suffix, and the question asked of it: ``votes`` of ``votes.csv.gz``."""
    name = Path(file.resolve().name.removesuffix(".gz")).stem
    return name if question is None else "-".join([name, *re.findall(r"[\w.]+", question)])


def say_written(directory: Path, files: list[str]) -> None:
    """Which files are where."""
    say(f"Wrote {directory}/: {', '.join(files)}")


def say_missing(reason: str | None, directory: Path, file: Path) -> None:
    """Where the page could not be made, why, and how to try again."""
    if reason is not None:
        note(f"no report ({reason}); try again with: dissensus report {directory} {file} --debug")
