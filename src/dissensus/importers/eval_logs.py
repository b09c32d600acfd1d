"""Logs of evaluations by language models: Inspect (JSON) and Langfuse (scores as JSON lines, JSON or CSV).

Inspect: every scorer of a log is an annotator; an item is a sample, and each epoch of it is an item.
Langfuse: an item is a trace (or the observation within it); the score's name is the question. Who gave it is
the person (``authorUserId``), or for other sources the source and what it names itself by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.importers.answers import as_id, as_labels, as_text
from dissensus.importers.gather import Gatherer
from dissensus.tables.delimited import rows
from dissensus.tables.json_lines import records
from dissensus.tables.source import first_bytes, open_source

VERDICT = "score"  # the one question of an Inspect log


# ---- Inspect ------------------------------------------------------------------------------------------


def begins_inspect(start: bytes) -> bool:
    """A log in JSON, judged from how it begins."""
    return all(f'"{key}"'.encode() in start for key in ("version", "status", "eval", "task", "model"))


def read_inspect(path: Path, gather: Gatherer) -> None:
    """The scores of every sample."""
    _, log = next(iter(records(open_source(path))), ("", {}))
    samples = log.get("samples")
    if not isinstance(samples, list) or not all(isinstance(one, Mapping) for one in samples):
        raise DataError(f"{path}: the log has no samples; write it again with log_samples")
    gather.takes(item="id", annotator="name of the scorer")
    several = any(one.get("epoch", 1) != 1 for one in samples)
    for number, sample in enumerate(samples, 1):
        _read_sample(f"sample {number}", sample, several, gather)


def _read_sample(place: str, sample: Mapping[str, Any], several: bool, gather: Gatherer) -> None:
    name = as_id(sample.get("id"))
    text = as_text(sample.get("input")) if isinstance(sample.get("input"), str) else None
    item = gather.item(place, f"{name} #{sample.get('epoch')}" if several and name else name, text)
    scores = sample.get("scores")
    if not scores:
        gather.leave_out("samples without a score")
        return
    for scorer, score in scores.items():
        if gather.wants(VERDICT):
            value = score.get("value") if isinstance(score, Mapping) else score
            gather.label(place, item, scorer, gather.parsed(place, as_labels, value))


# ---- Langfuse -----------------------------------------------------------------------------------------


def is_langfuse(record: Mapping[str, Any]) -> bool:
    """A score, as the interface or the blob storage writes it, or a page of them."""
    page = record.get("data")
    if isinstance(page, list) and page and isinstance(page[0], Mapping):
        record = page[0]
    return {"dataType", "source", "name"} <= set(record) or {"data_type", "trace_id", "name"} <= set(record)


def read_langfuse(path: Path, gather: Gatherer) -> None:
    """The scores of one name."""
    gather.takes(item="traceId", annotator="authorUserId or source")
    for place, score in _scores(path):
        get = _getter(score)
        question, trace = as_id(get("name")), as_id(get("traceId")) or as_id(get("sessionId"))
        if question is None or not gather.wants(question):
            continue
        part = as_id(get("observationId"))
        item = gather.item(place, f"{trace} {part}" if trace and part else trace)
        value = get("stringValue")
        value = get("value") if value in (None, "") else value
        gather.label(place, item, _who(get), gather.parsed(place, as_labels, value))


def _scores(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if first_bytes(path).start[:1] not in (b"{", b"["):
        yield from rows(open_source(path))
        return
    for place, record in records(open_source(path)):
        page = record.get("data")
        for score in page if isinstance(page, list) else [record]:
            if isinstance(score, Mapping):
                yield place, score


def _getter(score: Mapping[str, Any]) -> Any:
    """Keys as the interface writes them (traceId), or as tables have them (trace_id)."""

    def get(name: str) -> Any:
        snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
        return score.get(name, score.get(snake))

    return get


def _who(get: Any) -> str | None:
    """The person, or the source with the name of what scored (an evaluator's configuration, an author)."""
    person = as_id(get("authorUserId"))
    if person is not None:
        return person
    source, scorer = as_id(get("source")), as_id(get("configId")) or as_id(get("author"))
    return f"{source} {scorer}" if source and scorer else source
