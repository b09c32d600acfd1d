"""Items to be labelled next, as the tools import them: Label Studio, Argilla and Prodigy.

Every record carries the item's own id (``item``), by which the answers are joined to the labels there are:
reading the tool's export with that column as the item's does it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dissensus.errors import DataError, bad_parameter
from dissensus.tables.atomic import atomic_path
from dissensus.tables.results import finite

TOOLS = ("label-studio", "argilla", "prodigy")


def write_tasks(
    rows: Sequence[Mapping[str, Any]],
    path: str | Path,
    tool: str,
    classes: Sequence[str],
    *,
    question: str = "label",
    version: str = "dissensus",
) -> Path:
    """Write items as tasks: ``rows`` have item, text, action, n_more, reason, label and share.

    ``question`` is the name of the tool's control; ``version`` names who predicts.
    """
    if tool not in TOOLS:
        raise bad_parameter("write_tasks", "tool", f"one of {', '.join(TOOLS)}", tool)
    if any(row.get("text") is None for row in rows):
        raise DataError("a labelling tool shows the items' text; name the items= table that has it")
    makers = {"label-studio": _label_studio, "argilla": _argilla, "prodigy": _prodigy}
    records = [finite(makers[tool](row, classes, question, version)) for row in rows]
    with atomic_path(path) as temporary:
        if tool == "prodigy":
            text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        else:
            text = json.dumps(records, ensure_ascii=False, indent=1) + "\n"
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def _label_studio(row: Mapping[str, Any], _: Sequence[str], question: str, version: str) -> dict[str, Any]:
    """A task with the label so far as a prediction."""
    result = {
        "from_name": question,
        "to_name": "text",
        "type": "choices",
        "value": {"choices": [row["label"]]},
    }
    return {
        "data": {name: row[name] for name in ("item", "text", "action", "n_more", "reason")},
        "predictions": [{"model_version": version, "score": row["share"], "result": [result]}],
    }


def _argilla(row: Mapping[str, Any], _: Sequence[str], question: str, version: str) -> dict[str, Any]:
    """A record as ``dataset.records.from_json`` reads it, the label so far as a suggestion."""
    return {
        "id": row["item"],
        "fields": {"text": row["text"]},
        "metadata": {name: row[name] for name in ("action", "n_more", "reason")},
        "suggestions": {question: {"value": row["label"], "score": row["share"], "agent": version}},
        "responses": {},
        "vectors": {},
    }


def _prodigy(row: Mapping[str, Any], classes: Sequence[str], _: str, __: str) -> dict[str, Any]:
    """A task of the choice interface; nothing is chosen beforehand."""
    return {
        "item": row["item"],
        "text": row["text"],
        "options": [{"id": name, "text": name} for name in classes],
        "meta": {
            "action": row["action"],
            "reason": row["reason"],
            "so far": f"{row['label']} {row['share']:.0%}",
        },
    }
