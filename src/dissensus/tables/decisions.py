"""Decisions of an adjudicator, in a file of JSON lines that only grows.

::

    {"dissensus": "decisions", "version": 1, "source": "votes.csv"}
    {"seq": 1, "time": "2026-11-19T20:40:00+00:00", "item": "c17", "label": "yes", "note": "irony"}
    {"seq": 2, "time": "2026-11-19T20:40:12+00:00", "item": "c9", "label": null, "unsure": true}
    {"seq": 3, "time": "2026-11-19T20:40:20+00:00", "undo": 2}

A line is on disk before its decision is confirmed. A last line without its end, as a killed process leaves
it, was not confirmed and is cut off when the file is opened again. The last decision on an item counts; one
that was undone does not, so that the decision before it counts again.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.labels.kinds import format_set
from dissensus.tables.atomic import sync, take_lock
from dissensus.tables.json_lines import PLAIN_DECODER

HEADER = {"dissensus": "decisions", "version": 1}
Answer = str | list[str] | None  # a class, the classes of a set, or None if the adjudicator is unsure


@dataclass(frozen=True)
class Decision:
    """A decision on one item."""

    seq: int
    time: str
    item: str
    label: Answer
    note: str = ""

    @property
    def class_name(self) -> str | None:
        """Name of the class; None if the adjudicator is unsure."""
        return format_set(self.label) if isinstance(self.label, list) else self.label


class DecisionLog:
    """The file of decisions of one adjudicator, open and locked."""

    def __init__(self, path: Path, source: str = "") -> None:
        self.path, self.lines = path, list[dict[str, Any]]()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if take_lock(self._file) is False:
                raise DataError(f"{path}: is open in another dissensus; use its page, or stop it first")
            raw = path.read_bytes()
            self._size = raw.rfind(b"\n") + 1  # a line without its end was not confirmed
            self.lines = _parse(path, raw[: self._size])
            os.ftruncate(self._file, self._size)
            if not self.lines:
                self._append(HEADER | {"source": source})
                sync(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    @property
    def decisions(self) -> dict[str, Decision]:
        """The decisions that count, by item."""
        return _decisions(self.lines)

    @property
    def last(self) -> dict[str, Any] | None:
        """The last line about an item: a decision, or one that was undone."""
        last = self.lines[-1]
        if "undo" in last:
            undone = next(line for line in self.lines if line.get("seq") == last["undo"])
            last = {"seq": last["seq"], "item": undone["item"]}
        return last if "seq" in last else None

    def decide(self, item: str, label: Answer, note: str = "") -> int:
        """Write a decision to disk, and return its number."""
        unsure = {"unsure": True} if label is None else {}
        return self._record({"item": item, "label": label} | unsure | ({"note": note} if note else {}))

    def undo(self) -> tuple[int, dict[str, Any]] | None:
        """Undo the last decision that is not undone; return the number of the new line and the decision."""
        undone = {line["undo"] for line in self.lines if "undo" in line}
        lines = [line for line in self.lines if "item" in line and line["seq"] not in undone]
        return (self._record({"undo": lines[-1]["seq"]}), lines[-1]) if lines else None

    def close(self) -> None:
        """Close the file, which ends the lock; remove it if it has no decisions."""
        if self._file < 0:
            return
        if len(self.lines) == 1:
            self.path.unlink(missing_ok=True)
            with suppress(OSError):  # the folder has other files
                self.path.parent.rmdir()
        os.close(self._file)
        self._file = -1

    def _record(self, fields: dict[str, Any]) -> int:
        seq: int = self.lines[-1].get("seq", 0) + 1
        self._append({"seq": seq, "time": datetime.now(UTC).isoformat(timespec="seconds")} | fields)
        return seq

    def _append(self, line: dict[str, Any]) -> None:
        """Append a line and sync the file; after a failure, the file is as before."""
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        if not self.path.exists() or not os.path.samestat(os.fstat(self._file), self.path.stat()):
            raise DataError(f"{self.path}: was removed or replaced; start dissensus open again")
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)
        self.lines.append(line)


def is_decisions(path: Any) -> bool:
    """Return whether a path is a file of decisions."""
    if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
        return False
    with Path(path).open("rb") as file:
        return file.readline(1000).startswith(b'{"dissensus": "decisions"')


def read_decisions(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Return the decided items and their classes, as columns; items left unsure are omitted."""
    raw = Path(path).read_bytes()
    decisions = _decisions(_parse(Path(path), raw[: raw.rfind(b"\n") + 1])).values()
    pairs = [(decision.item, name) for decision in decisions if (name := decision.class_name) is not None]
    if not pairs:
        raise DataError(f"{path}: has no decisions yet; leave it out, or decide some items first")
    return {"item": [item for item, _ in pairs], "label": [label for _, label in pairs]}


def _parse(path: Path, raw: bytes) -> list[dict[str, Any]]:
    lines = list[dict[str, Any]]()
    for number, text in enumerate(raw.splitlines(), start=1):
        try:
            line = PLAIN_DECODER.decode(text.decode())
            _check(line, lines)
        except (ValueError, KeyError, TypeError, RecursionError):
            problem = "is damaged; correct or remove this line"
            if number == 1:
                problem = "is not a file of decisions; name another directory"
            raise DataError(f"{path} line {number}: {problem}") from None
        lines.append(line)
    return lines


def _check(line: dict[str, Any], before: list[dict[str, Any]]) -> None:
    """Raise an error for a line that this module does not write."""
    if not before:
        sound = HEADER.items() <= line.items()
    elif "undo" in line:
        sound = any(earlier.get("seq") == line["undo"] and "item" in earlier for earlier in before)
    else:
        label, members = line["label"], line["label"] if isinstance(line["label"], list) else [line["label"]]
        sound = isinstance(line["item"], str) and isinstance(line.get("note", ""), str)
        sound &= all(isinstance(name, str) for name in members) or label is None
    if not sound or (before and not line["seq"] > before[-1].get("seq", 0)):
        raise ValueError


def _decisions(lines: list[dict[str, Any]]) -> dict[str, Decision]:
    undone = {line["undo"] for line in lines if "undo" in line}
    decisions = dict[str, Decision]()
    for line in lines:
        if "item" in line and line["seq"] not in undone:
            decisions.pop(line["item"], None)  # the order is that of the last decisions
            fields: dict[str, Any] = {name: line[name] for name in ("seq", "time", "item", "label")}
            decisions[line["item"]] = Decision(**fields, note=line.get("note", ""))
    return decisions
