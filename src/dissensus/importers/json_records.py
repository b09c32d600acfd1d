"""Exports of JSON records: Prodigy, Potato, Ground Truth, Zooniverse and LeWiDi.

Prodigy: a choice task lists the chosen options in ``accept``. A binary task shows one ``label`` to accept or
reject: the label is the question and the answer (accept or reject) is the class.

Potato: one folder per user with lines of ``id``, ``displayed_text`` and ``label_annotations``, which has the
chosen labels by question: ``{"mood": {"happy": "true"}}``. A scale has its number as the value:
``{"mood": {"scale_3": "3"}}``.

SageMaker Ground Truth: the output manifest of a custom labelling job. Under the job's name a line holds
``annotationsFromAllWorkers``; each worker's answer is JSON inside a string. The manifests of built-in jobs
hold only the consolidated label and are refused.

Zooniverse: the answers to all tasks (``T0`` …) are JSON in one column of a table. LeWiDi (2023 and 2025): one
object, keyed by item.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.importers.gather import Gatherer, as_id, as_labels, by_question, parse_json, split_labels
from dissensus.tables.delimited import rows
from dissensus.tables.json_lines import JsonStream, records
from dissensus.tables.source import open_source

# ---- Prodigy ------------------------------------------------------------------------------------------


def read_prodigy(path: Path, gather: Gatherer) -> None:
    """Read the labels of a Prodigy dataset."""
    for location, record in records(open_source(path)):
        key = gather.item_column or "_input_hash"
        annotator = "_annotator_id" if record.get("_annotator_id") else "_session_id"
        gather.set_columns(item=key, annotator=annotator)
        has_text = gather.text_column is not None or "text" in record
        item = gather.item(location, record.get(key), record if has_text else None)
        answer, is_choice = record.get("answer"), "accept" in record
        question = "choice" if is_choice else as_id(record.get("label"))
        if answer == "ignore":
            gather.skip("answers marked ignore")
        elif question is None:
            has_spans = isinstance(record.get("spans"), list)
            problem = "marks spans, parts of a text" if has_spans else "has no 'accept' or 'label'"
            raise gather.error(location, f"{problem}; only classification tasks can be read")
        elif is_choice and answer == "reject" and gather.is_requested(question):
            gather.skip("rejected tasks")
        else:
            answer = record["accept"] if is_choice else answer
            gather.answer(location, item, question, record.get(annotator), answer)


# ---- Potato -------------------------------------------------------------------------------------------

POTATO_FILE = "annotated_instances.jsonl"
_FALSE_VALUES = (None, False, "", "false")


def read_potato(path: Path, gather: Gatherer) -> None:
    """Read the labels of all users of a folder, or of the user in whose folder a file is."""
    files = sorted(path.glob(f"*/{POTATO_FILE}")) if path.is_dir() else [path]
    if not files:
        remedy = "give the folder annotation_output of a Potato project"
        raise DataError(f"{path}: has no */{POTATO_FILE}; {remedy}")
    gather.set_columns(item="id", annotator="the user's folder")
    for file in files:
        for line, record in records(open_source(file)):
            location, user = f"{file.parent.name} {line}", file.resolve().parent.name
            item = gather.item(location, record.get("id"), {"text": record.get("displayed_text")})
            answers = record.get("label_annotations")
            if not isinstance(answers, Mapping):
                raise gather.error(location, "has no object 'label_annotations'; correct the line")
            for question, answer in answers.items():
                if isinstance(answer, Mapping):  # labels that were chosen, or the number of a scale
                    chosen = {str(name): answer[name] for name in answer if answer[name] not in _FALSE_VALUES}
                    answer = [chosen[name] if name.startswith("scale_") else name for name in chosen]
                gather.answer(location, item, str(question), user, answer)
            if record.get("span_annotations"):
                gather.skip("span annotations")


# ---- SageMaker Ground Truth ---------------------------------------------------------------------------

_WORKERS_KEY = "annotationsFromAllWorkers"
_SOURCE_KEYS = ("source-ref", "source")


def is_ground_truth(record: Mapping[str, Any]) -> bool:
    """Return True for a line of an output manifest, custom or built-in."""
    has_source = any(source in record for source in _SOURCE_KEYS)
    return bool(_jobs(record)) or (has_source and any(f"{name}-metadata" in record for name in record))


def read_ground_truth(path: Path, gather: Gatherer) -> None:
    """Read the labels of a custom job's manifest; the question is the path of the answer in the form."""
    for location, record in records(open_source(path)):
        jobs = _jobs(record)
        if not jobs and is_ground_truth(record):
            problem = "is the manifest of a built-in job, which holds only the consolidated label"
            remedy = "use the output of a custom job, which keeps each worker's answer"
            raise gather.error(location, f"{problem}; {remedy}")
        key = gather.item_column or next((key for key in _SOURCE_KEYS if key in record), "source")
        gather.set_columns(item=key, annotator="workerId")
        inline = {name: record[name] for name in ("source",) if isinstance(record.get(name), str)}
        item = gather.item(location, record.get(key), record if gather.text_column else inline)
        for job in jobs:
            _read_job(location, item, record[job], f"{job}." if len(jobs) > 1 else "", gather)


def _jobs(record: Mapping[str, Any]) -> list[str]:
    objects = {name: value for name, value in record.items() if isinstance(value, dict)}
    return [name for name, value in objects.items() if isinstance(value.get(_WORKERS_KEY), list)]


def _read_job(location: str, item: int, job: Mapping[str, Any], prefix: str, gather: Gatherer) -> None:
    for annotation in job[_WORKERS_KEY]:
        if not isinstance(annotation, dict):
            raise gather.error(location, "holds an annotation that is not an object; export it again")
        data = annotation.get("annotationData")
        content = data.get("content") if isinstance(data, dict) else None
        if isinstance(content, str):
            content = gather.parsed(location, parse_json, content) if content.strip() else None
        answers = gather.parsed(location, by_question, content) if content else {}
        requested = [labels for question, labels in answers.items() if gather.is_requested(prefix + question)]
        for labels in requested or [[]]:  # none counts as an empty answer
            gather.label(location, item, annotation.get("workerId"), labels)


# ---- Zooniverse ---------------------------------------------------------------------------------------


def read_zooniverse(path: Path, gather: Gatherer) -> None:
    """Read the labels of one task of a classifications export.

    Questions are the tasks (``T0`` …), with all answers as JSON in one column. People who did not log in have
    names such as ``not-logged-in-…``.
    """
    gather.set_columns(item="subject_ids", annotator="user_name")
    for location, row in rows(open_source(path)):
        item = gather.item(location, row.get("subject_ids"))
        answers = gather.parsed(location, parse_json, row.get("annotations") or "[]")
        for answer in answers if isinstance(answers, list) else []:
            question = str(answer.get("task", "")) if isinstance(answer, Mapping) else ""
            if question:
                gather.answer(location, item, question, row.get("user_name"), answer.get("value"))


# ---- LeWiDi -------------------------------------------------------------------------------------------


def is_lewidi(record: Mapping[str, Any]) -> bool:
    """Return True for an object keyed by item."""
    entry = next(iter(record.values()), None)
    return isinstance(entry, dict) and "annotations" in entry and "annotators" in entry


def read_lewidi(path: Path, gather: Gatherer) -> None:
    """Read the labels of a LeWiDi file: one object, keyed by item."""
    with open_source(path).text() as text:
        stream = JsonStream(text, str(path))
        for key in stream.members():
            entry = stream.value()
            location = f"item {key!r}"
            if not is_lewidi({key: entry}):
                remedy = "use the file as published"
                raise gather.error(location, f"has no 'annotations' and 'annotators'; {remedy}")
            columns = {name: entry[name] for name in ("split", "lang") if name in entry}
            gather.set_columns(item="key of the object", annotator="annotators")
            fields = entry if gather.text_column else {"text": entry.get("text")}
            item = gather.item(location, key, fields, **columns)
            if not entry["annotations"]:
                gather.skip("items without annotations")
            elif gather.is_requested("annotations"):
                for annotator, answer in _by_annotator(location, entry, gather):
                    labels = split_labels(answer, ",") if isinstance(answer, str) else None
                    labels = labels or gather.parsed(location, as_labels, answer)
                    gather.label(location, item, annotator, labels)


def _by_annotator(location: str, entry: Mapping[str, Any], gather: Gatherer) -> Iterator[tuple[str, Any]]:
    """Yield annotator and answer: from an object (2025), or from two strings with commas (2023)."""
    annotations = entry["annotations"]
    if isinstance(annotations, dict):
        yield from annotations.items()
        return
    labels, annotators = (
        [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        for value in (annotations, entry["annotators"])
    )
    if not (isinstance(labels, list) and isinstance(annotators, list) and len(labels) == len(annotators)):
        remedy = "use the file as published"
        raise gather.error(location, f"the annotations do not line up with the annotators; {remedy}")
    yield from zip(annotators, labels, strict=True)
