"""Importers of exports of annotation tools and crowd platforms, as (item, annotator, label).

Each importer reads one family of exports into a :class:`~dissensus.importers.gather.Gatherer`. The format is
named or recognised from the content; if there are several questions, one is chosen by name.
"""

from __future__ import annotations

import importlib
import zipfile
import zlib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from dissensus.errors import DataError, bad_choice, setting
from dissensus.importers.gather import Gatherer
from dissensus.tables.delimited import header_of
from dissensus.tables.json_lines import first_object, records
from dissensus.tables.source import Source, first_bytes

__all__ = ["FORMATS", "Format", "load_export", "recognise"]


class Format(NamedTuple):
    """Format that can be imported: its name for ``format``, its title, and its importer.

    It is recognised by the fields of the first JSON record of a file (``record``) or by the columns of a
    table (``table``). Both are lists of names, with ``a|b`` for either and ``a*`` for a prefix, or a
    function. Importers and functions are named as ``@module.function`` and loaded when they are needed.
    """

    name: str
    title: str
    read: str
    record: str = ""
    table: str = ""


def _load(reference: str) -> Any:
    module, _, names = reference[1:].partition(".")
    return attrgetter(names)(importlib.import_module(f"dissensus.importers.{module}"))


def _format_of(fields: Mapping[str, Any], kind: Literal["record", "table"]) -> str | None:
    """Return the first format whose test the fields of a record, or the columns of a table, pass."""
    for format in FORMATS.values():
        test = getattr(format, kind)
        words = [word.split("|") for word in test.split()]
        matches = [any(fnmatchcase(name, choice) for name in fields for choice in word) for word in words]
        if _load(test)(fields) if test.startswith("@") else (matches and all(matches)):
            return format.name
    return None


# If a record passes two tests, the first format counts, so the more specific tests come first.
# fmt: off
_FORMATS = (
    Format("prodigy", "Prodigy (JSONL)", "@json_records.read_prodigy", "_input_hash answer"),
    Format("label-studio", "Label Studio (JSON, JSON-MIN, CSV)", "@label_studio.read",
           "@label_studio.is_record", "annotation_id annotator lead_time"),
    Format("argilla", "Argilla 1 and 2 (JSON)", "@argilla.read", "@argilla.is_record"),
    Format("ground-truth", "SageMaker Ground Truth, custom jobs (JSONL)", "@json_records.read_ground_truth",
           "@json_records.is_ground_truth"),
    Format("doccano", "doccano (zip or folder of JSONL files)", "@doccano.read", "@doccano.is_record"),
    Format("mturk", "Amazon Mechanical Turk batch results (CSV)", "@flat.MTURK.read", table="HITId Answer.*"),
    Format("appen", "Appen / FigureEight full report (CSV)", "@flat.APPEN.read",
           table="_unit_id _worker_id|_trusted_judgments|_golden"),
    Format("toloka", "Toloka assignments (TSV)", "@flat.TOLOKA.read", table="ASSIGNMENT:* OUTPUT:*"),
    Format("zooniverse", "Zooniverse classifications (CSV)", "@json_records.read_zooniverse",
           table="classification_id user_name annotations subject_ids"),
    Format("potato", "Potato (folder of JSONL files)", "@json_records.read_potato", "label_annotations id"),
    Format("inspect", "Inspect evaluation log (.eval, JSON)", "@evaluations.INSPECT.read",
           "status eval samples|plan|results|stats"),
    Format("promptfoo", "promptfoo results (JSON, JSONL)", "@evaluations.PROMPTFOO.read",
           "results|testIdx evalId|promptIdx"),
    Format("deepeval", "DeepEval test run (JSON)", "@evaluations.DEEPEVAL.read",
           "testCases|conversationalTestCases|testRunData"),
    Format("lm-eval", "lm-evaluation-harness (JSONL)", "@evaluations.LM_EVAL.read", "doc_id filtered_resps"),
    Format("langsmith", "LangSmith results or feedback (JSON, JSONL, CSV)", "@evaluations.LANGSMITH.read",
           "feedback.*|feedback_source example_id|run_id", "feedback.* example_id|execution_time"),
    Format("phoenix", "Phoenix annotations (JSON, JSONL, CSV)", "@evaluations.PHOENIX.read",
           "annotator_kind span_id|trace_id|session_id", "annotator_kind annotation_name span_id|trace_id"),
    Format("braintrust", "Braintrust (JSON, JSONL)", "@evaluations.BRAINTRUST.read", "root_span_id scores"),
    Format("langfuse", "Langfuse scores (JSON, JSONL, CSV)", "@evaluations.LANGFUSE.read",
           "dataType|data_type source|trace_id name", "dataType|data_type source|trace_id name"),
    Format("lewidi", "LeWiDi 2023 and 2025 (JSON)", "@json_records.read_lewidi", "@json_records.is_lewidi"),
    Format("pldl", "pandas split JSON of the label-distribution papers", "@flat.SPLIT_JSON.read",
           "@flat.is_split"),
    Format("mlflow", "MLflow traces or results (JSON, JSONL, CSV)", "@evaluations.MLFLOW.read",
           "@evaluations.is_mlflow", "*/value trace_id|request_id"),
    Format("huggingface", "Hugging Face dataset on disk (Arrow, Parquet)", "@huggingface.read"),
)
# fmt: on
FORMATS: Mapping[str, Format] = MappingProxyType({format.name: format for format in _FORMATS})


def load_export(path: str | Path, *, format: str | None = None, **settings: Any) -> Gatherer:
    """Read the labels of one question from a tool's export.

    ``format`` is one of :data:`FORMATS`; None: recognised from the content. The ``settings`` are those of
    :class:`~dissensus.importers.gather.Gatherer`: ``question`` names the question if there are several,
    ``keep_rejected`` keeps rejected assignments, ``item_column`` and ``text_column`` name the fields of an
    item's id and text instead of the tool's usual ones, and ``annotator_column`` that of the annotators of a
    Hugging Face dataset, the only format without fixed names.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise bad_choice("load_export", "format", FORMATS, format)
    if not path.exists():
        raise DataError(f"{path}: no such file; check the name")
    name = format or recognise(path)
    if name is None:
        remedy = f"name the format with {setting('format')} ({', '.join(FORMATS)})"
        raise DataError(f"{path}: not recognised as an export; {remedy}")
    if settings.get("annotator_column") is not None and name != "huggingface":
        remedy = f"leave {setting('annotator')} out"
        raise DataError(f"{path}: {name} files have a fixed annotator field; {remedy}")
    gather = Gatherer(path, name, **settings)
    _load(FORMATS[name].read)(path, gather)
    gather.check_question(finished=True)
    return gather


# ---- recognising the tool that wrote a file -----------------------------------------------------------


def recognise(path: str | Path) -> str | None:
    """Return the name of the export format, or None for a file that should be read as a plain table.

    At most a few megabytes are read, and a file that cannot be read is not an export: no error is raised.
    """
    path = Path(path)
    try:
        if path.is_dir() or zipfile.is_zipfile(path):
            from dissensus.importers import doccano, evaluations, huggingface, json_records

            if any((path / name).is_file() for name in huggingface.MARKERS) or huggingface.files_of(path):
                return "huggingface"
            if next(path.glob(f"*/{json_records.POTATO_FILE}"), None) is not None:
                return "potato"
            if path.is_file() and next(doccano.read_archive(path, evaluations.is_sample), None):
                return "inspect"
            members = (record for _, source in doccano.members(path) for _, record in records(source))
            return "doccano" if doccano.is_record(next(members, {})) else None
        source = first_bytes(path)
        if source.start[:1] in (b"{", b"["):
            return _recognise_json(source)
        return _format_of(dict.fromkeys(header_of(source)), "table")
    except (DataError, OSError, EOFError, ValueError, RecursionError, KeyError, zlib.error):
        return None


def _recognise_json(source: Source) -> str | None:
    """Return the format of a JSON file, by its first record or by that of a page of records."""
    record = first_object(source)
    pages = [record[key] for key in ("data", "events") if isinstance(record.get(key), list)]
    page = next((page[0] for page in pages if page and isinstance(page[0], dict)), {})
    return _format_of(record, "record") or _format_of(page, "record")
