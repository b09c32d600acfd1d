"""Tools that write JSON records of answers: Prodigy, Potato, Ground Truth, Inspect, Langfuse and others.

Prodigy: a choice task lists the chosen options in ``accept``. A binary task shows one ``label`` and asks
whether it fits: the label is the question and the answer (accept or reject) is the class.

Potato: one folder for each user, in it lines with ``id``, ``displayed_text`` and ``label_annotations``, by
question the labels that were chosen: ``{"mood": {"happy": "true"}}``. A scale has its number as the value:
``{"mood": {"scale_3": "3"}}``.

SageMaker Ground Truth: the output manifest of a custom labelling job. Under the job's name a line holds
``annotationsFromAllWorkers``; each worker's answer is JSON inside a string. The manifests of built-in jobs
hold only the consolidated label and are refused.

Inspect: every scorer of a log is an annotator; an item is a sample, and each epoch of it is an item.

Langfuse (also as CSV): an item is a trace (or the observation within it); the score's name is the question.
Who gave it is the person (``authorUserId``), or for other sources the source and what it names itself by.

Zooniverse: the answers to all tasks (``T0`` …) are JSON in one column of a table. LeWiDi (2023 and 2025): one
object, keyed by item.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.importers.gather import (
    EMPTY,
    Gatherer,
    Record,
    as_id,
    as_labels,
    by_question,
    parse_json,
    split_labels,
)
from dissensus.tables.delimited import rows
from dissensus.tables.json_lines import JsonStream, records
from dissensus.tables.source import first_bytes, open_source

# ---- Prodigy ------------------------------------------------------------------------------------------


def read_prodigy(path: Path, gather: Gatherer) -> None:
    """Labels of a Prodigy dataset."""
    for place, record in records(open_source(path)):
        key = gather.item_column or "_input_hash"
        who = "_annotator_id" if record.get("_annotator_id") else "_session_id"
        gather.takes(item=key, annotator=who)
        has_text = gather.text_column is not None or "text" in record
        item = gather.item(place, record.get(key), record if has_text else None)
        answer, chosen = record.get("answer"), "accept" in record
        question = "choice" if chosen else as_id(record.get("label"))
        if answer == "ignore":
            gather.leave_out("answers marked ignore")
        elif question is None and isinstance(record.get("spans"), list):
            raise gather.error(place, "marks spans, parts of a text; only classification tasks can be read")
        elif question is None:
            raise gather.error(place, "has no 'accept' or 'label'; only classification tasks can be read")
        elif chosen and answer == "reject" and gather.wants(question):
            gather.leave_out("rejected tasks")
        else:
            gather.answer(place, item, question, record.get(who), record["accept"] if chosen else answer)


# ---- Potato -------------------------------------------------------------------------------------------

POTATO_FILE = "annotated_instances.jsonl"
UNTICKED = (None, False, "", "false")


def read_potato(path: Path, gather: Gatherer) -> None:
    """Labels of all users of a folder, or of the one whose folder a file lies in."""
    files = sorted(path.glob(f"*/{POTATO_FILE}")) if path.is_dir() else [path]
    if not files:
        raise DataError(
            f"{path}: has no */{POTATO_FILE}; give the folder annotation_output of a Potato project"
        )
    gather.takes(item="id", annotator="the user's folder")
    for file in files:
        for line, record in records(open_source(file)):
            place, user = f"{file.parent.name} {line}", file.resolve().parent.name
            item = gather.item(place, record.get("id"), {"text": record.get("displayed_text")})
            answers = record.get("label_annotations")
            if not isinstance(answers, Mapping):
                raise gather.error(place, "has no object 'label_annotations'; correct the line")
            for question, answer in answers.items():
                if isinstance(answer, Mapping):  # the names that were ticked, or the number of a scale
                    ticked = [(str(name), answer[name]) for name in answer if answer[name] not in UNTICKED]
                    answer = [value if name.startswith("scale_") else name for name, value in ticked]
                gather.answer(place, item, str(question), user, answer)
            if record.get("span_annotations"):
                gather.leave_out("span annotations")


# ---- SageMaker Ground Truth ---------------------------------------------------------------------------

_WORKERS = "annotationsFromAllWorkers"
_SOURCES = ("source-ref", "source")


def is_ground_truth(record: Record) -> bool:
    """A line of an output manifest, custom or built-in."""
    has_source = any(source in record for source in _SOURCES)
    return bool(_jobs(record)) or (has_source and any(f"{name}-metadata" in record for name in record))


def read_ground_truth(path: Path, gather: Gatherer) -> None:
    """Labels of a custom job's manifest; the question is the path of the answer within the worker's form."""
    for place, record in records(open_source(path)):
        jobs = _jobs(record)
        if not jobs and is_ground_truth(record):
            raise gather.error(
                place,
                "is the manifest of a built-in job, which holds only the consolidated label; "
                "use the output of a custom job, which keeps each worker's answer",
            )
        source = next((source for source in _SOURCES if source in record), "source")
        key = gather.item_column or source
        gather.takes(item=key, annotator="workerId")
        inline = {name: record[name] for name in ("source",) if isinstance(record.get(name), str)}
        item = gather.item(place, record.get(key), record if gather.text_column else inline)
        for job in jobs:
            _read_job(place, item, record[job], f"{job}." if len(jobs) > 1 else "", gather)


def _jobs(record: Record) -> list[str]:
    objects = {name: value for name, value in record.items() if isinstance(value, dict)}
    return [name for name, value in objects.items() if isinstance(value.get(_WORKERS), list)]


def _read_job(place: str, item: int, job: Record, prefix: str, gather: Gatherer) -> None:
    for annotation in job[_WORKERS]:
        if not isinstance(annotation, dict):
            raise gather.error(place, "holds an annotation that is not an object; export it again")
        data = annotation.get("annotationData")
        content = data.get("content") if isinstance(data, dict) else None
        if isinstance(content, str):
            content = gather.parsed(place, parse_json, content) if content.strip() else None
        answers = gather.parsed(place, by_question, content) if content else {}
        wanted = [labels for question, labels in answers.items() if gather.wants(prefix + question)]
        for labels in wanted:
            gather.label(place, item, annotation.get("workerId"), labels)
        if not wanted:
            gather.leave_out(EMPTY)


# ---- Inspect ------------------------------------------------------------------------------------------

INSPECT_KEYS = ("version", "status", "eval", "task", "model")  # that a log in JSON begins with


def read_inspect(path: Path, gather: Gatherer) -> None:
    """The scores of every sample."""
    _, log = next(iter(records(open_source(path))), ("", {}))
    samples = log.get("samples")
    if not isinstance(samples, list) or not all(isinstance(one, Mapping) for one in samples):
        raise DataError(f"{path}: the log has no samples; write it again with log_samples")
    gather.takes(item="id", annotator="name of the scorer")
    several = any(one.get("epoch", 1) != 1 for one in samples)
    for number, sample in enumerate(samples, 1):
        place, name = f"sample {number}", as_id(sample.get("id"))
        shown = {"text": sample["input"]} if isinstance(sample.get("input"), str) else {}
        item = gather.item(place, f"{name} #{sample.get('epoch')}" if several and name else name, **shown)
        scores = sample.get("scores")
        if not scores:
            gather.leave_out("samples without a score")
            continue
        for scorer, score in scores.items():
            value = score.get("value") if isinstance(score, Mapping) else score
            gather.answer(place, item, "score", scorer, value)


# ---- Langfuse -----------------------------------------------------------------------------------------


def is_langfuse(record: Record) -> bool:
    """A score, as the interface or the blob storage writes it, or a page of them."""
    page = record.get("data")
    if isinstance(page, list) and page and isinstance(page[0], Mapping):
        record = page[0]
    return {"dataType", "source", "name"} <= set(record) or {"data_type", "trace_id", "name"} <= set(record)


def read_langfuse(path: Path, gather: Gatherer) -> None:
    """The scores of one name."""
    gather.takes(item="traceId", annotator="authorUserId or source")
    for place, given in _scores(path):
        # Keys as the interface writes them (traceId), or as tables have them (trace_id).
        score = {re.sub(r"_([a-z])", lambda found: found[1].upper(), key): given[key] for key in given}
        score |= given
        question, trace = as_id(score.get("name")), as_id(score.get("traceId"))
        trace = trace or as_id(score.get("sessionId"))
        if question is None or not gather.wants(question):
            continue
        part = as_id(score.get("observationId"))
        item = gather.item(place, f"{trace} {part}" if trace and part else trace)
        # The person, or the source with the name of what scored (an evaluator's configuration, an author).
        person, source = as_id(score.get("authorUserId")), as_id(score.get("source"))
        scorer = as_id(score.get("configId")) or as_id(score.get("author"))
        who = person or (f"{source} {scorer}" if source and scorer else source)
        value = score.get("stringValue")
        value = score.get("value") if value in (None, "") else value
        gather.answer(place, item, question, who, value)


def _scores(path: Path) -> Iterator[tuple[str, Record]]:
    if first_bytes(path).start[:1] not in (b"{", b"["):
        yield from rows(open_source(path))
        return
    for place, record in records(open_source(path)):
        page = record.get("data")
        for score in page if isinstance(page, list) else [record]:
            if isinstance(score, Mapping):
                yield place, score


# ---- Zooniverse ---------------------------------------------------------------------------------------


def read_zooniverse(path: Path, gather: Gatherer) -> None:
    """Labels of one task of a classifications export.

    Questions are the tasks (``T0`` …), their answers JSON in one column. People who did not log in are told
    apart by the name that Zooniverse gives them (``not-logged-in-…``).
    """
    gather.takes(item="subject_ids", annotator="user_name")
    for place, row in rows(open_source(path)):
        item = gather.item(place, row.get("subject_ids"))
        answers = gather.parsed(place, parse_json, row.get("annotations") or "[]")
        for answer in answers if isinstance(answers, list) else []:
            question = str(answer.get("task", "")) if isinstance(answer, Mapping) else ""
            if question:
                gather.answer(place, item, question, row.get("user_name"), answer.get("value"))


# ---- LeWiDi -------------------------------------------------------------------------------------------


def is_lewidi(entry: Any) -> bool:
    """The value under an item's key."""
    return isinstance(entry, dict) and "annotations" in entry and "annotators" in entry


def read_lewidi(path: Path, gather: Gatherer) -> None:
    """Labels of a LeWiDi file: one object, keyed by item."""
    with open_source(path).text() as text:
        stream = JsonStream(text, str(path))
        for key in stream.members():
            entry = stream.value()
            place = f"item {key!r}"
            if not is_lewidi(entry):
                raise gather.error(place, "has no 'annotations' and 'annotators'; use the file as published")
            side = {name: entry[name] for name in ("split", "lang") if name in entry}
            gather.takes(item="key of the object", annotator="annotators")
            shown = entry if gather.text_column else {"text": entry.get("text")}
            item = gather.item(place, key, shown, **side)
            if not entry["annotations"]:
                gather.leave_out("items without annotations")
            elif gather.wants("annotations"):
                for annotator, answer in _by_annotator(place, entry, gather):
                    labels = split_labels(answer, ",") if isinstance(answer, str) else None
                    gather.label(place, item, annotator, labels or gather.parsed(place, as_labels, answer))


def _by_annotator(place: str, entry: Mapping[str, Any], gather: Gatherer) -> Iterator[tuple[str, Any]]:
    """2025: an object by annotator. 2023: two strings with commas, side by side."""
    annotations = entry["annotations"]
    if isinstance(annotations, dict):
        yield from annotations.items()
        return
    labels, annotators = (
        [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        for value in (annotations, entry["annotators"])
    )
    if not (isinstance(labels, list) and isinstance(annotators, list) and len(labels) == len(annotators)):
        raise gather.error(
            place, "the annotations do not line up with the annotators; use the file as published"
        )
    yield from zip(annotators, labels, strict=True)
